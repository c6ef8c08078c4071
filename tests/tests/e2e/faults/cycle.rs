//! One call from its question to its end, and what must hold of it whatever broke.

use super::told::{Told, told};
use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::house::{Folder, House};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// No call takes longer to be answered: it is held for less, and the rest is waiting for locks.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// No card is left executing for longer once the fault is gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// The store is used again within this time of the end of a fault.
const BACK_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Calls that are new after a fault have amounts from here on.
const FRESH: u32 = 1_000_000;

/// A gateway that is a process of its own, its agent, and the upstream that knows what ran.
pub(super) struct Stage {
    pub(super) house: House,
    pub(super) upstream: Upstream,
    agent: Agent,
    pub(super) environment: Vec<(String, String)>,
}

/// A call that is not answered yet.
pub(super) type Held = JoinHandle<Result<Answer, String>>;

/// Where in its life a call is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the agent asks.
    Asked,
    /// Its card waits for a decision, and its caller with it.
    Parked,
    /// Its card is approved and its caller gone.
    Approved,
    /// The upstream has it and has not answered.
    Executing,
}

impl Stage {
    /// Starts a gateway in a fresh folder.
    pub(super) async fn open() -> Self {
        let (folder, upstream) = Self::folder("").await;
        Self::on(folder, upstream, Vec::new()).await
    }

    /// The folder of a gateway that was never started, and its upstream; `spec` is YAML put into
    /// its `spec`.
    pub(super) async fn folder(spec: &str) -> (Folder, Upstream) {
        let upstream = Upstream::start(Offer::tools(&["refund"])).await;
        let spec = format!("  approval: {{hold: {{clients: {{raw: 8s}}, legs: false}}}}\n{spec}");
        (House::folder(&policy(&upstream.url), &spec), upstream)
    }

    /// Starts a gateway on a folder as it is.
    pub(super) async fn on(
        folder: Folder,
        upstream: Upstream,
        environment: Vec<(String, String)>,
    ) -> Self {
        let borrowed: Vec<_> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let house = House::process_with(folder, &borrowed).await;
        let agent = house.agent("support", Speaks::Modern).await;
        Self { house, upstream, agent, environment }
    }

    /// Ends the gateway with SIGKILL and starts it anew on what it left.
    pub(super) async fn crash(self) -> Self {
        let folder = self.house.kill().await;
        Self::on(folder, self.upstream, self.environment).await
    }

    /// How often the call of `amount` ran, by the upstream's own record.
    pub(super) fn runs(&self, amount: u32) -> usize {
        let calls = self.upstream.calls("refund");
        calls.iter().filter(|arguments| **arguments == arguments_of(amount)).count()
    }

    /// All cards, oldest first; `None` while the store cannot be read.
    pub(super) async fn list(&self) -> Option<Vec<Value>> {
        self.page("").await
    }

    /// Those of the call of `amount`.
    pub(super) async fn cards(&self, amount: u32) -> Option<Vec<Value>> {
        let mut cards = self.list().await?;
        cards.retain(|card| card["arguments"] == arguments_of(amount));
        Some(cards)
    }

    async fn page(&self, query: &str) -> Option<Vec<Value>> {
        let (status, list) = self.house.api("GET", &format!("/v1/approvals{query}"), None).await;
        assert!(status == 200 || status == 503, "{status}: {list}");
        (status == 200).then(|| list["items"].as_array().cloned()).flatten()
    }

    /// Makes the call of `amount`.
    pub(super) fn call(&self, amount: u32) -> Held {
        let agent = self.agent.clone();
        tokio::spawn(async move {
            let call = agent.call("crm__refund", json!({"amount": amount}));
            timeout(ANSWER_WITHIN, call).await.unwrap_or_else(|_| Err("it hangs".to_owned()))
        })
    }

    /// Approves the call of `amount` if it is parked. True if the gateway said that it is done.
    pub(super) async fn approve(&self, amount: u32) -> bool {
        let parked = self.page("?state=parked").await.unwrap_or_default();
        match parked.iter().find(|card| card["arguments"] == arguments_of(amount)) {
            Some(card) => self.house.decide(card, "approve", None).await.0 == 200,
            None => false,
        }
    }

    /// Approves the call of `amount` as soon as it is parked, again and again if the gateway says
    /// that it could not, until it is answered.
    pub(super) async fn ends(&self, amount: u32, held: Held) -> Answer {
        while !held.is_finished() {
            self.approve(amount).await;
            sleep(LOOK_AGAIN).await;
        }
        held.await.unwrap().unwrap()
    }

    /// Makes the call of `amount` and approves it. Returns what the agent was told.
    pub(super) async fn cycle(&self, amount: u32) -> Answer {
        self.ends(amount, self.call(amount)).await
    }

    /// Brings the call of `amount` to `phase`; returns its caller if it waits.
    pub(super) async fn reach(&self, phase: Phase, amount: u32) -> Option<Held> {
        if phase == Phase::Asked {
            return None;
        }
        if phase == Phase::Executing {
            self.upstream.set(|offer| offer.call_delay = Duration::from_secs(1));
        }
        let held = self.call(amount);
        self.until(amount, |card| card["state"] == "parked").await;
        if phase == Phase::Parked {
            return Some(held);
        }
        if phase == Phase::Approved {
            held.abort();
            self.until(amount, |card| card["unattended"] == true).await;
            assert!(self.approve(amount).await);
            return None;
        }
        assert!(self.approve(amount).await);
        while self.runs(amount) == 0 {
            sleep(LOOK_AGAIN).await;
        }
        self.upstream.set(|offer| offer.call_delay = Duration::ZERO);
        Some(held)
    }

    /// Brings the call of `amount` to `phase`, breaks what is under the gateway, lets agent and
    /// approver try, repairs it, and asks for all that must hold.
    pub(super) async fn struck(
        &self,
        phase: Phase,
        breaks: impl AsyncFnOnce(),
        heals: impl AsyncFnOnce(),
    ) {
        let amount = 1;
        let held = self.reach(phase, amount).await;
        let before = self.cards(amount).await.unwrap();
        breaks().await;
        let held = held.unwrap_or_else(|| self.call(amount));
        self.approve(amount).await;
        heals().await;
        let answer = self.ends(amount, held).await;
        self.judge(amount, &answer);
        let after = self.settled(amount).await;
        let there = |id: &Value| after.iter().any(|card| card["id"] == *id);
        assert!(before.iter().all(|card| there(&card["id"])), "lost: {before:?}, {after:?}");
        self.recovers(amount).await;
    }

    /// What must hold of the call of `amount` when the agent was told `answer`.
    pub(super) fn judge(&self, amount: u32, answer: &Answer) {
        let runs = self.runs(amount);
        let said = (runs, &answer.text);
        match told(answer) {
            Told::Result => assert_eq!(runs, 1, "a result without one run: {said:?}"),
            Told::DidNotRun => assert_eq!(runs, 0, "it ran: {said:?}"),
            Told::MayHaveRun => assert!(runs <= 1, "it ran twice: {said:?}"),
        }
    }

    /// Waits until the call of `amount` is settled or can be decided; returns its cards. One that
    /// ran has its decision on record.
    pub(super) async fn settled(&self, amount: u32) -> Vec<Value> {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            let cards = self.cards(amount).await;
            if let Some(cards) = &cards
                && cards.iter().all(|card| card["state"] != "executing")
            {
                let used = cards.iter().filter(|card| used_up(card)).count();
                assert!(used >= self.runs(amount), "it ran without a decision: {cards:?}");
                return cards.clone();
            }
            assert!(Instant::now() < until, "it is not settled: {cards:?}");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// With the fault gone and the gateway as it is: the call of `amount` comes to its end, once,
    /// and a new one runs.
    pub(super) async fn recovers(&self, amount: u32) {
        let cards = self.settled(amount).await;
        if !cards.iter().any(used_up) {
            self.insists(amount).await;
        }
        self.insists(FRESH + amount).await;
    }

    // An agent that is told to try again later does so; the store may need a moment to be back.
    async fn insists(&self, amount: u32) {
        let until = Instant::now() + BACK_WITHIN;
        let mut answer = self.cycle(amount).await;
        while answer.code() == 4601 && Instant::now() < until {
            sleep(LOOK_AGAIN).await;
            answer = self.cycle(amount).await;
        }
        assert_eq!((told(&answer), self.runs(amount)), (Told::Result, 1), "{}", answer.text);
    }

    /// Waits until a card of the call of `amount` is as `there` says.
    pub(super) async fn until(&self, amount: u32, there: impl Fn(&Value) -> bool) {
        let until = Instant::now() + SETTLED_WITHIN;
        while !self.cards(amount).await.unwrap_or_default().iter().any(&there) {
            assert!(Instant::now() < until, "{:?}", self.cards(amount).await);
            sleep(LOOK_AGAIN).await;
        }
    }
}

// Its approval is used up, by a call that ended one way or the other.
fn used_up(card: &Value) -> bool {
    card["decision"]["decision"] == "approve"
        && (card["state"] == "done" || card["state"] == "unknown")
}

pub(super) fn arguments_of(amount: u32) -> String {
    format!("{{\"amount\":{amount}}}")
}

fn policy(url: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund]}}\n  limits: {{concurrentCalls: 5000, parkedCalls: 5000}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n"
    )
}
