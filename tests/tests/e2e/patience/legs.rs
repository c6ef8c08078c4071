//! Modern clients whose timer nothing restarts: they are sent away and come back with a new one,
//! all within one call of their user.

use super::Case;
use super::sdks::{DEFAULTS, PROGRESS, PYTHON2, TS2};
use super::stage::{Library, PAST_A_MINUTE, Stage, refund, refused};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    let longer = PAST_A_MINUTE + Duration::from_secs(8);
    vec![
        Case::new("modern TypeScript 2.x", 70, comes_back(TS2, longer)),
        Case::new("modern TypeScript 2.x denied", 62, is_denied(TS2)),
        Case::new("Python 2.x", 62, comes_back(PYTHON2, PAST_A_MINUTE)),
    ]
}

async fn comes_back(library: Library, wait: Duration) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    let (answer, ()) = tokio::join!(refund(&mut driver, DEFAULTS), stage.approve_after(wait));
    stage.ran_once(&answer).await;
    came_back(&stage);
    stage.met(library, false);
}

/// With a progress token, another one for each request.
async fn is_denied(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    let denies = async {
        stage.card().await;
        tokio::time::sleep(PAST_A_MINUTE).await;
        stage.decide("deny", Some("over budget this month")).await;
    };
    let (answer, ()) = tokio::join!(refund(&mut driver, PROGRESS), denies);
    refused(&answer, "over budget this month");
    stage.nothing_ran();
    stage.one_card("denied").await;
    came_back(&stage);
    stage.met(library, true);
}

/// The client was sent away once and came back with a request of its own.
fn came_back(stage: &Stage) {
    let calls = stage.tap.requests("tools/call");
    assert_eq!(calls.len(), 2);
    for member in ["/id", "/params/_meta/progressToken"] {
        let said: Vec<String> =
            calls.iter().filter_map(|call| Some(call.pointer(member)?.to_string())).collect();
        let distinct: BTreeSet<&String> = said.iter().collect();
        assert_eq!(distinct.len(), said.len(), "{member} comes twice: {said:?}");
    }
    let brings = |call: &serde_json::Value| call["params"]["requestState"].is_string();
    assert_eq!(calls.iter().map(brings).collect::<Vec<_>>(), [false, true]);
}
