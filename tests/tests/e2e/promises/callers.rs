//! Callers that give up, die, come back or wait long, and what becomes of their calls.

use super::{ERAS, open, policy, refund, text, until};
use portcullis_tests::agent::Speaks;
use portcullis_tests::approver::Approver;
use portcullis_tests::house::House;
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than a call may take.
const LONG: Duration = Duration::from_millis(1_300);

/// Waits until the card of `id` is as `there` says.
async fn card(operator: &Approver, id: &str, there: impl Fn(&Value) -> bool) -> Value {
    until("that card", async || {
        let card = operator.card(id).await.unwrap()?;
        there(&card).then_some(card)
    })
    .await
}

async fn only(operator: &Approver) -> Value {
    until("one card", async || {
        let cards = operator.cards("state=parked").await.unwrap();
        (cards.len() == 1).then(|| cards[0].clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_gives_up_and_tries_again_has_one_card_and_one_run() {
    for speaks in ERAS {
        let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
        let operator = Approver::of(&house);
        let agent = house.agent("support", speaks).await;
        let mut attempt = refund(&agent, 7);
        let id = text(&only(&operator).await, "id").to_owned();
        for _ in 0..2 {
            attempt.abort();
            card(&operator, &id, |card| card["unattended"] == true).await;
            attempt = refund(&agent, 7);
            card(&operator, &id, |card| card["unattended"] == false).await;
        }
        assert_eq!(operator.decide(&only(&operator).await, "approve").await.unwrap().0, 200);
        assert_eq!(attempt.await.unwrap().unwrap().says(), r#"{"amount":7}"#);
        assert_eq!(operator.cards("").await.unwrap().len(), 1);
        assert_eq!(upstream.calls("refund").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_card_of_a_caller_that_died_ends_with_its_time_and_says_why() {
    for speaks in ERAS {
        let (house, upstream) = open(&[("support", "decideWithin: 1s")]).await;
        let operator = Approver::of(&house);
        let agent = house.agent("support", speaks).await;
        let dies = refund(&agent, 7);
        let id = text(&only(&operator).await, "id").to_owned();
        dies.abort();
        card(&operator, &id, |card| card["state"] == "expired").await;
        // Nobody said no, so nobody is told that somebody did.
        let told = refund(&agent, 8).await.unwrap().unwrap().says();
        assert!(told.contains("nobody decided") && !told.contains("denied"), "{told}");
        assert!(upstream.calls("refund").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_took_goes_to_the_repeat_and_nothing_runs_again() {
    for speaks in ERAS {
        let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
        upstream.set(|offer| offer.call_delay = Duration::from_millis(300));
        let operator = Approver::of(&house);
        let agent = house.agent("support", speaks).await;
        let fails = refund(&agent, 7);
        let parked = only(&operator).await;
        assert_eq!(operator.decide(&parked, "approve").await.unwrap().0, 200);
        until("the run", async || (upstream.calls("refund").len() == 1).then_some(())).await;
        fails.abort();
        card(&operator, text(&parked, "id"), |card| card["state"] == "done").await;
        let repeat = refund(&agent, 7).await.unwrap().unwrap();
        assert_eq!(repeat.says(), r#"{"amount":7}"#, "{}", repeat.text);
        assert_eq!(upstream.calls("refund").len(), 1);
        // It is handed over once. Whoever wants more asks again.
        let again = refund(&agent, 7);
        assert_ne!(only(&operator).await["id"], parked["id"]);
        assert_eq!(upstream.calls("refund").len(), 1);
        again.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_after_a_restart_waits_for_its_caller() {
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 7);
    let before = only(&Approver::of(&house)).await;
    let house = House::process(house.kill().await).await;
    drop(held);
    let operator = Approver::of(&house);
    let after = only(&operator).await;
    assert_eq!((&after["id"], &after["unattended"]), (&before["id"], &Value::Bool(true)));
    let (status, approved) = operator.decide(&after, "approve").await.unwrap();
    assert_eq!((status, text(&approved, "state")), (200, "approved"));
    // Another call comes and goes meanwhile.
    let agent = house.agent("support", Speaks::Modern).await;
    let other = refund(&agent, 8);
    let parked = only(&operator).await;
    assert_eq!(operator.decide(&parked, "approve").await.unwrap().0, 200);
    assert_eq!(other.await.unwrap().unwrap().says(), r#"{"amount":8}"#);
    assert_eq!(upstream.calls("refund"), [r#"{"amount":8}"#]);
    assert_eq!(refund(&agent, 7).await.unwrap().unwrap().says(), r#"{"amount":7}"#);
    assert_eq!(upstream.calls("refund"), [r#"{"amount":8}"#, r#"{"amount":7}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_costs_a_call_nothing_of_its_own_time() {
    let upstream = Upstream::start(Offer::tools(&["refund"])).await;
    upstream.set(|offer| offer.call_delay = Duration::from_millis(500));
    let policy = policy(&upstream.url, &[("support", "decideWithin: 10m")]);
    let policy = policy.replace("spec: {http:", "spec: {callTimeout: 1s, http:");
    let house = House::start(&policy, "").await;
    let operator = Approver::of(&house);
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 7);
    let parked = only(&operator).await;
    sleep(LONG).await;
    assert_eq!(operator.decide(&parked, "approve").await.unwrap().0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":7}"#);
}
