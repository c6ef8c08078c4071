//! What an approver says of a card, and what is kept of it.

use super::spelled;
use crate::canonical::Digest;
use crate::definition::{Approver, StandingMost};
use crate::name::AgentName;
use serde::{Deserialize, Serialize};

/// What an approver says, on exactly what was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Approve or deny.
    pub verdict: Verdict,
    /// Digest of the arguments its maker saw; an approval counts only with the right one.
    pub digest: Option<Digest>,
    /// Run these arguments instead, canonical form 1.
    pub edited: Option<String>,
    /// Let more than this call pass.
    pub standing: Option<Standing>,
}

impl Word {
    /// Approves the arguments of that digest, once.
    #[must_use]
    pub fn approve(digest: Digest) -> Self {
        let verdict = Verdict::Approve;
        Self { verdict, digest: Some(digest), edited: None, standing: None }
    }

    /// Denies, with a reason for the caller that may be empty.
    #[must_use]
    pub fn deny(reason: impl Into<String>) -> Self {
        let verdict = Verdict::Deny { reason: reason.into() };
        Self { verdict, digest: None, edited: None, standing: None }
    }
}

/// What an approval lets pass without asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// Which calls.
    pub covers: Covers,
    /// How long, in milliseconds; `None` is as long as the run lives, within a day.
    pub lasts_ms: Option<u64>,
    /// Of whom.
    pub of: Whose,
}

/// Which calls a standing approval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// The same call again.
    Arguments,
    /// Any call of the tool.
    Tool,
}

impl Covers {
    /// True if a policy that allows `most` allows this.
    #[must_use]
    pub fn is_within(self, most: StandingMost) -> bool {
        match self {
            Self::Arguments => most >= StandingMost::Arguments,
            Self::Tool => most >= StandingMost::Tool,
        }
    }
}

/// Whose calls a standing approval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// Those of the run that asked.
    Run,
    /// Those of its agent, in any run.
    Agent,
}

/// Arguments that an approver put in place of those asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Canonical form 1.
    pub arguments: String,
    /// Digest of `arguments`.
    #[serde(with = "spelled")]
    pub digest: Digest,
    /// Who made it.
    pub by: Decider,
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

impl Decider {
    /// A run of `agent` that decides for what is below it.
    #[must_use]
    pub fn parent(agent: &AgentName, run: &str) -> Self {
        Self { name: format!("{agent} in {run}"), role: Approver::Parent }
    }

    /// True if it is that run.
    #[must_use]
    pub fn is_run(&self, run: &str) -> bool {
        let named = self.name.strip_suffix(run).is_some_and(|rest| rest.ends_with(" in "));
        named && self.role == Approver::Parent
    }

    /// True if both count as one approver: the same person in whatever role, or two runs above
    /// the caller, since one of them may speak for the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.role, other.role) {
            (Approver::Parent, Approver::Parent) => true,
            (Approver::Parent, _) | (_, Approver::Parent) => false,
            (Approver::Human | Approver::User, Approver::Human | Approver::User) => {
                self.name == other.name
            }
        }
    }
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
    /// What it lets pass from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// The standing approval that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}
