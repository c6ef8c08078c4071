//! The OpenAI Agents SDK on both generations of the Python SDK: 5 s a call unless it is told
//! otherwise, and a model that is asked to try again.

use super::Case;
use super::sdks::{held, held_on};
use super::stage::{Library, Stage, ran, refund};
use serde_json::Value;

/// It does not give itself a name, so it has that of the SDK.
const ON_1: Library = Library::new("agents1", "mcp", "python-httpx");
const ON_2: Library = Library::new("agents2", "mcp", "python-httpx2");

const TIMER_OFF: &str = r#"{"timeout_s": 0}"#;

pub(super) fn cases() -> Vec<Case> {
    let hold = "  approval: {hold: 10m}\n";
    vec![
        Case::new("OpenAI Agents on mcp 1.x", 15, repeats(ON_1)),
        Case::new("OpenAI Agents on mcp 2.x", 15, repeats(ON_2)),
        Case::new("OpenAI Agents on mcp 1.x that retries", 10, retries(ON_1)),
        Case::new("OpenAI Agents on mcp 2.x that retries", 10, retries(ON_2)),
        Case::new("OpenAI Agents on mcp 1.x while it is away", 5, silent(ON_1)),
        Case::new("OpenAI Agents on mcp 2.x while it is away", 5, away(ON_2)),
        Case::new("OpenAI Agents on mcp 1.x without timer", 62, held(ON_1, TIMER_OFF, hold)),
        Case::new("OpenAI Agents on mcp 2.x without timer", 62, held_by_the_operator()),
    ]
}

/// What the model is shown when the time is up: not even that it was the time.
fn gave_up(answer: &Value) {
    assert_eq!(answer["text"], "An error occurred while running the tool. Please try again.");
}

/// The model repeats the call twice, and the third one is there when it is approved.
async fn repeats(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    for attempt in 1..=2 {
        gave_up(&refund(&mut driver, "{}").await);
        assert_eq!(stage.tap.calls("crm__refund"), attempt);
        stage.one_card("parked").await;
    }
    let approves = async {
        stage.calls(3).await;
        stage.attended(true).await;
        stage.nothing_ran();
        stage.decide("approve", None).await;
    };
    let (answer, ()) = tokio::join!(refund(&mut driver, "{}"), approves);
    stage.ran_once(&answer).await;
    stage.met(library, false);
}

/// With `max_retry_attempts` the SDK itself repeats the call, in another session.
async fn retries(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[("retries", "3")]).await;
    let approves = async {
        stage.calls(2).await;
        stage.attended(true).await;
        stage.nothing_ran();
        stage.decide("approve", None).await;
    };
    let (answer, ()) = tokio::join!(refund(&mut driver, "{}"), approves);
    stage.ran_once(&answer).await;
}

/// In the modern era giving up closes the stream, so nothing runs until somebody is there again. And
/// it teaches the gateway to send this client away early, which it does not know: it calls through a
/// part of the SDK that follows no rounds, so that fails too. Nothing is lost by it.
async fn away(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    gave_up(&refund(&mut driver, "{}").await);
    stage.attended(false).await;
    stage.decide("approve", None).await;
    stage.one_card("approved").await;
    stage.nothing_ran();
    let answer = refund(&mut driver, "{}").await;
    stage.ran_once(&answer).await;
    gave_up(&refund(&mut driver, TIMER_OFF).await);
    assert_eq!(stage.tap.calls("crm__refund"), 3);
    stage.decide("approve", None).await;
    let answer = refund(&mut driver, TIMER_OFF).await;
    ran(&answer);
    stage.ended_as(&["done", "done"]).await;
}

async fn held_by_the_operator() {
    let spec = "  approval: {hold: {clients: {mcp: 10m}}}\n";
    held_on(Stage::open("", spec).await, ON_2, TIMER_OFF).await;
}

/// In the older era it says nothing and leaves its stream open: what is approved then runs, and the
/// repeat gets what the first call could not read.
async fn silent(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    gave_up(&refund(&mut driver, "{}").await);
    stage.decide("approve", None).await;
    let answer = refund(&mut driver, "{}").await;
    stage.ran_once(&answer).await;
}
