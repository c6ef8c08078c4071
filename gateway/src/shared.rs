//! What all requests share.

use crate::asked::Asked;
use crate::audit::Audit;
use crate::door::Visit;
use crate::hold::HoldTable;
use crate::hosts::Hosts;
use crate::identity::{IdentityError, Principal, Tokens};
use crate::parked::{Caller, Parked};
use crate::scopes::Scopes;
use crate::sessions::Sessions;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::upstream::Upstreams;
use crate::usage::{Counters, Running};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use portcullis_policy::decide::Usage;
use portcullis_policy::json::JsonLimits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    pub(crate) tokens: Tokens,
    pub(crate) limits: Limits,
    pub(crate) hosts: Hosts,
    pub(crate) hold: HoldTable,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) requests: Arc<AtomicU64>,
    /// Calls of legacy agents that went away: they end by their own deadlines.
    pub(crate) left: Mutex<JoinSet<()>>,
}

impl Shared {
    /// Who asks.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Principal, IdentityError> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => Some(value.to_str().unwrap_or_default()),
            _ => None,
        };
        self.tokens.identify(value)
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
        let counts_minutes = self.visit.scope.limits.calls_per_minute.is_some();
        self.shared.counters.enter(&self.visit.principal.agent, counts_minutes)
    }

    /// The caller as cards know it.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            agent: self.visit.principal.agent.clone(),
            run: self.visit.principal.run.to_owned(),
        }
    }
}
