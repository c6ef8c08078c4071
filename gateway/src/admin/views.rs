//! `GET /v1/agents`, `/v1/agents/{a}` and `/v1/diagnostics`: what the gateway knows by now.

use super::Api;
use super::answer::Fault;
use super::card::Claims;
use crate::identity::Admin;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::diagnostic::Diagnostic;
use portcullis_policy::ledger::Card;
use portcullis_policy::name::AgentName;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// The agents with a summary each.
pub type AgentsView = Box<dyn Fn() -> Vec<(AgentName, Value)> + Send + Sync>;
/// The effective view of one agent; `None` if no policy names it.
pub type AgentView = Box<dyn Fn(&AgentName) -> Option<Value> + Send + Sync>;
/// Every finding of the present generation.
pub type DiagnosticsView = Box<dyn Fn() -> Vec<Diagnostic> + Send + Sync>;
/// What the server calls the tool of a card.
pub type TitleView = Box<dyn Fn(&Card) -> Option<String> + Send + Sync>;

/// What the server claims of the tool of a card.
pub type ClaimsView = Box<dyn Fn(&Card) -> Option<Claims> + Send + Sync>;

/// What the gateway tells about the generation that serves.
pub struct Views {
    /// For `/v1/agents`.
    pub agents: AgentsView,
    /// For `/v1/agents/{a}`.
    pub agent: AgentView,
    /// For `/v1/diagnostics`.
    pub diagnostics: DiagnosticsView,
    /// For cards.
    pub title: TitleView,
    /// For cards.
    pub claims: ClaimsView,
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").finish_non_exhaustive()
    }
}

/// A finding as JSON, the same in the API and in `check --format json`.
#[must_use]
pub fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    let at = diagnostic.location.as_ref();
    json!({
        "severity": diagnostic.severity.as_str(),
        "code": diagnostic.code,
        "message": diagnostic.message,
        "file": at.map(|at| &*at.file),
        "line": at.map(|at| at.line),
        "column": at.map(|at| at.column),
    })
}

#[derive(Serialize)]
struct Items {
    items: Vec<Value>,
}

pub(super) async fn agents(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
) -> Response {
    let seen = (api.views.agents)().into_iter().filter(|(agent, _)| admin.may_see(agent));
    Json(Items { items: seen.map(|(_, view)| view).collect() }).into_response()
}

pub(super) async fn agent(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(name): Path<String>,
) -> Result<Response, Fault> {
    let view = AgentName::new(&name)
        .ok()
        .filter(|agent| admin.may_see(agent))
        .and_then(|agent| (api.views.agent)(&agent));
    match view {
        Some(view) => Ok(Json(view).into_response()),
        None => {
            let message = "no policy names such an agent; `GET /v1/agents` lists them";
            Err(Fault::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}

pub(super) async fn diagnostics(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
) -> Result<Response, Fault> {
    if !admin.may_see_all() {
        return Err(Fault::role("read the diagnostics of all agents"));
    }
    let items = (api.views.diagnostics)().iter().map(diagnostic_json).collect();
    Ok(Json(Items { items }).into_response())
}
