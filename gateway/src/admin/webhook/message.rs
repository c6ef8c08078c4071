//! What a webhook is sent.

use super::super::Api;
use super::super::card::Sight;
use super::super::runs::wall;
use super::slack;
use crate::config::{Webhook, WebhookFormat};
use crate::store::EventRow;
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, State};
use serde::Serialize;
use serde_json::value::RawValue;

/// Longest arguments that are sent along, in bytes; longer ones are to be looked at on the page.
pub(super) const ARGUMENTS_BYTES_MAX: usize = 32 * 1024;
/// How much of its digest names a message, in hex digits.
const ID_DIGITS: usize = 32;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The same each time that it is sent.
    pub(super) id: String,
    pub(super) body: String,
}

#[derive(Serialize)]
struct Body<'a> {
    /// Such as `approval.parked`.
    #[serde(rename = "type")]
    kind: String,
    /// When it happened.
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    /// The card as it is at the moment of sending, without what is secret.
    approval: Box<RawValue>,
    /// Where a person decides it.
    url: &'a str,
}

/// What is sent of an event; none if there is no sense in it any more.
pub(super) fn message(
    api: &Api,
    webhook: &Webhook,
    (row, state): (&EventRow, State),
    card: &Card,
) -> Option<Message> {
    let number = row.id.to_be_bytes();
    let id = Digest::of_parts(&[webhook.name.as_bytes(), &number, card.id().as_bytes()]);
    let id = format!("msg_{}", id.short(ID_DIGITS));
    let url = format!("{}/approve/{}", api.url, card.id());
    let body = match webhook.format {
        WebhookFormat::Json => json(api, (row, state), card, &url)?,
        WebhookFormat::Slack => slack::body(api, state, card, &url)?,
    };
    Some(Message { id, body })
}

fn json(api: &Api, (row, state): (&EventRow, State), card: &Card, url: &str) -> Option<String> {
    let mut view = api.seen(card, Sight::Masked);
    if card.arguments().len() > ARGUMENTS_BYTES_MAX {
        view.leave_arguments_out();
    }
    let body = Body {
        kind: format!("approval.{}", state.as_str()),
        timestamp: wall(row.at_ms),
        data: Data { approval: serde_json::value::to_raw_value(&view).ok()?, url },
    };
    serde_json::to_string(&body).ok()
}
