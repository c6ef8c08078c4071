//! `GET /v1/approvals`: the cards, oldest first, at once or when something changes.

use super::Api;
use super::answer::{Fault, unavailable};
use super::batch::{self, Kagent};
use super::card::CardView;
use super::cursor::Listing;
use super::runs::names;
use crate::identity::{Admin, Role};
use crate::parked::{Clock, Parked};
use crate::store::{Cursor, Filter, LIST_ITEMS_MAX, Named};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::ledger::{self, Card};
use portcullis_policy::name::AgentName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Longest wait for a change, in seconds.
pub const WAIT_SECONDS_MAX: u64 = 60;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// States with commas between them; absent is every state.
    state: Option<String>,
    agent: Option<String>,
    run: Option<String>,
    /// A run above theirs, at whatever depth.
    parent: Option<String>,
    /// Seconds to wait for a change.
    #[serde(default)]
    wait: u64,
    /// The revision of an earlier list; with another one by now there is no wait.
    since: Option<String>,
    /// The cursor of an earlier list.
    cursor: Option<String>,
    /// What waits for a decision, the riskiest first, instead of the oldest.
    order: Option<Order>,
    /// Another system's own form of the list.
    format: Option<Format>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Order {
    Risk,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Format {
    Kagent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Watching {
    /// Seconds to wait for a step of the card.
    #[serde(default)]
    wait: u64,
    /// The version that was seen; with another one by now there is no wait.
    since: Option<u64>,
}

/// Approvals.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApprovalList")]
pub(super) struct List<'a> {
    items: Vec<CardView<'a>>,
    /// Where the next page begins; absent on the last one.
    cursor: Option<String>,
    /// For `since`: stands for what the list was made from.
    revision: String,
}

/// Either form.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "Approvals")]
#[expect(dead_code, reason = "for its schema")]
pub(super) enum Listed<'a> {
    /// Our own.
    Own(List<'a>),
    /// kagent's, for `format=kagent`.
    Kagent(Kagent<'a>),
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Fault> {
    let Query(wanted) = query.map_err(|error| Fault::bad("query", error.body_text()))?;
    let listed =
        json!(["approvals", wanted.state, wanted.agent, wanted.run, wanted.parent]).to_string();
    let now_ms = Clock::system().wall_ms();
    let listing = Listing { seal: &api.seal, admin: admin.name(), filter: &listed, now_ms };
    let mut filter = filter(&wanted, &listing)?;
    let seen = admin.sees_of(std::mem::take(&mut filter.agents));
    let nobody = seen.is_none();
    filter.agents = seen.unwrap_or_default();
    if (wanted.order.is_some() || wanted.format.is_some())
        && (filter.states != [ledger::State::Parked] || wanted.cursor.is_some())
    {
        let message = "`order` and `format` go with `state=parked` and without `cursor`";
        return Err(Fault::bad("query", message));
    }
    let mut changes = api.parked.changes();
    if wanted.wait > 0 {
        let since = wanted.since.as_deref();
        let now = api.revision(*changes.borrow_and_update());
        if since.is_none_or(|since| since == now) {
            let limit = Duration::from_secs(wanted.wait.min(WAIT_SECONDS_MAX));
            // Either way the list is made now.
            let _ = changed_within(&api, &mut changes, limit).await;
        }
    }
    let revision = api.revision(*changes.borrow_and_update());
    let all = wanted.order.is_some() || wanted.format.is_some();
    let mut cards = match (nobody, all) {
        (true, _) => Ok(Vec::new()),
        (false, true) => api.parked.list_all(&mut filter).await,
        (false, false) => api.parked.list(&filter).await,
    }
    .map_err(|error| unavailable(&error))?;
    if wanted.order == Some(Order::Risk) {
        cards.sort_by_cached_key(|card| Reverse(api.risk(card)));
    }
    let last = cards.last().filter(|_| !all && cards.len() >= LIST_ITEMS_MAX as usize);
    let after = |card: &Card| Cursor { created_ms: card.created_ms(), id: card.id().to_owned() };
    let cursor = last.map(|card| listing.page_after(&after(card)));
    let below =
        |card: &Card, parent: &String| card.asked().above.iter().any(|above| above.run == *parent);
    let seen = cards
        .iter()
        .filter(|card| admin.may_see(&card.asked().agent))
        .filter(|card| wanted.parent.as_ref().is_none_or(|parent| below(card, parent)));
    if wanted.format == Some(Format::Kagent) {
        return Ok(Json(batch::kagent(seen, &admin)).into_response());
    }
    let items = seen.map(|card| api.shown(card, &admin)).collect();
    Ok(Json(List { items, cursor, revision }).into_response())
}

pub(super) async fn one(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
    query: Result<Query<Watching>, QueryRejection>,
) -> Result<Response, Fault> {
    let Query(watching) = query.map_err(|error| Fault::bad("query", error.body_text()))?;
    let until = Instant::now() + Duration::from_secs(watching.wait.min(WAIT_SECONDS_MAX));
    // Followed before the first look, so that nothing happens between them unseen.
    let mut changes = api.parked.changes();
    let mut card = find(&api.parked, &admin, &id).await?;
    let seen = watching.since.unwrap_or(card.version());
    while card.version() == seen && !card.state().is_settled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !changed_within(&api, &mut changes, left).await {
            break;
        }
        card = find(&api.parked, &admin, card.id()).await?;
    }
    Ok(Json(api.shown(&card, &admin)).into_response())
}

/// The card of an id or of the beginning of one, if `admin` may see it.
pub(super) async fn find(parked: &Parked, admin: &Admin, id: &str) -> Result<Card, Fault> {
    let plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain || matches!(id, "" | "apr_") {
        return Err(Fault::no_approval());
    }
    match parked.get(id).await.map_err(|error| unavailable(&error))? {
        Named::One(card) if admin.may_see(&card.asked().agent) && names(admin, card.id(), id) => {
            Ok(*card)
        }
        Named::One(_) | Named::None => Err(Fault::no_approval()),
        // How many there are is told only to who may see them all.
        Named::Several if matches!(admin.role(), Role::Harness { .. }) => Err(Fault::no_approval()),
        Named::Several => Err(Fault::bad(
            "ambiguous_id",
            "several approvals begin like that; give more characters of the id",
        )),
    }
}

// False if nothing happened in that time or the gateway stops.
async fn changed_within(api: &Api, changes: &mut watch::Receiver<u64>, limit: Duration) -> bool {
    let mut stop = api.stop.clone();
    let stopping = async { drop(stop.wait_for(|stopping| *stopping).await) };
    tokio::select! {
        // All of them only watch, so that losing the race loses nothing.
        changed = changes.changed() => changed.is_ok(),
        () = stopping => false,
        () = tokio::time::sleep(limit) => false,
    }
}

fn filter(wanted: &Wanted, listing: &Listing<'_>) -> Result<Filter, Fault> {
    let mut filter = Filter::default();
    for word in wanted.state.iter().flat_map(|states| states.split(',')) {
        let Some(state) = ledger::State::parse(word) else {
            let known: Vec<&str> = ledger::State::ALL.iter().map(|state| state.as_str()).collect();
            let message = format!("`state` is one or more of {}", known.join(", "));
            return Err(Fault::bad("state", message));
        };
        filter.states.push(state);
    }
    if let Some(agent) = &wanted.agent {
        let agent =
            AgentName::new(agent).map_err(|error| Fault::bad("agent", error.to_string()))?;
        filter.agents.push(agent);
    }
    filter.runs.extend(wanted.run.clone());
    if let Some(cursor) = &wanted.cursor {
        filter.after = Some(listing.page_of(cursor).ok_or_else(|| {
            Fault::bad("cursor", "`cursor` is not one that an earlier list returned")
        })?);
    }
    Ok(filter)
}
