//! Why not, in words for the agent and in a word for the audit.

use super::Usage;
use crate::definition::{Approver, Definition, OnNoApprover};
use crate::name::{AgentName, ServerName};
use crate::scope::{Missing, Scope, View};
use std::fmt;

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It exists but no grant covers it. The agent is not told apart from [`Reason::Unknown`].
    Hidden,
    /// Nothing of that name exists.
    Unknown,
    /// It is granted but not there.
    Missing,
    /// A limit of the policy is reached.
    Limit,
    /// It asks, and nobody who may approve can be reached.
    NoApprover,
    /// The arguments cannot be understood.
    Arguments,
    /// It was approved, but policy or tool changed since.
    Revoked,
}

impl Reason {
    /// The word in audit and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Unknown => "unknown",
            Self::Missing => "missing",
            Self::Limit => "limit",
            Self::NoApprover => "no_approver",
            Self::Arguments => "arguments",
            Self::Revoked => "revoked",
        }
    }
}

/// A refusal: nothing was sent and nothing was parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For audit and metrics only; the text does not tell hidden from unknown.
    pub reason: Reason,
    /// What the agent reads: what was refused, why, and what it may use instead.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How many calls may be parked at one time, for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Of its agent.
    pub agent: u32,
    /// Of its run.
    pub run: u32,
    /// Of its server, by whatever agent.
    pub server: u32,
}

impl Caps {
    /// What `definition` allows a call to `server` in `scope`.
    #[must_use]
    pub fn of(scope: &Scope, definition: &Definition, server: &ServerName) -> Self {
        let limits = &scope.limits;
        Self {
            agent: limits.parked_calls,
            run: limits.parked_calls_per_run.unwrap_or(limits.parked_calls),
            server: definition.servers.get(server).map_or(u32::MAX, |server| server.parked_calls),
        }
    }

    /// The refusal for one more than there may be, if `parked` are there; asked when a card is
    /// about to be made, since a repeat that joins a card makes none.
    #[must_use]
    pub fn refusal(
        &self,
        agent: &AgentName,
        server: &ServerName,
        parked: &Self,
    ) -> Option<Refusal> {
        let whose = if parked.run >= self.run && self.run < self.agent {
            format!("This run has {} calls", self.run)
        } else if parked.agent >= self.agent {
            format!("Agent `{agent}` has {} calls", self.agent)
        } else if parked.server >= self.server {
            format!("Server `{server}` has calls")
        } else {
            return None;
        };
        Some(Refusal {
            reason: Reason::Limit,
            text: format!(
                "{whose} that wait for approval, as many as there may be. This call did not run and was \
                 not queued. Wait until some are decided."
            ),
        })
    }
}

pub(super) fn nobody_to_ask(scope: &Scope, name: &str, usage: &Usage) -> Option<Refusal> {
    let reachable = scope.approval.approvers.iter().any(|approver| match approver {
        Approver::Human | Approver::User => !usage.unattended,
        Approver::Parent => usage.parent,
    });
    if reachable || scope.approval.on_no_approver == OnNoApprover::Wait {
        return None;
    }
    let approvers: Vec<&str> = scope.approval.approvers.iter().map(|a| a.as_str()).collect();
    Some(Refusal {
        reason: Reason::NoApprover,
        text: format!(
            "{} needs an approval, and nobody who may give one can be reached now (the policy names: {}). \
             It did not run and was not queued. Go on without it or tell the operator.",
            shown(name),
            approvers.join(", ")
        ),
    })
}

pub(super) fn over_limit(scope: &Scope, usage: &Usage) -> Option<Refusal> {
    let limits = &scope.limits;
    let text = if usage.concurrent_calls >= limits.concurrent_calls {
        format!("{} calls at one time", limits.concurrent_calls)
    } else if limits.calls_per_minute.is_some_and(|most| usage.calls_last_minute >= most) {
        format!("{} calls a minute", limits.calls_per_minute.unwrap_or_default())
    } else {
        return None;
    };
    Some(Refusal {
        reason: Reason::Limit,
        text: format!(
            "Agent `{}` is at its limit of {text}. Nothing was sent. Wait, then repeat the call.",
            scope.agent.name
        ),
    })
}

pub(super) fn absent(scope: &Scope, view: &View, name: &str) -> Refusal {
    if let Some(missing) = view.missing_tool(name) {
        return Refusal { reason: Reason::Missing, text: missing_text(name, missing) };
    }
    let reason = if scope.exists(name) { Reason::Hidden } else { Reason::Unknown };
    Refusal {
        reason,
        text: format!(
            "{} is not available to agent `{}`, and nothing was sent. {} Do not repeat this call.",
            shown(name),
            scope.agent.name,
            view.authorised()
        ),
    }
}

fn missing_text(name: &str, missing: &Missing) -> String {
    format!(
        "{} is granted to you but not there: {}. Nothing was sent. {}",
        shown(name),
        missing.kind.cause(&missing.server),
        missing.kind.next_step()
    )
}

/// Longest piece of a foreign name that a message echoes, in characters.
const ECHO_CHARS_MAX: usize = 128;

/// A name from the wire as a message shows it: in backticks, cut, nothing invisible.
#[must_use]
pub fn shown(name: &str) -> String {
    let cut: String = name.chars().take(ECHO_CHARS_MAX).collect();
    let more = if cut.len() < name.len() { "…" } else { "" };
    let plain = cut.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if plain { format!("`{cut}{more}`") } else { format!("`{}{more}`", cut.escape_default()) }
}
