//! What is put on record.

use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::Card;
use portcullis_policy::name::{AgentName, ServerName};
use std::time::Duration;

/// What was asked, by whom, and what it was taken for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The gateway's id of the request, the same in intent and outcome.
    pub request: u64,
    /// The agent.
    pub agent: &'a AgentName,
    /// Its run.
    pub run: &'a str,
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// The name, URI or query as the agent wrote it.
    pub name: Option<&'a str>,
    /// The server it leads to, if it leads to one.
    pub server: Option<&'a str>,
    /// The tool's name as the server registers it.
    pub tool: Option<&'a str>,
    /// The generation that judged it.
    pub generation: u64,
    /// SHA-256 over the arguments: as received, for a parked call in canonical form.
    pub arguments: Option<Digest>,
    /// The card, if the call is or was parked.
    pub card: Option<&'a str>,
}

/// What is on record before anything leaves the gateway.
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// The request that is about to be sent.
    pub asked: Asked<'a>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// The request.
    pub asked: Asked<'a>,
    /// What was decided about it.
    pub decision: Verdict,
    /// Why not, for what was refused or failed: a word of a closed set.
    pub reason: Option<&'static str>,
    /// What came of it: a word of a closed set, such as `ok`, `tool_error` or `denied`.
    pub outcome: &'static str,
    /// From the request's arrival to its end.
    pub duration: Duration,
}

/// An approver's word on a card.
#[derive(Debug, Clone, Copy)]
pub struct Decided<'a> {
    /// The card.
    pub card: &'a str,
    /// The agent that asked.
    pub agent: &'a AgentName,
    /// Its run.
    pub run: &'a str,
    /// The server.
    pub server: &'a ServerName,
    /// The tool's name as the server registers it.
    pub tool: &'a str,
    /// Digest of the arguments the approver saw.
    pub arguments: Digest,
    /// What the approver said.
    pub choice: Choice,
    /// Why, in the approver's words.
    pub reason: Option<&'a str>,
    /// Digest of the arguments that the approver put in their place.
    pub edited: Option<Digest>,
    /// What else the approver lets pass: calls, time and whose.
    pub standing: Option<&'a str>,
    /// The standing approval that decides, or that is given.
    pub grant: Option<&'a str>,
    /// Who, from authentication only.
    pub by: &'a str,
}

impl<'a> Decided<'a> {
    /// A plain word of `by` on a card.
    #[must_use]
    pub fn of(card: &'a Card, choice: Choice, by: &'a str) -> Self {
        let asked = card.asked();
        Self {
            card: card.id(),
            agent: &asked.agent,
            run: &asked.run,
            server: &asked.server,
            tool: asked.tool.as_str(),
            arguments: card.digest(),
            choice,
            reason: None,
            edited: None,
            standing: None,
            grant: None,
            by,
        }
    }
}

/// The beginning or the end of a run.
#[derive(Debug, Clone, Copy)]
pub enum RunChange<'a> {
    /// It begins.
    Started {
        /// The run.
        run: &'a str,
        /// The agent.
        agent: &'a AgentName,
        /// The run above it.
        parent: Option<&'a str>,
        /// What it may reach, where that is less than its agent may.
        narrow: Option<&'a str>,
        /// Who started it, from authentication only.
        by: &'a str,
    },
    /// It ended.
    Ended {
        /// The run.
        run: &'a str,
        /// The agent.
        agent: &'a AgentName,
        /// Why.
        why: &'a str,
        /// Who ended it, from authentication only.
        by: &'a str,
    },
}

/// A token that came or went. Nothing of the token itself is on record.
#[derive(Debug, Clone, Copy)]
pub struct TokenChange<'a> {
    /// The token's id.
    pub token: &'a str,
    /// What became of it: `created` or `revoked`.
    pub change: &'static str,
    /// Whose it is.
    pub holder: &'a str,
    /// `agent`, or an admin's role.
    pub role: &'a str,
    /// Who did it, from authentication only.
    pub by: &'a str,
}

/// The answer of `decide`, as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may go ahead.
    Run,
    /// It waits for an approval.
    Park,
    /// It may not.
    Refuse,
}

/// What an approver may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Let it run.
    Approve,
    /// Do not.
    Deny,
}

impl Verdict {
    /// The word in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Park => "park",
            Self::Refuse => "refuse",
        }
    }
}

impl Choice {
    /// The word in records, requests and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}
