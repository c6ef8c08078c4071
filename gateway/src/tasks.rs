//! Parked calls as tasks (extension `io.modelcontextprotocol/tasks`, SEP-2663): the caller is told
//! at once that its call waits, polls, and gets the answer whenever there is one.
//!
//! A task is its card: it is in the store before the caller hears of it, it survives restarts,
//! and it runs without a caller that waits. Its id is the card's, random and no authority: it
//! answers to the run that made the call and to no other.

mod follow;

use crate::answer::{Kind, WITHHELD, allowed_error, is_withheld, modern};
use crate::asked::Asked;
use crate::audit::time::rfc3339;
use crate::call::invalid;
use crate::mcp::answer::{self, MISSING_CAPABILITY, Remedy, STORE_UNAVAILABLE, tool_error};
use crate::mcp::era::Era;
use crate::mcp::sse::Body;
use crate::parked::{AttachError, Settlement, Ticket, task_life_ms};
use crate::record::{Ending, Record};
use crate::reply;
use crate::shared::Shared;
use bytes::Bytes;
use http::{Response, StatusCode};
use portcullis_policy::definition::Approver;
use portcullis_policy::json::quote;
use portcullis_policy::ledger::{Card, State, words};
use std::time::{Duration, UNIX_EPOCH};

pub(crate) use follow::Follow;

/// The identifier of the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// How often a caller should ask, in milliseconds.
const POLL_MS: u64 = 1_000;

const REQUIRED: &str =
    "{\"requiredCapabilities\":{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}}";

/// True if the request declares the extension.
pub(crate) fn declared(asked: &Asked) -> bool {
    asked.era == Era::Modern && asked.declares("extensions", EXTENSION)
}

/// Answers a call that waits with its task.
pub(crate) fn created(asked: &Asked, ticket: Ticket, mut record: Record) -> Response<Body> {
    record.card(ticket.id());
    record.finish(Ending::Parked);
    let card = ticket.card();
    let result = format!("{{\"resultType\":\"task\",{}", members(&asked.shared, &card, None));
    ticket.told_pending();
    reply::json(answer::result(&asked.call.id, result.as_bytes()))
}

/// `tasks/get`.
pub(crate) async fn get(asked: &Asked) -> Response<Body> {
    let id = match named(asked) {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    match asked.shared.parked.poll(&asked.caller(), &id).await {
        Ok((card, settlement)) => {
            let result = format!(
                "{{\"resultType\":\"complete\",{}",
                members(&asked.shared, &card, settlement.as_ref())
            );
            // A denial is said once more to whoever repeats the call.
            if settlement.is_some() && card.state() != State::Denied {
                asked.shared.parked.collected(card.id()).await;
            }
            reply::json(answer::result(&asked.call.id, result.as_bytes()))
        }
        Err(error) => refused(asked, &error),
    }
}

/// `tasks/cancel`: the card ends with its task. What runs already is broken off, and its outcome
/// is unknown.
pub(crate) async fn cancel(asked: &Asked) -> Response<Body> {
    let id = match named(asked) {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    match asked.shared.parked.cancel(&asked.caller(), &id).await {
        Ok(_) => acknowledged(asked),
        Err(error) => refused(asked, &error),
    }
}

/// `tasks/update`: nothing here asks for input, so what it brings is not looked at.
pub(crate) async fn update(asked: &Asked) -> Response<Body> {
    let id = match named(asked) {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    match asked.shared.parked.poll(&asked.caller(), &id).await {
        Ok(_) => acknowledged(asked),
        Err(error) => refused(asked, &error),
    }
}

/// The error for a request that needs the extension and does not declare it.
pub(crate) fn undeclared(asked: &Asked) -> Response<Body> {
    let text =
        "declare `io.modelcontextprotocol/tasks` among the client's extensions in this request";
    let body = answer::error(Some(&asked.call.id), MISSING_CAPABILITY, text, Some(REQUIRED));
    reply::error(StatusCode::BAD_REQUEST, body)
}

fn named(asked: &Asked) -> Result<String, Box<Response<Body>>> {
    if !declared(asked) {
        return Err(Box::new(undeclared(asked)));
    }
    let id = asked.call.params.value("taskId").and_then(|id| Some(id.text()?.into_owned()));
    id.ok_or_else(|| Box::new(invalid(asked, "`taskId` must be a string")))
}

fn refused(asked: &Asked, error: &AttachError) -> Response<Body> {
    match error {
        AttachError::Unknown => invalid(
            asked,
            "you have no such task, or it is too old; make the call itself, it asks again if it must",
        ),
        AttachError::Store(_) | AttachError::Stopping => {
            tracing::error!(%error, "a task could not be looked up");
            let text = "the approval store is unavailable; ask again later";
            reply::json(answer::error(Some(&asked.call.id), STORE_UNAVAILABLE, text, None))
        }
    }
}

fn acknowledged(asked: &Asked) -> Response<Body> {
    let result = format!("{{\"resultType\":\"complete\",\"_meta\":{}}}", crate::handshake::meta());
    reply::json(answer::result(&asked.call.id, result.as_bytes()))
}

// The members of a task, `_meta` last, and the closing brace.
fn members(shared: &Shared, card: &Card, settlement: Option<&Settlement>) -> String {
    let (status, says) = told(shared, card, settlement);
    let ended = settlement.map(|settlement| ended(card, settlement)).unwrap_or_default();
    let keep_ms = u64::try_from(shared.result_keep.as_millis()).unwrap_or(u64::MAX);
    let life_ms = task_life_ms(card, keep_ms);
    // The denial that a task can lift (SEP-2643); gone as soon as somebody lifted it.
    let envelope = if card.state() == State::Parked {
        "\"io.modelcontextprotocol/authorization\":{\"reason\":\"insufficient_authorization\",\"remediation\":\"available\",\"remediationHints\":[{\"type\":\"task\"}]},"
    } else {
        ""
    };
    format!(
        "\"taskId\":{id},\"status\":\"{status}\",\"statusMessage\":{},\"createdAt\":{},\"lastUpdatedAt\":{},\"ttlMs\":{life_ms},\"pollIntervalMs\":{POLL_MS}{ended},\"_meta\":{{{envelope}\"dev.portcullis/approval\":{{\"id\":{id}}}}}}}",
        quote(&says),
        quote(&wall(card.created_ms())),
        quote(&wall(card.updated_ms())),
        id = quote(card.id()),
    )
}

fn told(shared: &Shared, card: &Card, settlement: Option<&Settlement>) -> (&'static str, String) {
    match (card.state(), settlement) {
        (State::Parked, _) => {
            let mut says = words::waiting(card);
            if card.asked().approvers.contains(&Approver::User) {
                says.push_str(" at ");
                says.push_str(&shared.approve_url(card.id()));
            }
            ("working", says)
        }
        (State::Approved, _) => ("working", "approved, about to run".to_owned()),
        (State::Executing, _) => ("working", "approved and running".to_owned()),
        (State::Cancelled, _) => ("cancelled", "cancelled; it did not run".to_owned()),
        (_, Some(Settlement::Error { .. })) => {
            ("failed", "the server answered with an error".to_owned())
        }
        (_, Some(Settlement::Result { .. })) => ("completed", "it ran".to_owned()),
        (_, Some(Settlement::NotRun { .. })) => ("completed", "it did not run".to_owned()),
        (_, Some(Settlement::NotKept { .. })) => {
            ("completed", "it ran; its answer is gone".to_owned())
        }
        (_, Some(Settlement::Unknown { .. }) | None) => {
            ("completed", "outcome unknown, it may have run".to_owned())
        }
    }
}

// The member that holds the end of a task, after a comma; a cancelled one has none.
fn ended(card: &Card, settlement: &Settlement) -> String {
    if card.state() == State::Cancelled {
        return String::new();
    }
    let result = |result: &str| format!(",\"result\":{result}");
    let id = Some(card.id());
    match settlement {
        Settlement::Result { raw, .. } if is_withheld(raw) => {
            result(&tool_error(WITHHELD, Remedy::None, None))
        }
        Settlement::Result { raw, .. } => result(&text(&modern(raw, Kind::Tool))),
        Settlement::Error { raw } => {
            format!(",\"error\":{}", text(&allowed_error(raw, Era::Modern)))
        }
        Settlement::NotRun { text, .. } => result(&tool_error(text, Remedy::Unavailable, id)),
        Settlement::NotKept { text } | Settlement::Unknown { text } => {
            result(&tool_error(text, Remedy::None, None))
        }
    }
}

// Answers of servers were read as text before they came here.
fn text(raw: &Bytes) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

fn wall(ms: u64) -> String {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).map(rfc3339).unwrap_or_default()
}
