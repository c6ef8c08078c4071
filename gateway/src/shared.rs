//! What all requests share.

use crate::asked::Asked;
use crate::audit::Audit;
use crate::decisions::Decisions;
use crate::door::Visit;
use crate::hold::HoldTable;
use crate::hosts::Hosts;
use crate::identity::{IdentityError, Loopback, Principal, Tokens};
use crate::parked::{Caller, Clock, Parked};
use crate::runs::{LiveRun, RunTable, Runs};
use crate::scopes::Scopes;
use crate::seal::Seal;
use crate::sessions::Sessions;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::upstream::Upstreams;
use crate::usage::{Counters, Running};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use portcullis_policy::decide::Usage;
use portcullis_policy::definition::{Definition, OnNoApprover};
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::Ancestor;
use portcullis_policy::name::AgentName;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Limits of the agents' listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Open connections.
    pub(crate) connections: usize,
    /// Size of a request body in bytes.
    pub(crate) request_bytes: usize,
    /// Limits of a message.
    pub(crate) json: JsonLimits,
}

/// The running gateway, as requests see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) scopes: Scopes,
    pub(crate) sessions: Sessions,
    /// Where the ends of sessions are kept; cards go through `parked`.
    pub(crate) store: Store,
    pub(crate) upstreams: Upstreams,
    pub(crate) parked: Parked,
    pub(crate) audit: Arc<Audit>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tokens: Arc<Tokens>,
    /// Lets callers from this machine in without a token.
    pub(crate) loopback: Option<Loopback>,
    pub(crate) table: Arc<RunTable>,
    pub(crate) runs: Runs,
    pub(crate) decisions: Decisions,
    pub(crate) limits: Limits,
    pub(crate) hosts: Hosts,
    pub(crate) hold: HoldTable,
    /// Seals what agents carry between two requests.
    pub(crate) seal: Seal,
    /// The wall clock of cards.
    pub(crate) clock: Clock,
    /// Where approvers find the page of a card, without a slash at the end.
    pub(crate) admin_url: String,
    /// How long a kept answer is kept.
    pub(crate) result_keep: Duration,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) requests: Arc<AtomicU64>,
    /// Calls of legacy agents that went away: they end by their own deadlines.
    pub(crate) left: Mutex<JoinSet<()>>,
}

impl Shared {
    /// Who asks: by its token, or where it comes from if the operator lets that count. `from` is
    /// that place and the agent that the URL names.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        (peer, agent): (IpAddr, Option<&str>),
    ) -> Result<Principal, IdentityError> {
        if let (Some(loopback), Some(agent)) = (&self.loopback, agent)
            && !headers.contains_key(AUTHORIZATION)
            && let Ok(agent) = AgentName::new(agent)
        {
            return loopback.identify(peer, headers, &agent).ok_or(IdentityError::Missing);
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => Some(value.to_str().unwrap_or_default()),
            _ => None,
        };
        self.tokens.identify(value)
    }

    /// The page on which card `id` is decided.
    pub(crate) fn approve_url(&self, id: &str) -> String {
        format!("{}/approve/{id}", self.admin_url)
    }

    /// Resolves when the gateway begins to stop.
    pub(crate) async fn stopping(&self) {
        let mut stop = self.stop.clone();
        // The sender is gone only when the gateway is.
        let _ = stop.wait_for(|stopped| *stopped).await;
    }

    /// The number of the next request; unique within this process.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a message that was refused before it was understood.
    pub(crate) fn refused_message(&self, visit: &Visit, reason: &'static str) {
        let principal = &visit.principal;
        self.metrics.refused(&principal.agent, reason);
        tracing::info!(agent = %principal.agent, run = principal.run, reason, "a message was refused");
    }
}

impl Asked {
    /// Takes a place among the agent's calls; the counters are those without it.
    pub(crate) fn enter_calls(&self) -> (Running, Usage) {
        let scope = &self.visit.scope;
        let counts_minutes = scope.limits.calls_per_minute.is_some();
        let (running, mut usage) =
            self.shared.counters.enter(&self.visit.principal.agent, counts_minutes);
        usage.unattended |= self.visit.run.as_ref().is_some_and(|run| run.unattended);
        // Looked up for those alone whose policy asks.
        if scope.approval.on_no_approver == OnNoApprover::Deny {
            usage.parent = self.shared.parent_is_live(&self.visit);
        }
        (running, usage)
    }

    /// The caller as cards know it.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            agent: self.visit.principal.agent.clone(),
            run: self.visit.principal.run.to_owned(),
            server: self.visit.server.clone(),
        }
    }
}

impl Shared {
    /// The runs above the one that asks, the nearest first.
    pub(crate) fn above(&self, visit: &Visit) -> Vec<Ancestor> {
        let agent = &visit.principal.agent;
        self.above_run(visit.run.as_deref(), agent, &visit.generation.definition)
    }

    /// The same for any run of `agent`.
    pub(crate) fn above_run(
        &self,
        run: Option<&LiveRun>,
        agent: &AgentName,
        definition: &Definition,
    ) -> Vec<Ancestor> {
        let unnamed = |agent: &AgentName| self.tokens.unnamed_run(agent);
        self.table.above(run, agent, definition, unnamed)
    }

    // A run above is live as long as the one below is, and an unnamed one as its credential.
    fn parent_is_live(&self, visit: &Visit) -> bool {
        !self.above(visit).is_empty()
    }
}
