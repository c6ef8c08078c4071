//! What changes under a card between its question and its run: policy, server, names.

use super::{open, policy, refund, start, text, until};
use portcullis_tests::agent::Speaks;
use portcullis_tests::approver::Approver;
use portcullis_tests::house::{House, binary};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use tokio::process::Command;

const PATIENT: &str = "decideWithin: 10m";

async fn parked(house: &House) -> Value {
    let operator = Approver::of(house);
    until("the card", async || operator.cards("state=parked").await.unwrap().pop()).await
}

/// The policy of a gateway is another one when it starts again.
async fn restarted_on(change: impl Fn(&str) -> String) -> (u16, String, usize) {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let before = policy(&upstream.url, &[("support", PATIENT)]);
    let house = House::start(&before, "").await;
    let held = refund(&house.agent("support", Speaks::Modern).await, 7);
    let card = parked(&house).await;
    let folder = house.stop().await;
    drop(held);
    folder.write("policy/policy.yaml", &change(&before));
    let house = House::from(folder).await.unwrap();
    let (status, _) = Approver::of(&house).decide(&card, "approve").await.unwrap();
    let agent = house.agent("support", Speaks::Modern).await;
    let told = refund(&agent, 7).await.unwrap().unwrap();
    assert!(told.is_error(), "{}", told.text);
    let status_tool = agent.call("approval_status", json!({"id": card["id"]})).await.unwrap();
    assert!(status_tool.is_error(), "{}", status_tool.text);
    (status, told.says(), upstream.calls("refund").len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_policy_takes_away_before_the_run_does_not_run() {
    let denied =
        |before: &str| before.replace("autoApprove: [get]", "autoApprove: [get], deny: [refund]");
    let not_granted = |before: &str| before.replace("[get, refund]", "[get]");
    let disabled = |before: &str| before.replace("spec: {http:", "spec: {enabled: false, http:");
    for told in
        [restarted_on(denied).await, restarted_on(not_granted).await, restarted_on(disabled).await]
    {
        let (status, says, ran) = told;
        assert_eq!((status, ran), (200, 0), "{says}");
        assert!(says.contains("not available") || says.contains("not there"), "{says}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_of_a_call_whose_server_is_gone_runs_nothing_and_says_so() {
    let (house, upstream) = open(&[("support", PATIENT)]).await;
    let held = refund(&house.agent("support", Speaks::Modern).await, 7);
    let card = parked(&house).await;
    drop(upstream);
    assert_eq!(Approver::of(&house).decide(&card, "approve").await.unwrap().0, 200);
    let told = held.await.unwrap().unwrap();
    let says = told.says().to_lowercase();
    assert!(told.is_error() && says.contains("did not run"), "{}", told.text);
    let card = Approver::of(&house).card(text(&card, "id")).await.unwrap().unwrap();
    let ended = (text(&card, "state"), text(&card, "outcome"));
    assert!(matches!(ended, ("done", "not_sent") | ("revoked", _)), "{card}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tool_name_on_two_servers_is_two_things() {
    let one = Upstream::start(Offer::tools(&["refund"])).await;
    let two = Upstream::start(Offer::tools(&["refund"])).await;
    let text = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund]}}\n    - {{server: shop, allow: [refund], autoApprove: [refund]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: shop}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        one.url, two.url
    );
    let house = House::start(&text, "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let free = agent.call("shop__refund", json!({"amount": 1})).await.unwrap();
    assert_eq!(free.says(), r#"{"amount":1}"#);
    let held = refund(&agent, 1);
    let card = parked(&house).await;
    assert_eq!((&card["server"], &card["tool"]), (&json!("crm"), &json!("refund")));
    assert!(!agent.call("shop__refund", json!({"amount": 1})).await.unwrap().is_error());
    assert!(one.calls("refund").is_empty() && !held.is_finished());
    assert_eq!(Approver::of(&house).decide(&card, "approve").await.unwrap().0, 200);
    assert!(!held.await.unwrap().unwrap().is_error());
    assert_eq!((one.calls("refund").len(), two.calls("refund").len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_agent_that_is_full_keeps_nobody_else_out() {
    let (house, _upstream) = open(&[("support", PATIENT), ("other", PATIENT)]).await;
    let folder = house.kill().await;
    let policy = std::fs::read_to_string(folder.path().join("policy/policy.yaml")).unwrap();
    folder.write("policy/policy.yaml", &policy.replace("parkedCalls: 20000", "parkedCalls: 2"));
    let house = House::process(folder).await;
    let operator = Approver::of(&house);
    let (support, other) =
        (house.agent("support", Speaks::Modern).await, house.agent("other", Speaks::Modern).await);
    let held: Vec<_> = (0..2).map(|amount| refund(&support, amount)).collect();
    until("two cards", async || {
        (operator.cards("state=parked").await.unwrap().len() == 2).then_some(())
    })
    .await;
    let told = refund(&support, 2).await.unwrap().unwrap();
    assert!(told.is_error() && told.says().contains("has 2 calls"), "{}", told.text);
    // Another run of the same agent is the same agent.
    let (_, again) = start(&operator, "support", Speaks::Modern).await;
    assert!(refund(&again, 3).await.unwrap().unwrap().says().contains("has 2 calls"));
    let free = refund(&other, 1);
    let card = until("the other card", async || {
        operator.cards("state=parked&agent=other").await.unwrap().pop()
    })
    .await;
    assert_eq!(operator.decide(&card, "approve").await.unwrap().0, 200);
    assert!(!free.await.unwrap().unwrap().is_error());
    // Room comes back with each end.
    let card = operator.cards("state=parked&agent=support").await.unwrap().remove(0);
    assert_eq!(operator.decide(&card, "deny").await.unwrap().0, 200);
    let fits = refund(&support, 2);
    until("the third card", async || {
        (operator.cards("state=parked&agent=support").await.unwrap().len() == 2).then_some(())
    })
    .await;
    held.iter().chain([&fits]).for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_would_approve_by_itself_can_be_written() {
    for approval in [
        "onTimeout: approve",
        "onExpire: approve",
        "default: approve",
        "decideWithin: 10m, thenApprove: true",
        "onNoApprover: approve",
        "onNoApprover: allow",
        "onCallerGone: run",
        "approvers: [anyone]",
        "approvers: [self]",
        "decideWithin: 0s",
        "useWithin: forever",
    ] {
        let folder = House::folder(&policy("http://127.0.0.1:1", &[("support", approval)]), "");
        let mut check = Command::new(binary());
        let output = check.args(["check", "policy"]).current_dir(folder.path()).output().await;
        let output = output.unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("policy.yaml:"), "{approval}: {said}");
        assert!(House::from(folder).await.is_err(), "{approval}");
    }
}
