//! The card: what an approver sees and what becomes of it.

use super::spelled;
use crate::canonical::Digest;
use crate::decide::Request;
use crate::definition::{Approver, OnCallerGone};
use crate::name::{AgentName, ServerName, ToolName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where a card stands.
///
/// `parked` becomes `approved`, `denied` or `expired`; `approved` becomes `executing`, `lapsed`
/// or `revoked`; `executing` becomes `done` or `unknown`. `revoked`, `stopped` and `cancelled`
/// end a card that is parked or approved. All but the first three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for a decision.
    Parked,
    /// It may run, once, as soon as a caller is there.
    Approved,
    /// The approval is used up and the call is under way.
    Executing,
    /// The call ended, see [`Outcome`].
    Done,
    /// The call started and may have run.
    Unknown,
    /// An approver said no.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// Nobody collected the approval in time.
    Lapsed,
    /// Policy or tool changed before the call ran.
    Revoked,
    /// The run was stopped before the call ran.
    Stopped,
    /// The caller left or cancelled before the call ran.
    Cancelled,
}

impl State {
    /// Every state, in the order of a card's life.
    pub const ALL: [Self; 11] = [
        Self::Parked,
        Self::Approved,
        Self::Executing,
        Self::Done,
        Self::Unknown,
        Self::Denied,
        Self::Expired,
        Self::Lapsed,
        Self::Revoked,
        Self::Stopped,
        Self::Cancelled,
    ];

    /// The word in the store, in messages and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Approved => "approved",
            Self::Executing => "executing",
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Lapsed => "lapsed",
            Self::Revoked => "revoked",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads what [`State::as_str`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// True if nothing can change any more.
    #[must_use]
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::Parked | Self::Approved | Self::Executing)
    }
}

/// How a call that ran, or was to run, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The tool answered.
    Ok,
    /// The tool answered that it failed.
    ToolError,
    /// The server answered with a protocol error.
    RpcError,
    /// No byte left the gateway.
    NotSent,
}

/// What is asked for. Nothing of it ever changes, so what is approved is what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The agent that asks.
    #[serde(with = "spelled")]
    pub agent: AgentName,
    /// Its run.
    pub run: String,
    /// The server.
    #[serde(with = "spelled")]
    pub server: ServerName,
    /// The tool's registered name.
    #[serde(with = "spelled")]
    pub tool: ToolName,
    /// The name the agent used.
    pub exposed: String,
    /// The arguments, canonical form 1.
    pub arguments: String,
    /// Digest of `arguments`.
    #[serde(with = "spelled")]
    pub digest: Digest,
    /// Names of arguments whose values are masked.
    pub secret: Vec<String>,
    /// Digest of the tool's definition as the approver sees it.
    #[serde(with = "spelled")]
    pub definition: Digest,
    /// The policy generation that parked it.
    pub generation: u64,
    /// The rule that asks: file and line.
    pub rule: String,
    /// Who may decide.
    #[serde(with = "spelled::list")]
    pub approvers: Vec<Approver>,
    /// What becomes of the card when its caller leaves.
    #[serde(with = "spelled")]
    pub on_caller_gone: OnCallerGone,
    /// Time to decide.
    pub decide_within_ms: u64,
    /// Time to use an approval.
    pub use_within_ms: u64,
}

impl Asked {
    /// What `agent` asks for in `run`, as the decision parked it.
    #[must_use]
    pub fn new(agent: &AgentName, run: &str, request: &Request) -> Self {
        let tool = &request.tool;
        let approval = &request.approval;
        Self {
            agent: agent.clone(),
            run: run.to_owned(),
            server: tool.server.clone(),
            tool: tool.name.clone(),
            exposed: tool.exposed.clone(),
            arguments: request.arguments.clone(),
            digest: request.digest,
            secret: tool.secret.clone(),
            definition: tool.hash,
            generation: request.generation,
            rule: request.rule.to_string(),
            approvers: approval.approvers.clone(),
            on_caller_gone: approval.on_caller_gone,
            decide_within_ms: ms(approval.decide_within),
            use_within_ms: ms(approval.use_within),
        }
    }

    /// The key by which an identical call is known: agent, run, server, tool and arguments.
    #[must_use]
    pub fn key(&self) -> Digest {
        key(&self.agent, &self.run, (&self.server, self.tool.as_str()), self.digest)
    }
}

/// The key of an identical call: see [`Asked::key`].
#[must_use]
pub fn key(agent: &AgentName, run: &str, tool: (&ServerName, &str), arguments: Digest) -> Digest {
    let (server, tool) = tool;
    Digest::of_parts(&[
        agent.as_str().to_ascii_lowercase().as_bytes(),
        run.as_bytes(),
        server.as_str().to_ascii_lowercase().as_bytes(),
        tool.as_bytes(),
        arguments.to_string().as_bytes(),
    ])
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A time limit that no clock jump lengthens: the time left at a wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// Time left when it was written.
    pub left_ms: u64,
    /// Wall time when it was written.
    pub written_ms: u64,
}

impl Deadline {
    /// The time left at the wall time `now_ms`: never more than was left when it was written.
    #[must_use]
    pub fn left_at(&self, now_ms: u64) -> u64 {
        self.left_ms.saturating_sub(now_ms.saturating_sub(self.written_ms))
    }
}

/// Approve or deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// It may run, once, as shown.
    Approve,
    /// It may not run.
    Deny {
        /// For the caller; may be empty.
        reason: String,
    },
}

impl Verdict {
    /// True if both approve or both deny, whatever the reason.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Approve, Self::Approve) | (Self::Deny { .. }, Self::Deny { .. })
        )
    }
}

/// Who decides, as the authenticated transport says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decider {
    /// For records; a caller never reads it.
    pub name: String,
    /// In which role.
    #[serde(with = "spelled")]
    pub role: Approver,
}

/// A decision that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Who decided.
    pub by: Decider,
    /// Wall time of the decision.
    pub at_ms: u64,
}

/// One parked call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    // INVARIANT: made parked by `new` and changed by `step` alone; the version grows by one
    // with each step.
    id: String,
    version: u64,
    state: State,
    asked: Asked,
    created_ms: u64,
    updated_ms: u64,
    pub(super) deadline: Option<Deadline>,
    pub(super) decision: Option<Decision>,
    pub(super) outcome: Option<Outcome>,
    pub(super) detail: String,
    pub(super) unattended: bool,
}

/// Why a record is no card.
#[derive(Debug, thiserror::Error)]
pub enum CardFault {
    /// It is not what [`Card::write`] writes.
    #[error("the record of a card cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// The arguments are not those that the digest covers.
    #[error("the arguments of card `{0}` are not those that were shown")]
    Digest(String),
}

impl Card {
    /// A new card that waits for a decision.
    #[must_use]
    pub fn new(id: String, asked: Asked, now_ms: u64) -> Self {
        let deadline = Deadline { left_ms: asked.decide_within_ms, written_ms: now_ms };
        Self {
            id,
            version: 1,
            state: State::Parked,
            asked,
            created_ms: now_ms,
            updated_ms: now_ms,
            deadline: Some(deadline),
            decision: None,
            outcome: None,
            detail: String::new(),
            unattended: false,
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`CardFault`] if it has another form or its arguments do not match their digest.
    pub fn read(record: &str) -> Result<Self, CardFault> {
        let card: Self = serde_json::from_str(record)?;
        if Digest::of(card.asked.arguments.as_bytes()) != card.asked.digest {
            return Err(CardFault::Digest(card.id));
        }
        Ok(card)
    }

    /// The record that [`Card::read`] reads.
    ///
    /// # Errors
    /// [`CardFault::Form`] never in practice: all keys are strings.
    pub fn write(&self) -> Result<String, CardFault> {
        Ok(serde_json::to_string(self)?)
    }

    /// Its name: random, and no authority by itself.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Counts the steps; an update of the store names the one it replaces.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// What is asked for.
    #[must_use]
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Wall time of the call.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// Wall time of the last step.
    #[must_use]
    pub fn updated_ms(&self) -> u64 {
        self.updated_ms
    }

    /// The limit of the present state: to decide while parked, to use while approved.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// The decision, once there is one.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// How it ended, if it is done.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Why it ended as it did, where the state alone does not say.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// True if no caller waits.
    #[must_use]
    pub fn unattended(&self) -> bool {
        self.unattended
    }

    pub(super) fn touched(&self, now_ms: u64) -> Self {
        let mut next = self.clone();
        next.version += 1;
        next.updated_ms = now_ms;
        next
    }

    pub(super) fn moved(&self, state: State, now_ms: u64) -> Self {
        let mut next = self.touched(now_ms);
        next.state = state;
        next.deadline = None;
        next
    }
}
