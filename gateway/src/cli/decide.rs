//! `portcullis approve` and `deny`: what is decided is what was shown.

use super::card::Card;
use super::door::{Admin, DoorError};
use super::screen::{complain, plain, print};
use super::{ApproveArgs, DenyArgs, Exit};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, stdin};

pub(super) async fn approve(args: &ApproveArgs) -> Exit {
    finish(approved(args).await)
}

pub(super) async fn deny(args: &DenyArgs) -> Exit {
    finish(denied(args).await)
}

fn finish(result: Result<Exit, DoorError>) -> Exit {
    result.unwrap_or_else(|error| {
        complain(&error.to_string());
        error.exit()
    })
}

async fn approved(args: &ApproveArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let card = card(&admin, &args.id).await?;
    print(&card.shown());
    if card.state != "parked" {
        complain(&card.ended());
        return Ok(Exit::Finding);
    }
    if !card.is_whole() {
        complain("the digest is not that of the arguments shown, so nothing was decided");
        return Ok(Exit::Finding);
    }
    if !args.yes && stdin().is_terminal() && !confirmed() {
        complain("nothing was decided");
        return Ok(Exit::Finding);
    }
    let body = json!({"decision": "approve", "digest": card.digest});
    decided(&admin, &card, &body, "approved; it runs once, as soon as its caller collects it").await
}

async fn denied(args: &DenyArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let card = card(&admin, &args.id).await?;
    print(&card.shown());
    let mut body = json!({"decision": "deny", "digest": card.digest});
    if let (false, Some(body)) = (args.message.is_empty(), body.as_object_mut()) {
        body.insert("reason".to_owned(), Value::from(args.message.as_str()));
    }
    decided(&admin, &card, &body, "denied; it will not run").await
}

async fn card(admin: &Admin, id: &str) -> Result<Card, DoorError> {
    // The id becomes part of a path, so nothing but an id may.
    let plain_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain_id {
        return Err(DoorError::Refused(format!("`{}` is not the id of an approval", plain(id))));
    }
    let text = admin.get(&format!("/v1/approvals/{id}"), &[]).await?;
    serde_json::from_str(&text).map_err(|error| admin.foreign(&error))
}

async fn decided(admin: &Admin, card: &Card, body: &Value, done: &str) -> Result<Exit, DoorError> {
    let path = format!("/v1/approvals/{}/decision", card.id);
    let answer = admin.post(&path, body.to_string()).await?;
    match answer.status {
        200 => Ok(print(&format!("{}\n", outstanding(&answer.text).as_deref().unwrap_or(done)))),
        409 => {
            let settled: Card =
                serde_json::from_str(&answer.text).map_err(|error| admin.foreign(&error))?;
            complain(&settled.ended());
            Ok(Exit::Finding)
        }
        _ => Err(answer.refused()),
    }
}

// What is missing of an approval that needs several.
fn outstanding(card: &str) -> Option<String> {
    let card: Value = serde_json::from_str(card).ok()?;
    if card.get("state")? != "parked" {
        return None;
    }
    let votes = card.get("votes")?.as_array()?.len();
    let needed = card.get("needed")?;
    Some(format!("your approval counts; {votes} of {needed} are there, and it runs with the last"))
}

fn confirmed() -> bool {
    print("Let it run, once, exactly as shown? Type `yes`:");
    let mut line = String::new();
    stdin().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("yes")
}
