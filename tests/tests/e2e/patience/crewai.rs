//! CrewAI's rules: 30 s a call whatever arrives, three attempts, 1 s and 2 s apart.

use super::Case;
use super::stage::{Library, Stage, refund, told};
use std::time::Duration;

/// It does not give itself a name, so it has that of the SDK.
const CREWAI: Library = Library::new("crewai-like", "mcp", "python-httpx");
const NAMED: Library = Library::new("crewai-like", "crewai", "python-httpx");

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("CrewAI, a session for each attempt", 58, a_session_for_each_attempt()),
        Case::new("CrewAI, one session for all attempts", 35, one_session_for_all_attempts()),
        Case::new("CrewAI by name", 25, by_name()),
    ]
}

/// The first attempt ends by its timer, which closes its session. That teaches the gateway how long
/// this client waits: the second one is told in time, so it is the last, and the repeat collects.
async fn a_session_for_each_attempt() {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(CREWAI, &[("sessions", "attempt")]).await;
    told(&refund(&mut driver, "{}").await);
    assert_eq!(stage.tap.calls("crm__refund"), 2);
    stage.nothing_ran();
    stage.decide("approve", None).await;
    let answer = refund(&mut driver, "{}").await;
    stage.ran_once(&answer).await;
    assert_eq!(stage.tap.calls("crm__refund"), 3);
    // One for the list, one for each attempt.
    assert_eq!(stage.tap.count("initialize"), 4);
    stage.met(CREWAI, false);
}

/// Approved while the second attempt waits. The first one is still open for the gateway: this
/// client ends its wait without a word.
async fn one_session_for_all_attempts() {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(CREWAI, &[("sessions", "call")]).await;
    let approval = stage.approve_after(Duration::from_secs(35));
    let (answer, ()) = tokio::join!(refund(&mut driver, "{}"), approval);
    stage.ran_once(&answer).await;
    assert_eq!(stage.tap.calls("crm__refund"), 2);
    assert_eq!(stage.tap.count("initialize"), 2);
    stage.met(CREWAI, false);
}

/// With a name that the gateway knows it is told before its timer ends, so it does not repeat.
async fn by_name() {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(NAMED, &[("name", "crewai")]).await;
    told(&refund(&mut driver, "{}").await);
    assert_eq!(stage.tap.calls("crm__refund"), 1);
    stage.nothing_ran();
    stage.decide("approve", None).await;
    let answer = refund(&mut driver, "{}").await;
    stage.ran_once(&answer).await;
    stage.met(NAMED, false);
}
