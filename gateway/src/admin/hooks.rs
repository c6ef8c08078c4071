//! `POST /v1/hooks/claude-code`: Claude Code tells when a subagent begins and ends, and its runs
//! end with it. Other events and other agents are taken and mean nothing.

use super::Api;
use super::answer::{Fault, json_body};
use super::runs::not_ended;
use crate::identity::{Admin, Role};
use crate::runs::{Over, Subagent};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::name::AgentName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Longest id of a session or a subagent, in bytes.
const ID_BYTES_MAX: usize = 256;

/// What Claude Code tells; it holds more, and more with each of its versions.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "HookEvent")]
pub(super) struct Told {
    /// `SubagentStart`, `SubagentStop`, `SessionEnd`, or another event.
    hook_event_name: String,
    #[serde(default)]
    session_id: String,
    #[serde(default)]
    agent_id: String,
    /// The name of the subagent's definition.
    #[serde(default)]
    agent_type: String,
}

/// What Claude Code shows to its user.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HookMessage")]
pub(super) struct Message {
    #[serde(rename = "systemMessage")]
    system_message: String,
}

pub(super) async fn claude_code(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    if !matches!(admin.role(), Role::Operator | Role::Harness { .. }) {
        return Err(Fault::role("tell of subagents"));
    }
    let told: Told = json_body(&headers, &body)?;
    if told.session_id.len() > ID_BYTES_MAX || told.agent_id.len() > ID_BYTES_MAX {
        return Err(Fault::bad("body", format!("an id has at most {ID_BYTES_MAX} bytes")));
    }
    let agent = AgentName::new(&told.agent_type).ok().filter(|agent| admin.may_run(agent));
    let (harness, session) = (admin.name().to_owned(), told.session_id.clone());
    let subagent = Subagent { harness, session, id: told.agent_id };
    let ended = match (told.hook_event_name.as_str(), agent) {
        ("SubagentStart", Some(agent)) => {
            api.runs.pairs().started(subagent, &agent, api.parked.now_ms());
            Over::default()
        }
        ("SubagentStop", Some(_)) => api.runs.pairs().stopped(&subagent),
        ("SessionEnd", _) => api.runs.pairs().session_ended(admin.name(), &told.session_id),
        _ => Over::default(),
    };
    // Each by itself: one that cannot be ended keeps no other alive.
    let mut failed = None;
    for run in &ended.over {
        if let Err(error) = api.runs.end(run, "its subagent has ended", admin.name()).await {
            tracing::error!(%error, run, "the run of a subagent could not be ended");
            failed = Some(error);
        }
    }
    if let Some(error) = failed {
        return Err(not_ended(&error));
    }
    if ended.unclear == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let text = format!(
        "Portcullis: {} of agent {} may be of another subagent that is still at work, so nothing \
         was stopped; it ends with the last of them, or by its time.",
        if ended.unclear == 1 { "a run".to_owned() } else { format!("{} runs", ended.unclear) },
        told.agent_type
    );
    tracing::warn!(
        agent = told.agent_type,
        runs = ended.unclear,
        "a subagent ended, but not which run is its own"
    );
    // Shown to the person (Claude Code, hooks, "JSON output"); without `decision` it changes nothing.
    Ok(Json(Message { system_message: text }).into_response())
}
