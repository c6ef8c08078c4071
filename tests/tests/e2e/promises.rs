//! What is promised of parked calls, against everything that can happen at once and in numbers:
//! one outcome, at most one run, the bytes that were shown, and nobody forgotten.

mod approvers;
mod bench;
mod birth;
mod callers;
mod fidelity;
mod ground;
mod race;
mod stop;

use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::approver::Approver;
use portcullis_tests::house::House;
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const ERAS: [Speaks; 2] = [Speaks::Modern, Speaks::Legacy("2025-11-25")];
/// Nothing that is waited for takes longer.
const THERE_WITHIN: Duration = Duration::from_secs(60);

/// Agents and how each of them waits.
fn policy(url: &str, agents: &[(&str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n"
    );
    for (agent, approval) in agents {
        text += &format!(
            "---\napiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {agent}}}\nspec:\n  tools:\n    - {{server: crm, allow: [get, refund], autoApprove: [get]}}\n  approval: {{{approval}}}\n  limits: {{concurrentCalls: 20000, parkedCalls: 20000}}\n"
        );
    }
    text
}

/// A gateway that is a process of its own, and the upstream that knows what ran.
async fn open(agents: &[(&str, &str)]) -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let spec = "  approval: {hold: {clients: {raw: 5m}, legs: false}}\n";
    let house = House::process(House::folder(&policy(&upstream.url, agents), spec)).await;
    (house, upstream)
}

/// Waits until as many calls are parked; returns their cards.
async fn parked(operator: &Approver, count: usize) -> Vec<Value> {
    until("the cards", async || {
        let cards = operator.cards("state=parked").await.unwrap();
        (cards.len() == count).then_some(cards)
    })
    .await
}

/// A token for an admin.
async fn admin(house: &House, name: &str, role: &str) -> Approver {
    let body = json!({"admin": name, "role": role});
    let (status, made) = house.api("POST", "/v1/tokens", Some(body)).await;
    assert_eq!(status, 201, "{made}");
    Approver::with(house, made["token"].as_str().unwrap())
}

/// A run of an agent, and the agent in it.
async fn start(operator: &Approver, agent: &str, speaks: Speaks) -> (String, Agent) {
    let (status, run) =
        operator.ask("POST", "/v1/runs", Some(json!({"agent": agent}))).await.unwrap();
    assert_eq!(status, 201, "{run}");
    let member = |name: &str| run[name].as_str().unwrap();
    let entered = Agent::connect(member("url"), member("token"), speaks).await.unwrap();
    (member("run").to_owned(), entered)
}

fn text<'a>(card: &'a Value, member: &str) -> &'a str {
    card[member].as_str().unwrap_or_default()
}

fn refund(agent: &Agent, amount: usize) -> JoinHandle<Result<Answer, String>> {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call("crm__refund", json!({"amount": amount})).await })
}

/// Waits until `look` finds what it looks for.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looks = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    match timeout(THERE_WITHIN, looks).await {
        Ok(found) => found,
        Err(_) => panic!("{what} did not come"),
    }
}
