//! `/v1/grants`: standing approvals, and their end.

use super::Api;
use super::answer::{Fault, unavailable};
use super::cursor::Listing;
use super::runs::wall;
use crate::identity::Admin;
use crate::store::{Cursor, GrantFilter, GrantRow, LIST_ITEMS_MAX};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::ledger::Covers;
use portcullis_policy::name::AgentName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// Standing approvals, the oldest first.
#[derive(Serialize, JsonSchema)]
pub(super) struct GrantList {
    items: Vec<GrantView>,
    /// Where the next page begins; absent on the last one.
    cursor: Option<String>,
}

/// A standing approval: what passes without asking.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub(super) struct GrantView {
    id: String,
    /// The approval it was given with.
    approval: String,
    agent: String,
    /// In this run; without one in any run of the agent.
    run: Option<String>,
    server: String,
    tool: String,
    /// `arguments` for the same call again, `tool` for any call of it.
    covers: &'static str,
    /// Digest of the arguments that it covers.
    arguments: Option<String>,
    by: String,
    role: &'static str,
    created: String,
    expires: String,
    ended: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    agent: Option<String>,
    /// Those that ended as well.
    #[serde(default)]
    all: bool,
    cursor: Option<String>,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Fault> {
    let Query(wanted) = query.map_err(|error| Fault::bad("query", error.body_text()))?;
    let listed = json!(["grants", wanted.agent, wanted.all]).to_string();
    let now_ms = api.parked.now_ms();
    let listing = Listing { seal: &api.seal, admin: admin.name(), filter: &listed, now_ms };
    let mut filter =
        GrantFilter { live_at_ms: (!wanted.all).then_some(now_ms), ..GrantFilter::default() };
    if let Some(agent) = &wanted.agent {
        let agent = AgentName::new(agent).map_err(|e| Fault::bad("agent", e.to_string()))?;
        filter.agents.push(agent);
    }
    if let Some(cursor) = &wanted.cursor {
        filter.after = Some(listing.page_of(cursor).ok_or_else(|| {
            Fault::bad("cursor", "`cursor` is not one that an earlier list returned")
        })?);
    }
    let rows = match admin.sees_of(std::mem::take(&mut filter.agents)) {
        None => Vec::new(),
        Some(agents) => {
            filter.agents = agents;
            api.store.grants(&filter).await.map_err(|fault| unavailable(&fault))?
        }
    };
    let last = rows.last().filter(|_| rows.len() >= LIST_ITEMS_MAX as usize);
    let after =
        |row: &GrantRow| Cursor { created_ms: row.grant.created_ms, id: row.grant.id.clone() };
    let cursor = last.map(|row| listing.page_after(&after(row)));
    Ok(Json(GrantList { items: rows.iter().map(shown).collect(), cursor }).into_response())
}

pub(super) async fn end(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    Ok(Json(shown(&ended(&api, &admin, &id).await?)).into_response())
}

/// Ends a standing approval that `admin` may see.
pub(super) async fn ended(api: &Api, admin: &Admin, id: &str) -> Result<GrantRow, Fault> {
    if !admin.may_decide() {
        return Err(Fault::role("end standing approvals"));
    }
    let row = api.store.grant(id).await.map_err(|fault| unavailable(&fault))?;
    let row = row.filter(|row| admin.may_see(&row.grant.agent)).ok_or_else(|| {
        Fault::new(StatusCode::NOT_FOUND, "not_found", "there is no such standing approval")
    })?;
    api.decisions.end_grant(&api.store, &row.grant, admin.name()).await.map_err(|error| {
        tracing::error!(%error, "a standing approval could not be ended");
        let message =
            "the end cannot be put on record, so it is not in effect; see the gateway's log";
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, "store", message)
    })?;
    Ok(api.store.grant(id).await.map_err(|fault| unavailable(&fault))?.unwrap_or(row))
}

fn shown(row: &GrantRow) -> GrantView {
    let grant = &row.grant;
    GrantView {
        id: grant.id.clone(),
        approval: grant.card.clone(),
        agent: grant.agent.to_string(),
        run: grant.run.clone(),
        server: grant.server.to_string(),
        tool: grant.tool.to_string(),
        covers: match grant.covers() {
            Covers::Arguments => "arguments",
            Covers::Tool => "tool",
        },
        arguments: grant.arguments.map(|digest| digest.to_string()),
        by: grant.by.name.clone(),
        role: grant.by.role.as_str(),
        created: wall(grant.created_ms),
        expires: wall(grant.expires_ms),
        ended: row.ended_ms.map(wall),
    }
}
