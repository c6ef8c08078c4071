//! The trail of one request: its intent before anything leaves, its outcome in the end, and the
//! counters. A record that is dropped unfinished says that its caller left.

use crate::asked::Asked;
use crate::audit::{self, Intent, Outcome, Verdict};
use crate::mcp::envelope::Raw;
use crate::mcp::era::MODERN;
use crate::shared::Shared;
use crate::telemetry::{ErrorType, Operation, Transport};
use portcullis_policy::canonical::Digest;
use portcullis_policy::decide::{Permit, Reason, Request, Target};
use portcullis_policy::ledger::State;
use portcullis_policy::name::{AgentName, ServerName};
use std::sync::Arc;
use std::time::Instant;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
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
    /// The store of cards could not be used.
    StoreFailed,
    /// The audit could not be written.
    AuditFailed,
    /// Its caller left.
    Left,
}

impl Ending {
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
            Self::StoreFailed => "store_failed",
            Self::AuditFailed => "audit_failed",
            Self::Left => "left",
        }
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Refused(reason) => Some(reason.as_str()),
            Self::Ok
            | Self::ToolError
            | Self::RpcError
            | Self::NotSent
            | Self::Unknown
            | Self::Parked
            | Self::Settled(_)
            | Self::StoreFailed
            | Self::AuditFailed
            | Self::Left => None,
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
    version: &'static str,
    asked: String,
    // Server and tool as registered; set once a decision named them.
    target: Option<(ServerName, String)>,
    generation: u64,
    arguments: Option<Digest>,
    card: Option<String>,
    verdict: Verdict,
    began: Instant,
    finished: bool,
}

impl Record {
    /// Begins the record of a request for `name`.
    pub(crate) fn new(asked: &Asked, name: &str, arguments: Option<&Raw>) -> Self {
        let principal = &asked.visit.principal;
        Self {
            request: asked.shared.next_request(),
            agent: principal.agent.clone(),
            run: principal.run.clone(),
            method: asked.call.method.clone(),
            version: asked.session.as_ref().map_or(MODERN, |session| session.version),
            asked: name.to_owned(),
            target: None,
            generation: asked.visit.generation.number,
            arguments: arguments.map(|arguments| Digest::of(arguments.bytes())),
            card: None,
            verdict: Verdict::Run,
            began: Instant::now(),
            finished: false,
            shared: Arc::clone(&asked.shared),
        }
    }

    /// Notes that the request was parked, as what.
    pub(crate) fn parks(&mut self, request: &Request) {
        self.verdict = Verdict::Park;
        self.target = Some((request.tool.server.clone(), request.tool.name.to_string()));
        self.arguments = Some(request.digest);
    }

    /// Notes the card the request waits for.
    pub(crate) fn card(&mut self, id: &str) {
        self.verdict = Verdict::Park;
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
            Target::Resource { uri, .. } => uri.clone(),
            Target::Permission { name, .. }
            | Target::Prompt { name, .. }
            | Target::CompletePrompt { name, .. } => name.clone(),
            Target::CompleteTemplate { template, .. } => template.clone(),
        };
        self.target = Some((target.server().clone(), name));
        let intent = Intent { asked: self.asked() };
        self.shared.audit.intent(&intent).map_err(|error| {
            tracing::error!(%error, "an intent could not be recorded; nothing was sent");
            "the audit record cannot be written, so nothing was sent; try again later".to_owned()
        })
    }

    /// Ends the record of a refused request.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        self.verdict = Verdict::Refuse;
        self.shared.metrics.refused(&self.agent, reason.as_str());
        self.finish(Ending::Refused(reason));
    }

    /// Ends the record.
    pub(crate) fn finish(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let duration = self.began.elapsed();
        let outcome = Outcome {
            asked: self.asked(),
            decision: self.verdict,
            reason: ending.reason(),
            outcome: ending.as_str(),
            duration,
        };
        if let Err(error) = self.shared.audit.outcome(&outcome) {
            tracing::error!(%error, request = self.request, "an outcome could not be recorded");
        }
        let metrics = &self.shared.metrics;
        let tool = self.target.as_ref().map(|(server, tool)| (server.as_str(), tool.as_str()));
        metrics.called(&self.agent, tool, ending.as_str());
        let operation = Operation {
            method: &self.method,
            tool,
            error: (ending == Ending::ToolError).then_some(ErrorType::Tool),
            transport: Transport::Tcp,
            version: self.version,
        };
        metrics.server_operation(&operation, duration);
        tracing::info!(
            request = self.request,
            agent = %self.agent,
            run = self.run,
            method = self.method,
            asked = self.asked,
            decision = self.verdict.as_str(),
            outcome = ending.as_str(),
            card = self.card,
            duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }

    fn asked(&self) -> audit::Asked<'_> {
        audit::Asked {
            request: self.request,
            agent: &self.agent,
            run: &self.run,
            method: &self.method,
            name: Some(&self.asked),
            server: self.target.as_ref().map(|(server, _)| server.as_str()),
            tool: self.target.as_ref().map(|(_, tool)| tool.as_str()),
            generation: self.generation,
            arguments: self.arguments,
            card: self.card.as_deref(),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish(Ending::Left);
    }
}
