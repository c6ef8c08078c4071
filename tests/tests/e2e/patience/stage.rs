//! A gateway with one agent whose `refund` asks, a tap before it, and whoever decides.

use super::tap::{Tap, Who};
use portcullis_tests::driver::Driver;
use portcullis_tests::house::House;
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Longer than the timer of any client that gives a call a minute.
pub(crate) const PAST_A_MINUTE: Duration = Duration::from_secs(62);
/// Longest wait for something that needs no timer: many processes start at once.
const SOON: Duration = Duration::from_secs(90);
/// How many client processes may start at once: the others would only wait for a core.
static STARTS: Semaphore = Semaphore::const_new(3);

tokio::task_local! {
    /// The right of this case to start its client, until it has.
    static TURN: Cell<Option<SemaphorePermit<'static>>>;
}

/// Runs a case when it is its turn to start a client: first come, first served.
pub(super) async fn in_turn(case: impl Future<Output = ()>) {
    let turn = STARTS.acquire().await.unwrap();
    TURN.scope(Cell::new(Some(turn)), case).await;
}

/// The client of this case has started: others may.
pub(super) fn started() {
    TURN.with(Cell::take);
}

/// What the tool of every stage is called with.
pub(crate) const ARGUMENTS: &str = r#"{"amount":20,"order":"o-1"}"#;

/// A client library, and what it says about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    driver: &'static str,
    name: &'static str,
    product: &'static str,
}

impl Library {
    /// Its driver, its `clientInfo.name` and the product in its `User-Agent`.
    pub(crate) const fn new(
        driver: &'static str,
        name: &'static str,
        product: &'static str,
    ) -> Self {
        Self { driver, name, product }
    }
}

/// What a driver is told after URL and token.
type Settings = &'static [(&'static str, &'static str)];

/// One gateway, for one client.
pub(crate) struct Stage {
    pub(crate) house: House,
    pub(crate) tap: Tap,
    upstream: Upstream,
}

impl Stage {
    /// `approval` is YAML of the agent's policy, `spec` of the gateway's configuration.
    pub(crate) async fn open(approval: &str, spec: &str) -> Self {
        let upstream = Upstream::start(Offer::tools(&["refund"])).await;
        let policy = format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund]}}\n{approval}---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
            upstream.url
        );
        let tap = Tap::open().await;
        let house = House::start(&policy, &format!("{}{spec}", tap.spec())).await;
        tap.lead_to(&house.agents);
        let stage = Self { house, tap, upstream };
        let began = Instant::now();
        while stage.tools().await == 0 {
            pause(began, "the tool").await;
        }
        stage
    }

    /// The same after a restart of the gateway: clients find it where it was.
    pub(crate) async fn restarted(self) -> Self {
        let Self { house, tap, upstream } = self;
        let house = House::from(house.stop().await).await.unwrap();
        tap.lead_to(&house.agents);
        Self { house, tap, upstream }
    }

    /// Where clients find the agent.
    pub(crate) fn url(&self) -> String {
        self.tap.url(&self.house.url("support"))
    }

    /// Connects a client library by way of the tap.
    pub(crate) async fn driver(&self, library: Library, settings: Settings) -> Driver {
        let token = self.house.token("support");
        let driver = Driver::connect_with(library.driver, &self.url(), &token, settings).await;
        started();
        driver
    }

    /// The one card there is, which must wait.
    pub(crate) async fn card(&self) -> Value {
        let began = Instant::now();
        loop {
            if let [card] = self.cards("parked").await.as_slice() {
                return card.clone();
            }
            pause(began, "a parked call").await;
        }
    }

    /// The cards in one of these states.
    pub(crate) async fn cards(&self, states: &str) -> Vec<Value> {
        let path = format!("/v1/approvals?state={states}");
        let list = self.house.api("GET", &path, None).await.1;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the client has made `count` calls.
    pub(crate) async fn calls(&self, count: usize) {
        let began = Instant::now();
        while self.tap.calls("crm__refund") != count {
            pause(began, "another call").await;
        }
    }

    /// Waits until the client has sent that many requests for `method`, or more.
    pub(crate) async fn asked(&self, method: &str, count: usize) {
        let began = Instant::now();
        while self.tap.count(method) < count {
            pause(began, method).await;
        }
    }

    /// Waits until the one card has a caller, or has none.
    pub(crate) async fn attended(&self, attended: bool) {
        let began = Instant::now();
        while self.card().await["unattended"] == attended {
            pause(began, "the caller, or its end").await;
        }
    }

    async fn tools(&self) -> usize {
        let view = self.house.api("GET", "/v1/agents/support", None).await.1;
        view["tools"].as_array().map_or(0, Vec::len)
    }

    /// Approves the one card when it has waited for `wait`.
    pub(crate) async fn approve_after(&self, wait: Duration) {
        self.card().await;
        tokio::time::sleep(wait).await;
        self.nothing_ran();
        self.decide("approve", None).await;
    }

    /// Decides the one card.
    pub(crate) async fn decide(&self, decision: &str, reason: Option<&str>) {
        let card = self.card().await;
        let (status, answer) = self.house.decide(&card, decision, reason).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// One card was made and its call ran once, as it was asked for; `answer` is its result.
    pub(crate) async fn ran_once(&self, answer: &Value) {
        ran(answer);
        self.ended_as(&["done"]).await;
    }

    /// There is one card, settled as `state`.
    pub(crate) async fn one_card(&self, state: &str) {
        self.cards_are(&[state]).await;
    }

    /// The cards are in these states, the oldest first, and each that is done ran once.
    pub(crate) async fn ended_as(&self, states: &[&str]) {
        let done = states.iter().filter(|state| **state == "done").count();
        assert_eq!(self.upstream.calls("refund"), vec![ARGUMENTS; done], "executions");
        self.cards_are(states).await;
    }

    async fn cards_are(&self, states: &[&str]) {
        let all = "parked,approved,executing,done,denied,unknown,expired,lapsed,cancelled";
        let cards = self.cards(all).await;
        let found: Vec<&str> = cards.iter().filter_map(|card| card["state"].as_str()).collect();
        assert_eq!(found, states);
    }

    /// Nothing ran yet.
    pub(crate) fn nothing_ran(&self) {
        assert_eq!(self.ran_so_far(), 0, "it ran before it was approved");
    }

    /// How often the tool ran.
    pub(crate) fn ran_so_far(&self) -> usize {
        self.upstream.calls("refund").len()
    }

    /// The client said about itself what the gateway has to go by.
    pub(crate) fn met(&self, library: Library, token: bool) {
        let who = Who::new(library.name, library.product, token);
        assert_eq!(self.tap.who(), who, "{}", library.driver);
    }
}

/// Makes the call that every stage is about; `more` are members of the step, in JSON.
pub(crate) async fn refund(driver: &mut Driver, more: &str) -> Value {
    let arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
    let mut step = json!({"op": "call", "name": "crm__refund", "arguments": arguments});
    let more: serde_json::Map<String, Value> = serde_json::from_str(more).unwrap();
    step.as_object_mut().unwrap().extend(more);
    driver.step(&step).await
}

async fn pause(began: Instant, what: &str) {
    assert!(began.elapsed() < SOON, "this never came: {what}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// `answer` is what the tool answered.
pub(crate) fn ran(answer: &Value) {
    assert_eq!(answer["text"], ARGUMENTS, "{answer}");
    assert_ne!(answer["isError"], true, "{answer}");
}

/// `answer` is a denial for that reason.
pub(crate) fn refused(answer: &Value, reason: &str) {
    let text = answer["text"].as_str().unwrap_or_default();
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(text.contains("did not run") && text.contains(reason), "{answer}");
}

/// `answer` says that the call did not run and how it is collected.
pub(crate) fn told(answer: &Value) {
    let text = answer["text"].as_str().unwrap_or_default();
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(text.contains("did NOT run") && text.contains("approval_status"), "{answer}");
}
