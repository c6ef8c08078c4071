//! The trail of one request: its intent before anything leaves, its outcome in the end, and the
//! counters. A record that is dropped unfinished says that its caller left.

use crate::asked::Asked;
use crate::mcp::envelope::Raw;
use crate::shared::Shared;
use portcullis_policy::canonical::Digest;
use portcullis_policy::decide::{Permit, Reason, Target, shown};
use portcullis_policy::ledger::State;
use portcullis_policy::name::AgentName;
use std::sync::Arc;
use std::time::Instant;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran.
    Ok,
    /// It ran and the tool reported an error.
    ToolError,
    /// The server answered with a JSON-RPC error.
    RpcError,
    /// Nothing was sent.
    NotSent,
    /// It may have run.
    Unknown,
    /// It was refused.
    Refused(Reason),
    /// It waits for an approval that its caller has to collect.
    Parked,
    /// Its card settled without a run.
    Settled(State),
    /// The gateway could not serve it.
    Failed(&'static str),
    /// Its caller left.
    Abandoned,
}

impl Outcome {
    /// The word in audit and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::RpcError => "rpc_error",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
            Self::Refused(_) => "refused",
            Self::Parked => "parked",
            Self::Settled(state) => state.as_str(),
            Self::Failed(_) => "failed",
            Self::Abandoned => "abandoned",
        }
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Refused(reason) => Some(reason.as_str()),
            Self::Failed(reason) => Some(reason),
            Self::Ok
            | Self::ToolError
            | Self::RpcError
            | Self::NotSent
            | Self::Unknown
            | Self::Parked
            | Self::Settled(_)
            | Self::Abandoned => None,
        }
    }
}

/// The record of one request.
#[derive(Debug)]
pub(crate) struct Record {
    shared: Arc<Shared>,
    request: u64,
    agent: AgentName,
    run: String,
    method: String,
    asked: String,
    // Server and tool as declared; set once a decision named them.
    target: Option<(String, String)>,
    generation: u64,
    arguments: Option<Digest>,
    card: Option<String>,
    began: Instant,
    finished: bool,
}

impl Record {
    /// Begins the record of a request for `name`.
    pub(crate) fn new(asked: &Asked, name: &str, arguments: Option<&Raw>) -> Self {
        let tool = asked.view().tool(name);
        Self {
            request: asked.shared.next_request(),
            agent: asked.visit.principal.agent.clone(),
            run: asked.visit.principal.run.clone(),
            method: asked.call.method.clone(),
            asked: shown(name),
            target: tool.map(|tool| (tool.server.to_string(), tool.name.to_string())),
            generation: asked.visit.generation.number,
            arguments: arguments.map(|arguments| Digest::of(arguments.bytes())),
            card: None,
            began: Instant::now(),
            finished: false,
            shared: Arc::clone(&asked.shared),
        }
    }

    /// Notes the card the request waits for.
    pub(crate) fn card(&mut self, id: &str) {
        self.card = Some(id.to_owned());
    }

    /// Puts the intent on record; nothing may leave the gateway before.
    ///
    /// # Errors
    /// What to tell the agent when the record cannot be written.
    pub(crate) fn intent(&mut self, permit: &Permit) -> Result<(), String> {
        let target = permit.target();
        let name = match target {
            Target::Tool { tool, .. } => tool.name.to_string(),
            Target::Resource { uri, .. } => shown(uri),
            Target::Prompt { name, .. } | Target::CompletePrompt { name, .. } => shown(name),
            Target::CompleteTemplate { template, .. } => shown(template),
        };
        self.target = Some((target.server().to_string(), name));
        self.shared.audit_intent(self).map_err(|error| {
            tracing::error!(%error, "an intent could not be recorded");
            "the audit record cannot be written, so nothing was sent; try again later".to_owned()
        })
    }

    /// Ends the record.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.shared.finished(self, outcome);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish(Outcome::Abandoned);
    }
}
