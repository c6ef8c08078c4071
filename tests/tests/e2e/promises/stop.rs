//! The end of one run: all that is its own is over when the answer is there, and nothing else.

use super::{open, parked, start, text, until};
use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::approver::Approver;
use portcullis_tests::upstream::Behave;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::task::JoinHandle;

const PARKED: usize = 1_000;
const RUNNING: usize = 100;
/// Of those that are parked, how many are approved while the run is stopped.
const APPROVED: usize = 50;

type Held = JoinHandle<Result<Answer, String>>;

fn call(agent: &Agent, tool: &'static str, number: usize) -> Held {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call(tool, json!({"number": number})).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_one_of_eight_runs_leaves_seven_untouched() {
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    let operator = Approver::of(&house);
    let mut runs = Vec::new();
    for number in 0..8 {
        let (run, agent) = start(&operator, "support", Speaks::Modern).await;
        // The same call in all of them, and one of its own in each.
        let held = [call(&agent, "crm__refund", 100), call(&agent, "crm__refund", number)];
        runs.push((run, agent, held));
    }
    let before = parked(&operator, 16).await;
    let (stopped, agent, held) = runs.remove(3);
    let (status, ended) = operator.stop(&stopped, "enough").await.unwrap();
    assert_eq!((status, &ended["ended"]), (200, &json!([stopped])), "{ended}");
    for card in operator.cards("").await.unwrap() {
        let earlier = before.iter().find(|earlier| earlier["id"] == card["id"]).unwrap();
        if card["run"] == *stopped {
            assert_eq!((text(&card, "state"), text(&card, "detail")), ("stopped", "enough"));
        } else {
            assert_eq!(&card, earlier, "a card of another run was touched");
        }
    }
    for held in held {
        let told = held.await.unwrap().unwrap();
        assert!(told.is_error() && told.says().contains("enough"), "{}", told.text);
    }
    assert_eq!(agent.request("tools/list", json!({})).await.unwrap().status, 401);
    // The others wait on, are decided, and run.
    for (_, _, held) in &runs {
        assert!(held.iter().all(|held| !held.is_finished()));
    }
    for card in before.iter().filter(|card| card["run"] != *stopped) {
        assert_eq!(operator.decide(card, "approve").await.unwrap().0, 200);
    }
    for (_, agent, held) in runs {
        for held in held {
            let told = held.await.unwrap().unwrap();
            assert!(!told.is_error() && told.says().starts_with("{\"number\":"), "{}", told.text);
        }
        assert!(!agent.tools().await.unwrap().is_empty());
    }
    assert_eq!(upstream.calls("refund").len(), 14);
}

/// A run with many calls that wait and many under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_run_is_over_when_the_answer_is_there() {
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    upstream.set(|offer| offer.behave = Behave::Hang);
    let operator = Approver::of(&house);
    let (run, agent) = start(&operator, "support", Speaks::Modern).await;
    // Half of those that run were approved, the others need no approval.
    let mut held: Vec<Held> =
        (0..RUNNING / 2).map(|number| call(&agent, "crm__refund", PARKED + number)).collect();
    for card in parked(&operator, RUNNING / 2).await {
        assert_eq!(operator.decide(&card, "approve").await.unwrap().0, 200);
    }
    held.extend((0..RUNNING / 2).map(|number| call(&agent, "crm__get", number)));
    held.extend((0..PARKED).map(|number| call(&agent, "crm__refund", number)));
    let cards = parked(&operator, PARKED).await;
    let under_way = || upstream.calls("refund").len() + upstream.calls("get").len();
    until("the calls that run", async || (under_way() == RUNNING).then_some(())).await;

    let began = Instant::now();
    let (status, ended) = operator.stop(&run, "enough").await.unwrap();
    eprintln!("{PARKED} parked and {RUNNING} running calls were over in {:?}", began.elapsed());
    assert_eq!(status, 200, "{ended}");
    let sent = under_way();
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for card in operator.cards(&format!("run={run}")).await.unwrap() {
        *states.entry(text(&card, "state").to_owned()).or_default() += 1;
    }
    let due = [("stopped".to_owned(), PARKED), ("unknown".to_owned(), RUNNING / 2)];
    assert_eq!(states, BTreeMap::from(due));
    // Nothing of it can be woken any more, by nobody.
    for card in cards.iter().take(APPROVED) {
        assert_eq!(operator.decide(card, "approve").await.unwrap().0, 409);
    }
    assert_eq!(agent.call("crm__refund", json!({"number": 1})).await.unwrap().status, 401);
    for held in held {
        // Cut off, or told; never a result.
        if let Ok(told) = held.await.unwrap() {
            assert!(told.is_error() || told.result().is_null(), "{}", told.text);
        }
    }
    assert_eq!((sent, under_way()), (RUNNING, RUNNING), "a call was sent after the answer");
}

/// Approvals that race the end of their run: what started is known as such, the rest never starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_that_race_the_end_of_a_run_start_nothing_behind_its_back() {
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    let operator = Approver::of(&house);
    let (run, agent) = start(&operator, "support", Speaks::Modern).await;
    let held: Vec<Held> = (0..APPROVED).map(|number| call(&agent, "crm__refund", number)).collect();
    let cards = parked(&operator, APPROVED).await;
    let mut approving = Vec::new();
    for card in cards {
        let operator = operator.clone();
        approving.push(tokio::spawn(async move { operator.decide(&card, "approve").await }));
    }
    until("the first that runs", async || upstream.calls("refund").pop()).await;
    let (status, ended) = operator.stop(&run, "enough").await.unwrap();
    assert_eq!(status, 200, "{ended}");
    for approved in approving {
        let (status, answer) = approved.await.unwrap().unwrap();
        assert!(matches!(status, 200 | 409), "{answer}");
    }
    for held in held {
        drop(held.await.unwrap());
    }
    let ran = upstream.calls("refund");
    for card in operator.cards(&format!("run={run}")).await.unwrap() {
        let runs = ran.iter().filter(|arguments| **arguments == text(&card, "arguments")).count();
        let due = match text(&card, "state") {
            "done" => 1..=1,
            "unknown" => 0..=1,
            "stopped" | "revoked" => 0..=0,
            _ => panic!("it is not over: {card}"),
        };
        assert!(due.contains(&runs), "it ran {runs} times: {card}");
    }
}
