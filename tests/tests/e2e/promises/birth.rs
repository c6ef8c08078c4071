//! Decisions that come as soon as a card is there: none of them is lost.

use super::{open, text};
use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::approver::Approver;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const ROUNDS: usize = 500;
/// Agents that call side by side.
const AGENTS: usize = 10;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

// Decides whatever is there the moment the list tells of it: every third is denied.
async fn decides(operator: Approver) {
    let mut since = String::new();
    let mut decided = 0;
    while decided < ROUNDS {
        let path = format!("/v1/approvals?state=parked&wait=60{since}");
        let (status, list) = operator.ask("GET", &path, None).await.unwrap();
        assert_eq!(status, 200, "{list}");
        since = format!("&since={}", text(&list, "revision"));
        let mut deciding = JoinSet::new();
        for card in list["items"].as_array().unwrap().clone() {
            let operator = operator.clone();
            deciding.spawn(async move { operator.decide(&card, verdict(&card)).await.unwrap() });
        }
        let answers = deciding.join_all().await;
        assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
        decided += answers.len();
    }
}

fn number(card: &Value) -> usize {
    let digits = text(card, "arguments").trim_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap()
}

fn verdict(card: &Value) -> &'static str {
    if number(card).is_multiple_of(3) { "deny" } else { "approve" }
}

async fn calls(agent: Agent, numbers: Vec<usize>) {
    for number in numbers {
        let call = agent.call("crm__refund", json!({"number": number}));
        let answer = timeout(ANSWER_WITHIN, call).await.expect("its decision was lost").unwrap();
        let denied = number.is_multiple_of(3);
        assert_eq!(answer.is_error(), denied, "{}", answer.text);
        let due = if denied { "denied" } else { "{\"number\":" };
        assert!(answer.says().contains(due), "{}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_at_the_birth_of_a_card_reaches_its_caller() {
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    let operator = Approver::of(&house);
    let mut calling = JoinSet::new();
    for part in 0..AGENTS {
        let speaks = [Speaks::Modern, Speaks::Legacy("2025-11-25")][part % 2].clone();
        let agent = house.agent("support", speaks).await;
        calling.spawn(calls(agent, (part..ROUNDS).step_by(AGENTS).collect()));
    }
    tokio::join!(decides(operator.clone()), calling.join_all());
    let cards = operator.cards("").await.unwrap();
    assert_eq!(cards.len(), ROUNDS);
    for card in &cards {
        let due = if verdict(card) == "deny" { "denied" } else { "done" };
        assert_eq!(text(card, "state"), due, "{card}");
    }
    assert_eq!(upstream.calls("refund").len(), ROUNDS - ROUNDS.div_ceil(3));
    let mut waited: Vec<u64> = cards.iter().map(waited_ms).collect();
    waited.sort_unstable();
    eprintln!(
        "{ROUNDS} decisions, on record {} ms after the call at the fastest, {} ms in the middle",
        waited[0],
        waited[ROUNDS / 2]
    );
}

// From the call to the decision, by the card's own times.
fn waited_ms(card: &Value) -> u64 {
    let ms = |time: &str| -> u64 {
        let (_, clock) = time.split_once('T').unwrap();
        let parts: Vec<f64> =
            clock.trim_end_matches('Z').split(':').map(|part| part.parse().unwrap()).collect();
        ((parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]) * 1000.0).round() as u64
    };
    // Past midnight the clock begins anew.
    ms(text(&card["decision"], "at")).saturating_sub(ms(text(card, "created")))
}
