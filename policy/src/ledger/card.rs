//! The card: what an approver sees and what becomes of it.

use super::asked::Asked;
use super::word::{Decision, Edit};
use crate::canonical::Digest;
use serde::{Deserialize, Serialize};

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

/// One parked call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    // INVARIANT: made parked by `new` and changed by `step` alone; the version grows by one
    // with each step.
    id: String,
    version: u64,
    pub(super) state: State,
    asked: Asked,
    created_ms: u64,
    updated_ms: u64,
    pub(super) deadline: Option<Deadline>,
    pub(super) decision: Option<Decision>,
    // Approvals so far, while more are needed than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) votes: Vec<Decision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edit: Option<Edit>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) task: bool,
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
    /// The same, whose caller polls.
    #[must_use]
    pub fn with_task(mut self, task: bool) -> Self {
        self.task = task;
        self
    }

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
            votes: Vec::new(),
            edit: None,
            task: false,
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
        let covers = |arguments: &str, digest| Digest::of(arguments.as_bytes()) == digest;
        let edited = card.edit.as_ref();
        if !covers(&card.asked.arguments, card.asked.digest)
            || edited.is_some_and(|edit| !covers(&edit.arguments, edit.digest))
        {
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

    /// The arguments that run if it is approved, canonical form 1: those asked for, or what an
    /// approver made of them.
    #[must_use]
    pub fn arguments(&self) -> &str {
        self.edit.as_ref().map_or(&self.asked.arguments, |edit| &edit.arguments)
    }

    /// Digest of [`Card::arguments`]: what a decision names.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.edit.as_ref().map_or(self.asked.digest, |edit| edit.digest)
    }

    /// What an approver made of the arguments.
    #[must_use]
    pub fn edit(&self) -> Option<&Edit> {
        self.edit.as_ref()
    }

    /// Approvals so far, while more are needed.
    #[must_use]
    pub fn votes(&self) -> &[Decision] {
        &self.votes
    }

    /// True if its caller polls, so that it runs without one that waits.
    #[must_use]
    pub fn is_task(&self) -> bool {
        self.task
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

    // The first version of a card that does not begin parked.
    pub(super) fn born(mut self, state: State) -> Self {
        self.state = state;
        self
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
