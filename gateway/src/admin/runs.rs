//! `/v1/runs`: harnesses start runs, everyone reads those they may see, and a run ends with
//! everything below it.

use super::Api;
use super::answer::{Fault, json_body, unavailable};
use super::cursor::Listing;
use super::openapi::state_word;
use super::views::{DiagnosticView, MissingView, ToolView};
use crate::audit::time::rfc3339;
use crate::identity::Admin;
use crate::parked::{Clock, StopError};
use crate::runs::{NewRun, ParentOf, StartRunError, Started};
use crate::store::{Cursor, LIST_ITEMS_MAX, RunFilter, RunNamed, RunRow};
use crate::views::{missing, reach};
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::name::AgentName;
use portcullis_policy::narrow::Narrow;
use portcullis_policy::source::duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Longest reason for an end, in characters.
const WHY_CHARS_MAX: usize = 200;

/// A run to be started.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(rename = "NewRun")]
pub(super) struct WireRun {
    agent: String,
    /// The run above it.
    parent: Option<String>,
    /// The agent above it, if that has one credential.
    parent_agent: Option<String>,
    /// Such as `30m`.
    ttl: Option<String>,
    /// What it leaves of what the agent's policy grants.
    #[schemars(with = "Option<Map<String, Value>>")]
    narrow: Option<Box<RawValue>>,
    #[serde(default)]
    unattended: bool,
    /// True if a helper prints its token for a subagent whose end a hook tells.
    #[serde(default)]
    helper: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    agent: Option<String>,
    parent: Option<String>,
    /// Those that ended as well.
    #[serde(default)]
    all: bool,
    cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ending {
    /// Why, as agents and records are told.
    why: Option<String>,
}

/// A run that was started. Its token is shown here and nowhere else.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartedRun")]
pub(super) struct StartedView {
    run: String,
    agent: String,
    /// The run above it.
    parent: Option<String>,
    /// What the agent connects to.
    url: String,
    /// What it authenticates with.
    token: String,
    expires: Option<String>,
    /// What it may use at this moment.
    tools: Vec<ToolView>,
    /// What is declared but not there.
    missing: Vec<MissingView>,
    /// What its `narrow` names in vain.
    diagnostics: Vec<DiagnosticView>,
}

/// Runs, the oldest first.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunList<'a> {
    items: Vec<RunView<'a>>,
    /// Where the next page begins; absent on the last one.
    cursor: Option<String>,
}

/// What ended with a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EndedRun")]
pub(super) struct EndedView {
    run: String,
    /// It and the runs below it; empty if it had ended before.
    ended: Vec<String>,
    /// Approvals that were settled.
    settled: Vec<SettledView>,
}

/// An approval that ended with its run.
#[derive(Serialize, JsonSchema)]
struct SettledView {
    id: String,
    run: String,
    #[schemars(schema_with = "state_word")]
    state: &'static str,
}

/// A run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Run")]
pub(super) struct RunView<'a> {
    run: &'a str,
    agent: &'a str,
    parent: Option<&'a str>,
    url: String,
    state: &'static str,
    /// True for the run of a credential, which nobody started.
    unnamed: bool,
    unattended: bool,
    #[schemars(with = "Option<Map<String, Value>>")]
    narrow: Option<Box<RawValue>>,
    created: String,
    created_by: &'a str,
    expires: Option<String>,
    ended: Option<String>,
    why: Option<&'a str>,
}

pub(super) async fn start(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let wire: WireRun = json_body(&headers, &body)?;
    let agent = name(&wire.agent, "agent")?;
    // A harness learns nothing of agents that are not its own.
    if !admin.may_run(&agent) {
        return Err(Fault::role("start runs of this agent"));
    }
    let parent = match (wire.parent, wire.parent_agent) {
        (Some(_), Some(_)) => {
            return Err(Fault::bad("parent", "give `parent` or `parentAgent`, not both"));
        }
        (Some(run), None) => Some(ParentOf::Run(parent_run(&api, &admin, run).await?)),
        (None, Some(agent)) => {
            let agent = name(&agent, "parentAgent")?;
            if !admin.may_run(&agent) {
                return Err(Fault::role("start runs below this agent"));
            }
            Some(ParentOf::Agent(agent))
        }
        (None, None) => None,
    };
    let ttl = wire.ttl.map(|text| {
        duration(&text, Duration::from_secs(1)..=Duration::MAX)
            .map_err(|message| Fault::bad("ttl", format!("`ttl`: {message}")))
    });
    let narrow = wire.narrow.map(|text| {
        Narrow::read(text.get()).map_err(|fault| Fault::bad("narrow", fault.to_string()))
    });
    let new = NewRun {
        agent,
        parent,
        ttl: ttl.transpose()?,
        narrow: narrow.transpose()?,
        unattended: wire.unattended,
        by: admin.name().to_owned(),
    };
    let started = api.runs.start(new).await.map_err(|error| not_started(&error))?;
    if wire.helper {
        let row = &started.row;
        api.runs.pairs().began(&row.id, &row.agent, api.parked.now_ms());
    }
    Ok((StatusCode::CREATED, Json(started_view(&api, &started))).into_response())
}

// A run that the admin may not see is no parent, as one that is not there.
async fn parent_run(api: &Api, admin: &Admin, id: String) -> Result<String, Fault> {
    let row = find(api, admin, &id).await?;
    match row.ended {
        None => Ok(row.id),
        Some(_) => Err(no_run()),
    }
}

fn started_view(api: &Api, started: &Started) -> StartedView {
    let row = &started.row;
    StartedView {
        run: row.id.clone(),
        agent: row.agent.to_string(),
        parent: row.parent.clone(),
        url: api.runs.url(row),
        token: started.token.reveal().to_owned(),
        expires: expires(row),
        tools: reach(&started.scope),
        missing: missing(&started.scope),
        diagnostics: started.diagnostics.iter().map(DiagnosticView::from).collect(),
    }
}

fn not_started(error: &StartRunError) -> Fault {
    let (status, code) = match error {
        StartRunError::Agent(_) => (StatusCode::NOT_FOUND, "agent"),
        StartRunError::Parent(_) => (StatusCode::NOT_FOUND, "parent"),
        StartRunError::Parents { .. } => (StatusCode::CONFLICT, "parent"),
        StartRunError::Depth => (StatusCode::CONFLICT, "depth"),
        StartRunError::Ttl(_) => (StatusCode::BAD_REQUEST, "ttl"),
        StartRunError::Full(_) => (StatusCode::TOO_MANY_REQUESTS, "full"),
        StartRunError::Store(fault) => return unavailable(fault),
        StartRunError::Stop(error) => return not_ended(error),
        StartRunError::Audit(_) | StartRunError::Random(_) => {
            tracing::error!(%error, "a run could not be started");
            (StatusCode::SERVICE_UNAVAILABLE, "audit")
        }
    };
    Fault::new(status, code, error.to_string())
}

/// The answer when a run was not ended.
pub(super) fn not_ended(error: &StopError) -> Fault {
    match error {
        StopError::Store(fault) => unavailable(fault),
        StopError::Restless | StopError::Stopping => {
            Fault::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string())
        }
    }
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Fault> {
    let Query(wanted) = query.map_err(|error| Fault::bad("query", error.body_text()))?;
    let mut filter = RunFilter { live: !wanted.all, parent: wanted.parent, ..RunFilter::default() };
    if let Some(agent) = &wanted.agent {
        filter.agents.push(name(agent, "agent")?);
    }
    let Some(agents) = admin.sees_of(std::mem::take(&mut filter.agents)) else {
        return Ok(Json(RunList { items: Vec::new(), cursor: None }).into_response());
    };
    filter.agents = agents;
    let agents: Vec<&str> = filter.agents.iter().map(AgentName::as_str).collect();
    let listed = json!(["runs", agents, filter.parent, filter.live]).to_string();
    let now_ms = Clock::system().wall_ms();
    let listing = Listing { seal: &api.seal, admin: admin.name(), filter: &listed, now_ms };
    if let Some(cursor) = &wanted.cursor {
        let wrong = || Fault::bad("cursor", "`cursor` is not one that an earlier list returned");
        filter.after = Some(listing.page_of(cursor).ok_or_else(wrong)?);
    }
    let rows = api.runs.list(&filter).await.map_err(|fault| unavailable(&fault))?;
    let after = |row: &RunRow| Cursor { created_ms: row.created_ms, id: row.id.clone() };
    let last = rows.last().filter(|_| rows.len() >= LIST_ITEMS_MAX as usize);
    let cursor = last.map(|row| listing.page_after(&after(row)));
    let items: Vec<RunView<'_>> = rows.iter().map(|row| view(&api, row)).collect();
    Ok(Json(RunList { items, cursor }).into_response())
}

pub(super) async fn one(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let row = find(&api, &admin, &id).await?;
    Ok(Json(view(&api, &row)).into_response())
}

pub(super) async fn end(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
    query: Result<Query<Ending>, QueryRejection>,
) -> Result<Response, Fault> {
    let Query(ending) = query.map_err(|error| Fault::bad("query", error.body_text()))?;
    let row = find(&api, &admin, &id).await?;
    if !admin.may_run(&row.agent) {
        return Err(Fault::role("stop runs of this agent"));
    }
    if row.unnamed {
        let message = "this is the run of a credential and ends with it: revoke the token, or take \
                       it out of the token file";
        return Err(Fault::new(StatusCode::CONFLICT, "unnamed", message));
    }
    let why = ending.why.unwrap_or_else(|| "its run was stopped".to_owned());
    if why.chars().count() > WHY_CHARS_MAX {
        let message = format!("`why` has at most {WHY_CHARS_MAX} characters");
        return Err(Fault::bad("why", message));
    }
    let ended = api.runs.end(&row.id, &why, admin.name()).await;
    let ended = ended.map_err(|error| not_ended(&error))?;
    let settled = ended.cards.iter().map(|card| SettledView {
        id: card.id().to_owned(),
        run: card.asked().run.clone(),
        state: card.state().as_str(),
    });
    let settled = settled.collect();
    let ended = ended.runs.into_iter().map(|run| run.id).collect();
    Ok(Json(EndedView { run: row.id, ended, settled }).into_response())
}

/// True if `given` may stand for `id`. To who sees only some, a beginning that stands for one
/// thing would tell about the others.
pub(super) fn names(admin: &Admin, id: &str, given: &str) -> bool {
    admin.may_see_all() || id == given
}

/// The run of an id or of the beginning of one, if `admin` may see it.
async fn find(api: &Api, admin: &Admin, id: &str) -> Result<RunRow, Fault> {
    let plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain || matches!(id, "" | "run_") {
        return Err(no_run());
    }
    match api.runs.named(id).await.map_err(|fault| unavailable(&fault))? {
        RunNamed::One(row) if admin.may_see(&row.agent) && names(admin, &row.id, id) => Ok(*row),
        RunNamed::One(_) | RunNamed::None => Err(no_run()),
        // How many there are is told only to who may see them all.
        RunNamed::Several if !admin.may_see_all() => Err(no_run()),
        RunNamed::Several => Err(Fault::bad(
            "ambiguous_id",
            "several runs begin like that; give more characters of the id",
        )),
    }
}

/// A run as a list shows it.
pub(super) fn shown(api: &Api, row: &RunRow) -> Value {
    // A view is made of texts and numbers, so it has a form.
    serde_json::to_value(view(api, row)).unwrap_or_default()
}

fn view<'a>(api: &Api, row: &'a RunRow) -> RunView<'a> {
    RunView {
        run: &row.id,
        agent: row.agent.as_str(),
        parent: row.parent.as_deref(),
        url: api.runs.url(row),
        state: if row.ended.is_some() { "ended" } else { "live" },
        unnamed: row.unnamed,
        unattended: row.unattended,
        narrow: row.narrow.as_ref().and_then(|text| RawValue::from_string(text.clone()).ok()),
        created: wall(row.created_ms),
        created_by: &row.created_by,
        expires: expires(row),
        ended: row.ended.as_ref().map(|end| wall(end.at_ms)),
        why: row.ended.as_ref().map(|end| end.why.as_str()),
    }
}

fn expires(row: &RunRow) -> Option<String> {
    row.deadline.map(|deadline| wall(deadline.written_ms.saturating_add(deadline.left_ms)))
}

pub(super) fn wall(ms: u64) -> String {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).map(rfc3339).unwrap_or_default()
}

pub(super) fn name(text: &str, key: &'static str) -> Result<AgentName, Fault> {
    AgentName::new(text).map_err(|error| Fault::bad(key, format!("`{key}`: {error}")))
}

fn no_run() -> Fault {
    Fault::new(StatusCode::NOT_FOUND, "not_found", "there is no such run")
}
