//! Calls that wait for an approval: at most once, exactly as approved, never forgotten.

use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::house::House;
use portcullis_tests::upstream::{Behave, Offer, Upstream};
use serde_json::{Value, json};
use std::time::Duration;

const ERAS: [Speaks; 2] = [Speaks::Modern, Speaks::Legacy("2025-11-25")];

async fn open_with(approval: &str, spec: &str) -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let house = House::start(&policy(&upstream.url, approval), spec).await;
    (house, upstream)
}

fn policy(url: &str, approval: &str) -> String {
    let agent = |name: &str| {
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n    - {{server: crm, allow: [get, refund], autoApprove: [get]}}\n{approval}---\n"
        )
    };
    format!(
        "{}{}apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n",
        agent("support"),
        agent("other")
    )
}

fn refund(
    agent: &Agent,
    amount: u32,
) -> tokio::task::JoinHandle<Result<portcullis_tests::agent::Answer, String>> {
    let agent = agent.clone();
    tokio::spawn(async move {
        agent.call("crm__refund", json!({"order": "o-1", "amount": amount})).await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_call_runs_once_when_it_is_approved() {
    for speaks in ERAS {
        let (house, upstream) = open_with("", "").await;
        let agent = house.agent("support", speaks).await;
        let held = refund(&agent, 20);
        let cards = house.parked(1).await;
        assert!(upstream.calls("refund").is_empty());
        let card = &cards[0];
        assert_eq!(
            card["arguments"].as_str().or(card["arguments"]["text"].as_str()),
            Some(r#"{"amount":20,"order":"o-1"}"#),
            "{card}"
        );
        assert_eq!(
            (card["agent"].as_str(), card["server"].as_str(), card["tool"].as_str()),
            (Some("support"), Some("crm"), Some("refund"))
        );
        let (status, decided) = house.decide(card, "approve", None).await;
        assert_eq!(status, 200, "{decided}");
        let answer = held.await.unwrap().unwrap();
        assert_eq!(answer.says(), r#"{"amount":20,"order":"o-1"}"#, "{}", answer.text);
        assert!(!answer.is_error());
        assert_eq!(upstream.calls("refund"), [r#"{"amount":20,"order":"o-1"}"#]);
        // The same decision again gives the same answer, another one a conflict.
        assert_eq!(house.decide(card, "deny", Some("late")).await.0, 409);
        assert_eq!(upstream.calls("refund").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_reaches_the_model_with_its_reason() {
    for speaks in ERAS {
        let (house, upstream) = open_with("", "").await;
        let agent = house.agent("support", speaks).await;
        let held = refund(&agent, 20);
        let cards = house.parked(1).await;
        assert_eq!(house.decide(&cards[0], "deny", Some("over budget this month")).await.0, 200);
        let answer = held.await.unwrap().unwrap();
        assert!(answer.is_error());
        assert!(answer.says().contains("over budget this month"), "{}", answer.text);
        assert!(answer.says().contains("did not run"), "{}", answer.text);
        assert!(!answer.says().contains("operator-token"));
        assert!(upstream.calls("refund").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_settles_honestly_and_the_identical_repeat_collects() {
    for speaks in ERAS {
        let (house, upstream) = open_with("", "  approval: {hold: {default: 200ms}}\n").await;
        let agent = house.agent("support", speaks).await;
        let first = refund(&agent, 5).await.unwrap().unwrap();
        assert!(first.is_error());
        assert!(first.says().contains("did NOT run"), "{}", first.text);
        let cards = house.parked(1).await;
        let id = cards[0]["id"].as_str().unwrap();
        assert!(
            first.says().contains(id) && first.says().contains("approval_status"),
            "{}",
            first.text
        );
        assert_eq!(first.result()["_meta"]["dev.portcullis/approval"]["id"], json!(id));
        // A repeat joins, it makes no second card.
        assert!(refund(&agent, 5).await.unwrap().unwrap().says().contains(id));
        house.parked(1).await;
        assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(
            upstream.calls("refund").is_empty(),
            "nothing runs while nobody is there to take the answer"
        );
        let collected = refund(&agent, 5).await.unwrap().unwrap();
        assert_eq!(collected.says(), r#"{"amount":5,"order":"o-1"}"#, "{}", collected.text);
        assert_eq!(upstream.calls("refund").len(), 1);
        // Used up: the next one asks again.
        assert!(refund(&agent, 5).await.unwrap().unwrap().says().contains("did NOT run"));
        assert_eq!(upstream.calls("refund").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_status_collects_too_and_only_for_its_run() {
    let (house, upstream) = open_with("", "  approval: {hold: {default: 200ms}}\n").await;
    let agent = house.agent("support", Speaks::Modern).await;
    refund(&agent, 5).await.unwrap().unwrap();
    let cards = house.parked(1).await;
    let id = cards[0]["id"].as_str().unwrap();
    let stranger = house.agent("other", Speaks::Modern).await;
    let foreign = stranger.call("approval_status", json!({"id": id})).await.unwrap();
    let unknown = stranger
        .call("approval_status", json!({"id": "apr_aaaaaaaaaaaaaaaaaaaaaaaaaa"}))
        .await
        .unwrap();
    assert_eq!(
        foreign.text.replace(id, "X"),
        unknown.text.replace("apr_aaaaaaaaaaaaaaaaaaaaaaaaaa", "X")
    );
    assert!(foreign.is_error());
    let waiting = agent.call("approval_status", json!({"id": id})).await.unwrap();
    assert!(waiting.says().contains("did NOT run"), "{}", waiting.text);
    house.decide(&cards[0], "approve", None).await;
    let collected = agent.call("approval_status", json!({"id": id})).await.unwrap();
    assert_eq!(collected.says(), r#"{"amount":5,"order":"o-1"}"#, "{}", collected.text);
    assert_eq!(upstream.calls("refund").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_attempts_make_one_card_and_one_execution() {
    let (house, upstream) = open_with("", "").await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let attempts = [refund(&agent, 7), refund(&agent, 7), refund(&agent, 7)];
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cards = house.parked(1).await;
    house.decide(&cards[0], "approve", None).await;
    for attempt in attempts {
        assert_eq!(attempt.await.unwrap().unwrap().says(), r#"{"amount":7,"order":"o-1"}"#);
    }
    assert_eq!(upstream.calls("refund").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_arguments_ask_again_and_a_wrong_digest_decides_nothing() {
    let (house, upstream) = open_with("", "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let (one, two) = (refund(&agent, 1), refund(&agent, 2));
    let cards = house.parked(2).await;
    let mut wrong = cards[0].clone();
    wrong["digest"] = cards[1]["digest"].clone();
    let (status, _) = house.decide(&wrong, "approve", None).await;
    assert!((400..500).contains(&status), "{status}");
    house.parked(2).await;
    for body in [
        json!({}),
        json!({"decision": "yes"}),
        json!({"decision": "approve"}),
        json!({"decision": "approve", "digest": cards[0]["digest"], "x": 1}),
    ] {
        let id = cards[0]["id"].as_str().unwrap();
        let (status, answer) =
            house.api("POST", &format!("/v1/approvals/{id}/decision"), Some(body)).await;
        assert!((400..500).contains(&status), "{status} {answer}");
    }
    house.parked(2).await;
    for card in &cards {
        assert_eq!(house.decide(card, "approve", None).await.0, 200);
    }
    assert_eq!(one.await.unwrap().unwrap().says(), r#"{"amount":1,"order":"o-1"}"#);
    assert_eq!(two.await.unwrap().unwrap().says(), r#"{"amount":2,"order":"o-1"}"#);
    let mut ran = upstream.calls("refund");
    ran.sort();
    assert_eq!(ran, [r#"{"amount":1,"order":"o-1"}"#, r#"{"amount":2,"order":"o-1"}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_decides_and_it_expires() {
    let (house, upstream) = open_with("  approval: {decideWithin: 1s}\n", "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let answer = refund(&agent, 1).await.unwrap().unwrap();
    assert!(answer.is_error());
    assert!(answer.says().contains("nobody decided"), "{}", answer.text);
    assert!(upstream.calls("refund").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_left_gets_nothing_run_for_it() {
    for speaks in ERAS {
        let (house, upstream) = open_with("", "").await;
        let agent = house.agent("support", speaks).await;
        let held = refund(&agent, 3);
        let cards = house.parked(1).await;
        held.abort();
        let _ = held.await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(upstream.calls("refund").is_empty());
        let repeat = refund(&agent, 3).await.unwrap().unwrap();
        assert_eq!(repeat.says(), r#"{"amount":3,"order":"o-1"}"#, "{}", repeat.text);
        assert_eq!(upstream.calls("refund").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_whose_caller_left_is_cancelled_where_policy_says_so() {
    let (house, upstream) = open_with("  approval: {onCallerGone: settle}\n", "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 3);
    let cards = house.parked(1).await;
    held.abort();
    let _ = held.await;
    house.parked(0).await;
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 409);
    assert!(upstream.calls("refund").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_9_all_cards_are_back_and_nothing_ran() {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let house = House::process(House::folder(&policy(&upstream.url, ""), "")).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held: Vec<_> = (0..5).map(|amount| refund(&agent, amount)).collect();
    let mut before = ids(&house.parked(5).await);
    let folder = house.kill().await;
    for call in held {
        let _ = call.await;
    }
    let house = House::process(folder).await;
    let cards = house.parked(5).await;
    let mut after = ids(&cards);
    before.sort();
    after.sort();
    assert_eq!(before, after);
    assert!(upstream.calls("refund").is_empty());
    let card = cards.iter().find(|card| card.to_string().contains("\\\"amount\\\":3")).unwrap();
    assert_eq!(house.decide(card, "approve", None).await.0, 200);
    let agent = house.agent("support", Speaks::Modern).await;
    assert_eq!(refund(&agent, 3).await.unwrap().unwrap().says(), r#"{"amount":3,"order":"o-1"}"#);
    assert_eq!(upstream.calls("refund").len(), 1);
}

fn ids(cards: &[Value]) -> Vec<String> {
    cards.iter().map(|card| card["id"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_changed_since_it_was_shown_does_not_run() {
    let (house, upstream) = open_with("", "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 3);
    let cards = house.parked(1).await;
    // The definition changes while the gateway is away.
    let folder = house.stop().await;
    let told = held.await.unwrap().unwrap();
    assert!(told.says().contains("did NOT run"), "a drain settles held calls: {}", told.text);
    upstream.set(|offer| offer.tools = offer.tools.replace("Does refund.", "Does something else."));
    let house = House::from(folder).await.unwrap();
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    let agent = house.agent("support", Speaks::Modern).await;
    let answer = refund(&agent, 3).await.unwrap().unwrap();
    assert!(answer.is_error() && answer.says().contains("changed"), "{}", answer.text);
    assert!(upstream.calls("refund").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_calls_are_capped() {
    let upstream = Upstream::start(Offer::tools(&["refund"])).await;
    let policy = policy(&upstream.url, "  limits: {parkedCalls: 2}\n");
    let house = House::start(&policy, "  approval: {hold: {default: 0s}}\n").await;
    let agent = house.agent("support", Speaks::Modern).await;
    for amount in 0..2 {
        assert!(refund(&agent, amount).await.unwrap().unwrap().says().contains("did NOT run"));
    }
    let third = refund(&agent, 2).await.unwrap().unwrap();
    assert!(third.is_error() && third.says().contains("has 2 calls"), "{}", third.text);
    // A repeat of a parked one is no new card.
    assert!(refund(&agent, 1).await.unwrap().unwrap().says().contains("did NOT run"));
    house.parked(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_calls_show_that_they_wait() {
    let (house, _upstream) = open_with("", "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let params = r#"{"name":"crm__refund","arguments":{"amount":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"t-1"}}"#;
    let held = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.raw("\"x\"", "tools/call", params).await })
    };
    let cards = house.parked(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    house.decide(&cards[0], "deny", Some("no")).await;
    let answer = held.await.unwrap().unwrap();
    assert_eq!(answer.content_type, "text/event-stream");
    assert_eq!(answer.json()["id"], "x");
    let first = &answer.notifications[0];
    assert_eq!(first["params"]["progressToken"], "t-1");
    let message = first["params"]["message"].as_str().unwrap();
    assert!(message.contains("waiting for approval `apr_"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_after_approval_is_never_repeated() {
    let (house, upstream) = open_with("", "").await;
    upstream.set(|offer| offer.behave = Behave::Close);
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 9);
    let cards = house.parked(1).await;
    house.decide(&cards[0], "approve", None).await;
    let answer = held.await.unwrap().unwrap();
    assert!(answer.is_error() && answer.says().contains("may have run"), "{}", answer.text);
    assert_eq!(upstream.calls("refund").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_nobody_to_ask_a_call_is_refused_at_once_where_policy_says_so() {
    let unattended = "  approval: {unattended: true, hold: {default: 0s}}\n";
    let (house, upstream) = open_with("  approval: {onNoApprover: deny}\n", unattended).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let answer = refund(&agent, 1).await.unwrap().unwrap();
    assert!(answer.is_error() && answer.says().contains("can be reached now"), "{}", answer.text);
    house.parked(0).await;
    assert!(!agent.call("crm__get", json!({})).await.unwrap().is_error());
    let (house, _upstream) = open_with("", unattended).await;
    let agent = house.agent("support", Speaks::Modern).await;
    assert!(refund(&agent, 1).await.unwrap().unwrap().says().contains("did NOT run"));
    house.parked(1).await;
    assert!(upstream.calls("refund").is_empty());
}
