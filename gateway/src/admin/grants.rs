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
use portcullis_policy::name::AgentName;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
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
    let items: Vec<Value> = rows.iter().map(shown).collect();
    Ok(Json(json!({"items": items, "cursor": cursor})).into_response())
}

pub(super) async fn end(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    if !admin.may_decide() {
        return Err(Fault::role("end standing approvals"));
    }
    let row = api.store.grant(&id).await.map_err(|fault| unavailable(&fault))?;
    let row = row.filter(|row| admin.may_see(&row.grant.agent)).ok_or_else(|| {
        Fault::new(StatusCode::NOT_FOUND, "not_found", "there is no such standing approval")
    })?;
    api.decisions.end_grant(&api.store, &row.grant, admin.name()).await.map_err(|error| {
        tracing::error!(%error, "a standing approval could not be ended");
        let message =
            "the end cannot be put on record, so it is not in effect; see the gateway's log";
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, "store", message)
    })?;
    let row = api.store.grant(&id).await.map_err(|fault| unavailable(&fault))?.unwrap_or(row);
    Ok(Json(shown(&row)).into_response())
}

fn shown(row: &GrantRow) -> Value {
    let grant = &row.grant;
    json!({
        "id": grant.id,
        "approval": grant.card,
        "agent": grant.agent.as_str(),
        "run": grant.run,
        "server": grant.server.as_str(),
        "tool": grant.tool.as_str(),
        "covers": grant.covers(),
        "arguments": grant.arguments.map(|digest| digest.to_string()),
        "by": grant.by.name,
        "role": grant.by.role.as_str(),
        "created": wall(grant.created_ms),
        "expires": wall(grant.expires_ms),
        "ended": row.ended_ms.map(wall),
    })
}
