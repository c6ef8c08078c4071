//! Clients whose own user decides: the user is sent to the page, and what the client answers for
//! them decides nothing.

use super::Case;
use super::sdks::{DEFAULTS, PYTHON1, PYTHON2, TS1, TS2};
use super::stage::{Library, Stage, refund, refused};
use crate::approvals::{admins, decide};
use portcullis_tests::driver::Driver;
use serde_json::{Value, json};

const ACCEPTS: &[(&str, &str)] = &[("urls", "accept")];
const DECLINES: &[(&str, &str)] = &[("urls", "decline")];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("Python 2.x, its user decides", 5, decides(PYTHON2)),
        Case::new("modern TypeScript 2.x, its user decides", 5, decides(TS2)),
        Case::new("modern TypeScript 2.x, its user declines", 2, declines(TS2)),
        Case::new("Python 1.x, its user approves", 5, fails_and_repeats(PYTHON1)),
        Case::new("TypeScript 1.x, its user approves", 2, fails_and_repeats(TS1)),
    ]
}

async fn open(library: Library, settings: &'static [(&str, &str)]) -> (Stage, Driver) {
    let stage = Stage::open("  approval: {approvers: [user], user: bert}\n", &admins()).await;
    let driver = stage.driver(library, settings).await;
    (stage, driver)
}

/// Decides as the user when the client has answered for them and waits again, with its `calls`
/// in all; returns where the user had to be sent.
async fn user(stage: &Stage, calls: usize, decision: (&str, Value)) -> Value {
    stage.calls(calls).await;
    stage.attended(true).await;
    let card = stage.card().await;
    // That the client says yes is not that its user does.
    assert_eq!(stage.ran_so_far(), calls / 2 - 1);
    let (status, answer) = decide(&stage.house, "bert", &card, decision).await;
    assert_eq!(status, 200, "{answer}");
    page(stage, &card)
}

fn page(stage: &Stage, card: &Value) -> Value {
    json!([format!("{}/approve/{}", stage.house.admin, card["id"].as_str().unwrap())])
}

async fn decides(library: Library) {
    let (stage, mut driver) = open(library, ACCEPTS).await;
    let approves = user(&stage, 2, ("approve", json!({})));
    let (answer, page) = tokio::join!(refund(&mut driver, DEFAULTS), approves);
    assert_eq!(answer["asked"], page, "asked once: {answer}");
    stage.ran_once(&answer).await;
    let denies = user(&stage, 4, ("deny", json!({"reason": "not mine"})));
    let (answer, page) = tokio::join!(refund(&mut driver, DEFAULTS), denies);
    assert_eq!(answer["asked"], page, "asked once: {answer}");
    refused(&answer, "not mine");
    stage.ended_as(&["done", "denied"]).await;
}

/// A user who declines at the client ends the wait.
async fn declines(library: Library) {
    let (stage, mut driver) = open(library, DECLINES).await;
    let answer = refund(&mut driver, DEFAULTS).await;
    refused(&answer, "cancelled");
    assert_eq!(answer["asked"].as_array().map(Vec::len), Some(1), "{answer}");
    stage.nothing_ran();
    stage.one_card("cancelled").await;
}

/// Before 2026-07-28 the call fails with an error that names the page; the repeat collects.
async fn fails_and_repeats(library: Library) {
    let (stage, mut driver) = open(library, ACCEPTS).await;
    let failed = refund(&mut driver, DEFAULTS).await;
    assert_eq!(failed["code"], -32042, "{failed}");
    let card = stage.card().await;
    assert_eq!(failed["asked"], page(&stage, &card), "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("did NOT run"), "{failed}");
    let (status, answer) = decide(&stage.house, "bert", &card, ("approve", json!({}))).await;
    assert_eq!(status, 200, "{answer}");
    stage.nothing_ran();
    let answer = refund(&mut driver, DEFAULTS).await;
    stage.ran_once(&answer).await;
    assert_eq!(stage.tap.calls("crm__refund"), 2);
}
