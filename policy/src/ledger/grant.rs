//! Standing approvals: what an approver lets an agent call again without asking.

use super::card::Card;
use super::word::{Covers, Decider, Decision, Verdict, Whose};
use super::{Asked, Deadline, State};
use crate::canonical::Digest;
use crate::name::{AgentName, ServerName, ToolName};

/// Longest time that a standing approval counts, in milliseconds, also one for as long as a run
/// lives: the run of a credential lives as long as that.
pub const STANDING_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// A standing approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its name.
    pub id: String,
    /// The card it was given on.
    pub card: String,
    /// For this agent.
    pub agent: AgentName,
    /// In this run; none is any run of the agent.
    pub run: Option<String>,
    /// The server.
    pub server: ServerName,
    /// The tool's registered name.
    pub tool: ToolName,
    /// With these arguments; none is any arguments.
    pub arguments: Option<Digest>,
    /// As long as the tool is defined like this.
    pub definition: Digest,
    /// Who gave it.
    pub by: Decider,
    /// Wall time.
    pub created_ms: u64,
    /// Wall time of its end.
    pub expires_ms: u64,
}

impl Grant {
    /// What the decision on `card` lets pass from now on, if it does.
    #[must_use]
    pub fn given(id: String, card: &Card) -> Option<Self> {
        let decision = card.decision().filter(|decision| decision.verdict == Verdict::Approve)?;
        let standing = decision.standing?;
        let asked = card.asked();
        Some(Self {
            id,
            card: card.id().to_owned(),
            agent: asked.agent.clone(),
            run: (standing.of == Whose::Run).then(|| asked.run.clone()),
            server: asked.server.clone(),
            tool: asked.tool.clone(),
            arguments: (standing.covers == Covers::Arguments).then_some(asked.digest),
            definition: asked.definition,
            by: decision.by.clone(),
            created_ms: decision.at_ms,
            expires_ms: decision
                .at_ms
                .saturating_add(standing.lasts_ms.unwrap_or(STANDING_MS_MAX).min(STANDING_MS_MAX)),
        })
    }

    /// Which calls it covers.
    #[must_use]
    pub fn covers(&self) -> Covers {
        if self.arguments.is_some() { Covers::Arguments } else { Covers::Tool }
    }

    /// True if what is asked for at `now_ms` needs no other approval. The policy of this moment
    /// says whether one approval may still cover so much and whether its giver still decides.
    #[must_use]
    pub fn allows(&self, asked: &Asked, now_ms: u64) -> bool {
        self.agent == asked.agent
            && self.run.as_ref().is_none_or(|run| *run == asked.run)
            && self.server == asked.server
            && self.tool.as_str() == asked.tool.as_str()
            && self.arguments.is_none_or(|digest| digest == asked.digest)
            && self.definition == asked.definition
            && now_ms < self.expires_ms
            && self.covers().is_within(asked.standing)
            && asked.count <= 1
            && asked.is_decided_by(&self.by)
    }
}

impl Card {
    /// A new card that is approved already, by a standing approval that allows it.
    #[must_use]
    pub fn by_grant(id: String, asked: Asked, grant: &Grant, now_ms: u64) -> Option<Self> {
        if !grant.allows(&asked, now_ms) {
            return None;
        }
        let left_ms = asked.use_within_ms;
        let mut card = Self::new(id, asked, now_ms).born(State::Approved);
        card.deadline = Some(Deadline { left_ms, written_ms: now_ms });
        card.decision = Some(Decision {
            verdict: Verdict::Approve,
            by: grant.by.clone(),
            at_ms: now_ms,
            standing: None,
            grant: Some(grant.id.clone()),
        });
        Some(card)
    }
}
