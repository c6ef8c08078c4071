//! `POST /v1/decisions`: many decisions at once, one result for each. What is not named stays as
//! it is, and a name that comes twice decides nothing at all.
//!
//! Takes kagent's answer to its own approval request as it is, in both forms that kagent has
//! (`https://kagent.dev/extensions/hitl/v1` and the older `decision_type`). Those carry one name
//! a call and no digest, so the name holds the digest: see [`handle`].

use super::Api;
use super::answer::{BodyError, Fault, json_body, raw};
use super::approvals::find;
use super::card::CardView;
use super::decision::{Decided, decided};
use crate::decisions::{Wish, WishedChoice};
use crate::identity::Admin;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::canonical::canonical;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::Card;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Most decisions in one request.
pub const BATCH_MAX: usize = 100;

/// Where a message of kagent carries its answer.
const KAGENT: &str = "https://kagent.dev/extensions/hitl/v1";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Batch")]
pub(super) struct Batch {
    decisions: Vec<Wish>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KagentAnswer")]
pub(super) struct Approvals {
    #[serde(rename = "type")]
    kind: String,
    approvals: Vec<Approval>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KagentChoice")]
struct Approval {
    id: String,
    approved: bool,
    rejection_reason: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KagentOlderAnswer")]
pub(super) struct Older {
    decision_type: String,
    #[serde(default)]
    decisions: BTreeMap<String, OlderChoice>,
    #[serde(default)]
    rejection_reasons: BTreeMap<String, String>,
    rejection_reason: Option<String>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum OlderChoice {
    Approve,
    Reject,
}

/// What a batch may be written as.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "Decisions")]
#[expect(dead_code, reason = "for its schema")]
pub(super) enum Written {
    /// Decisions.
    Own(Batch),
    /// kagent's answer.
    Kagent(Approvals),
    /// Its older answer.
    KagentOlder(Older),
    /// A message of kagent that carries one of these, in `metadata` or `data`.
    Carried(Map<String, Value>),
}

/// kagent's request for approval.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KagentRequest")]
pub(super) struct Kagent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    hint: &'static str,
    tools: Vec<KagentTool<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct KagentTool<'a> {
    id: String,
    call_id: &'a str,
    name: &'a str,
    #[schemars(with = "Option<Map<String, Value>>")]
    args: Option<Box<RawValue>>,
}

/// What became of one decision.
#[derive(Serialize, JsonSchema)]
struct Done<'a> {
    id: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<CardView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<BodyError<'a>>,
}

/// One result for each decision, in their order.
#[derive(Serialize, JsonSchema)]
pub(super) struct Results {
    #[schemars(with = "Vec<Done>")]
    results: Vec<Box<RawValue>>,
}

/// The name of a card for those who answer with a name alone: its id and the digest of what is
/// shown with it.
fn handle(card: &Card) -> String {
    format!("{}.{}", card.id(), card.digest().hex())
}

/// Cards as kagent's request for approval (`https://kagent.dev/extensions/hitl/v1`), to be put
/// beside what answers it. What a reader may not see it is not asked.
pub(super) fn kagent<'a>(cards: impl Iterator<Item = &'a Card>, admin: &Admin) -> Kagent<'a> {
    let shown = |card: &&Card| card.asked().secret.is_empty() || admin.may_decide();
    let tool = |card: &'a Card| KagentTool {
        id: handle(card),
        call_id: card.id(),
        name: &card.asked().exposed,
        // Arguments are an object in canonical form, so they are JSON.
        args: RawValue::from_string(card.arguments().to_owned()).ok(),
    };
    Kagent {
        kind: "tool_approval_request",
        hint: "Calls that wait for an approval; nothing of them has run.",
        tools: cards.filter(shown).map(tool).collect(),
    }
}

pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let wishes = read(&headers, &body)?;
    if !admin.may_decide() {
        return Err(Fault::role("decide"));
    }
    let mut results = Vec::with_capacity(wishes.len());
    for mut wish in wishes {
        let id = wish.id.take().unwrap_or_default();
        results.push(one(&api, &admin, &id, wish).await?);
    }
    Ok(Json(Results { results }).into_response())
}

async fn one(api: &Api, admin: &Admin, id: &str, wish: Wish) -> Result<Box<RawValue>, Fault> {
    let done = async {
        let card = find(&api.parked, admin, id).await?;
        // The beginning of an id is for people; here it names what it spells.
        if card.id() != id {
            return Err(Fault::no_approval());
        }
        decided(api, admin, &card, wish).await
    };
    let (status, card, fault) = match done.await {
        Ok(Decided::So(card)) => (StatusCode::OK, Some(card), None),
        Ok(Decided::Otherwise(card)) => (StatusCode::CONFLICT, Some(card), None),
        Err(fault) => (fault.status, None, Some(fault)),
    };
    let error = fault.as_ref().map(Fault::body);
    let approval = card.as_ref().map(|card| api.shown(card, admin));
    raw(&Done { id, status: status.as_u16(), approval, error })
}

fn read(headers: &HeaderMap, body: &[u8]) -> Result<Vec<Wish>, Fault> {
    // Refuses a member that comes twice, which the readers of maps would not.
    let plain = canonical(body, JsonLimits::default());
    let plain = plain.map_err(|error| Fault::bad("body", format!("the body: {error}")))?;
    let whole: Value = json_body(headers, plain.as_bytes())?;
    let carried = whole.pointer("/metadata").and_then(|metadata| metadata.get(KAGENT));
    let payload = carried.or_else(|| whole.get("data")).unwrap_or(&whole);
    let wishes = if payload.get("type").is_some() {
        approvals(from(payload)?)?
    } else if payload.get("decision_type").is_some() {
        older(from(payload)?)?
    } else {
        // From the bytes as they came: edited arguments keep their spelling.
        json_body::<Batch>(headers, body)?.decisions
    };
    if wishes.is_empty() || wishes.len() > BATCH_MAX {
        let message = format!("1 to {BATCH_MAX} decisions at once; nothing was decided");
        return Err(Fault::bad("body", message));
    }
    let mut seen = HashSet::new();
    for wish in &wishes {
        let Some(id) = &wish.id else {
            return Err(Fault::bad("body", "every decision names its `id`; nothing was decided"));
        };
        if !seen.insert(id) {
            let id = portcullis_policy::decide::shown(id);
            let message = format!("{id} stands twice; nothing was decided");
            return Err(Fault::bad("duplicate_id", message));
        }
    }
    Ok(wishes)
}

fn from<T: serde::de::DeserializeOwned>(payload: &Value) -> Result<T, Fault> {
    T::deserialize(payload)
        .map_err(|error| Fault::bad("body", format!("the answer cannot be read: {error}")))
}

fn approvals(answer: Approvals) -> Result<Vec<Wish>, Fault> {
    if answer.kind != "tool_approval_response" {
        return Err(Fault::bad("body", "`type` is `tool_approval_response`; nothing was decided"));
    }
    answer
        .approvals
        .into_iter()
        .map(|one| named(&one.id, one.approved, one.rejection_reason))
        .collect()
}

fn older(answer: Older) -> Result<Vec<Wish>, Fault> {
    if answer.decision_type != "batch" {
        let message = "an answer without ids decides nothing here, since nobody can tell what it \
                       is about; send `decision_type: batch` with `decisions`";
        return Err(Fault::bad("body", message));
    }
    let mut reasons = answer.rejection_reasons;
    answer
        .decisions
        .into_iter()
        .map(|(id, choice)| {
            let approved = choice == OlderChoice::Approve;
            let for_all = answer.rejection_reason.clone().filter(|_| !approved);
            named(&id, approved, reasons.remove(&id).or(for_all))
        })
        .collect()
}

fn named(handle: &str, approved: bool, reason: Option<String>) -> Result<Wish, Fault> {
    if approved && reason.as_ref().is_some_and(|reason| !reason.is_empty()) {
        let message = "one call is approved with a reason to reject it; nothing was decided";
        return Err(Fault::bad("reason", message));
    }
    let (id, digest) = match handle.split_once('.') {
        Some((id, hex)) => (id, Some(format!("sha256:{hex}"))),
        None => (handle, None),
    };
    let decision = if approved { WishedChoice::Approve } else { WishedChoice::Deny };
    Ok(Wish { id: Some(id.to_owned()), decision, digest, reason, arguments: None, standing: None })
}
