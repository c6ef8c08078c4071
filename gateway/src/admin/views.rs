//! `GET /v1/agents`, `/v1/agents/{a}` and `/v1/diagnostics`: what the gateway knows by now.

use super::Api;
use super::answer::Fault;
use crate::identity::Admin;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::diagnostic::Diagnostic;
use portcullis_policy::ledger::Card;
use portcullis_policy::name::AgentName;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// The agents with a summary each.
pub type AgentsView = Box<dyn Fn() -> Vec<(AgentName, AgentSummary)> + Send + Sync>;
/// The effective view of one agent; `None` if no policy names it.
pub type AgentView = Box<dyn Fn(&AgentName) -> Option<Effective> + Send + Sync>;
/// Every finding of the present generation.
pub type DiagnosticsView = Box<dyn Fn() -> Vec<Diagnostic> + Send + Sync>;
/// The tool of a card, as its server defines it at this moment.
pub type OfferView = Box<dyn Fn(&Card) -> Option<Arc<ToolOffer>> + Send + Sync>;

/// What the gateway tells about the generation that serves.
pub struct Views {
    /// For `/v1/agents`.
    pub agents: AgentsView,
    /// For `/v1/agents/{a}`.
    pub agent: AgentView,
    /// For `/v1/diagnostics`.
    pub diagnostics: DiagnosticsView,
    /// For cards.
    pub offer: OfferView,
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").finish_non_exhaustive()
    }
}

/// An agent in a list.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct AgentSummary {
    /// Its name.
    pub agent: String,
    /// What it is for.
    pub description: String,
    /// How many tools it may use at this moment.
    pub tools: usize,
    /// How much is declared but not there.
    pub missing: usize,
}

/// What an agent may use at this moment.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Effective {
    /// Its name.
    pub agent: String,
    /// What it is for.
    pub description: String,
    /// Counts the states of policy and servers.
    pub generation: u64,
    /// `direct`, or `search` if it finds its tools by `search`.
    pub exposed: &'static str,
    /// Its tools.
    pub tools: Vec<ToolView>,
    /// What is declared but not there.
    pub missing: Vec<MissingView>,
    /// What it is told at the handshake.
    pub instructions: String,
}

/// A tool of an agent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolView {
    /// The name that the agent calls.
    pub name: String,
    /// Its server.
    pub server: String,
    /// Its name there.
    pub tool: String,
    /// What its server calls it.
    pub title: Option<String>,
    /// `auto` if it runs, `asks` if it waits for an approval.
    pub approval: &'static str,
    /// The rule that says so: file and line.
    pub rule: String,
}

/// Something that is declared but not there.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MissingView {
    /// The server.
    pub server: String,
    /// The tool; without one it is all of the server.
    pub tool: Option<String>,
    /// Such as `unreachable`.
    pub why: &'static str,
    /// Where it is declared: file and line.
    pub declared: String,
}

/// A finding, the same in the API and in `check --format json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DiagnosticView {
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    /// A stable word for programs.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// Where.
    pub file: Option<String>,
    /// Counted from 1.
    pub line: Option<u64>,
    /// Counted from 1.
    pub column: Option<u64>,
}

impl From<&Diagnostic> for DiagnosticView {
    fn from(diagnostic: &Diagnostic) -> Self {
        let at = diagnostic.location.as_ref();
        // Line 0 means the whole of something.
        let number = |number: u64| (number > 0).then_some(number);
        Self {
            severity: diagnostic.severity.as_str(),
            code: diagnostic.code,
            message: diagnostic.message.clone(),
            file: at.map(|at| at.file.to_string()),
            line: at.and_then(|at| number(at.line.into())),
            column: at.and_then(|at| number(at.column.into())),
        }
    }
}

/// The agents that the reader may see.
#[derive(Serialize, JsonSchema)]
pub(super) struct Agents {
    items: Vec<AgentSummary>,
}

/// What is wrong with policy and servers.
#[derive(Serialize, JsonSchema)]
pub(super) struct Diagnostics {
    items: Vec<DiagnosticView>,
}

pub(super) async fn agents(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
) -> Response {
    let seen = (api.views.agents)().into_iter().filter(|(agent, _)| admin.may_see(agent));
    Json(Agents { items: seen.map(|(_, view)| view).collect() }).into_response()
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
    let items = (api.views.diagnostics)().iter().map(DiagnosticView::from).collect();
    Ok(Json(Diagnostics { items }).into_response())
}
