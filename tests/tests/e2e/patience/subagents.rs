//! Seven subagents of one type at once, each in a run of its own, on a connection of its own,
//! and every one of them numbers its call 1.

use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use tokio::task::JoinHandle;

const SUBAGENTS: usize = 7;
const LEGACY: Speaks = Speaks::Legacy("2025-11-25");

struct Subagent {
    arguments: Value,
    call: JoinHandle<Result<Answer, String>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_subagents_each_get_the_answer_to_their_own_call() {
    for speaks in [[Speaks::Modern, Speaks::Modern], [LEGACY, LEGACY], [Speaks::Modern, LEGACY]] {
        let (house, upstream) = open().await;
        let mut waiting = BTreeMap::new();
        for number in 0..SUBAGENTS {
            let arguments = json!({"order": format!("o-{number}")});
            let (run, subagent) = subagent(&house, speaks[number % 2].clone(), arguments).await;
            waiting.insert(run, subagent);
        }
        let ran = decide_all(&house, waiting).await;
        let mut sent = upstream.calls("refund");
        sent.sort();
        assert_eq!(sent, ran);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_of_seven_subagents_is_asked_and_made_for_each() {
    for speaks in [Speaks::Modern, LEGACY] {
        let (house, upstream) = open().await;
        let mut waiting = BTreeMap::new();
        for _ in 0..SUBAGENTS {
            let arguments = json!({"order": "o-1"});
            let (run, subagent) = subagent(&house, speaks.clone(), arguments).await;
            waiting.insert(run, subagent);
        }
        let ran = decide_all(&house, waiting).await;
        assert_eq!(upstream.calls("refund"), ran);
    }
}

async fn open() -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["refund"])).await;
    let policy = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    );
    (house(&policy).await, upstream)
}

/// Starts a run, connects to it and makes a call that parks.
async fn subagent(house: &House, speaks: Speaks, arguments: Value) -> (String, Subagent) {
    let (status, run) = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await;
    assert_eq!(status, 201, "{run}");
    let member = |name: &str| run[name].as_str().unwrap().to_owned();
    let agent = Agent::connect(&member("url"), &member("token"), speaks).await.unwrap();
    let sent = arguments.clone();
    let call = tokio::spawn(async move { agent.call("crm__refund", sent).await });
    (member("run"), Subagent { arguments, call })
}

/// Decides the cards in a random order, every third one against. After each decision its own
/// caller is answered and no other. Returns the arguments that were approved, sorted.
async fn decide_all(house: &House, mut waiting: BTreeMap<String, Subagent>) -> Vec<String> {
    let mut cards = house.parked(SUBAGENTS).await;
    let random = RandomState::new();
    cards.sort_by_cached_key(|card| random.hash_one(card["id"].as_str()));
    let mut ran = Vec::new();
    for (place, card) in cards.iter().enumerate() {
        let subagent = waiting.remove(card["run"].as_str().unwrap()).expect("a card of its own");
        let asked = subagent.arguments.to_string();
        assert_eq!(card["arguments"], asked);
        if place % 3 == 1 {
            let reason = format!("not as number {place}");
            assert_eq!(house.decide(card, "deny", Some(&reason)).await.0, 200);
            let answer = subagent.call.await.unwrap().unwrap();
            assert!(answer.is_error() && answer.says().contains(&reason), "{}", answer.text);
            assert_eq!(answer.json()["id"], 1);
        } else {
            assert_eq!(house.decide(card, "approve", None).await.0, 200);
            let answer = subagent.call.await.unwrap().unwrap();
            assert_eq!(answer.says(), asked, "{}", answer.text);
            assert_eq!(answer.json()["id"], 1);
            ran.push(asked);
        }
        let early = waiting.values().filter(|subagent| subagent.call.is_finished()).count();
        assert_eq!(early, 0, "a caller was answered by a decision that is not its own");
    }
    ran.sort();
    ran
}
