//! A decision on a card: on record first, then in effect, then counted. Operators and parents
//! decide here and nowhere else.

use crate::audit::{Audit, Choice, Decided};
use crate::parked::{DecideError, Parked};
use crate::telemetry::Metrics;
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, Decider, State, Verdict};
use std::sync::Arc;

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Where cards are decided. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Decisions {
    parked: Parked,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
}

/// A decision on exactly what its maker saw.
#[derive(Debug, Clone)]
pub struct Word {
    /// Approve or deny.
    pub verdict: Verdict,
    /// Digest of the arguments its maker saw; an approval has one.
    pub digest: Option<Digest>,
}

/// Why a decision had no effect.
#[derive(Debug, thiserror::Error)]
pub enum DecisionFault {
    /// It cannot be put on record.
    #[error("the decision cannot be put on record, so it has no effect; see the gateway's log")]
    Record,
    /// The card did not take it.
    #[error(transparent)]
    Decide(#[from] DecideError),
}

enum Step {
    Before,
    Void(String),
}

impl Decisions {
    /// Decides the cards of `parked`.
    #[must_use]
    pub fn new(parked: Parked, audit: Arc<Audit>, metrics: Arc<Metrics>) -> Self {
        Self { parked, audit, metrics }
    }

    /// Decides `card`, which `by` may see and was shown. Goes on to its end even if its caller
    /// does not wait, so that what is on record and what took place agree.
    ///
    /// # Errors
    /// [`DecisionFault`]; then this decision has no effect.
    pub async fn decide(
        &self,
        card: &Card,
        word: &Word,
        by: &Decider,
    ) -> Result<Card, DecisionFault> {
        let (decisions, card) = (self.clone(), card.clone());
        let (word, by) = (word.clone(), by.clone());
        let deciding = tokio::spawn(async move { decisions.decided(&card, &word, &by).await });
        deciding.await.unwrap_or_else(|_| Err(DecideError::Stopping.into()))
    }

    async fn decided(&self, card: &Card, word: &Word, by: &Decider) -> Result<Card, DecisionFault> {
        if word.digest.is_some_and(|digest| digest != card.asked().digest) {
            return Err(DecideError::WrongDigest.into());
        }
        if !card.asked().approvers.contains(&by.role) {
            return Err(DecideError::NotApprover(by.role).into());
        }
        // A card that is decided already gets no second record: nothing can come of it.
        let open = card.state() == State::Parked;
        if open {
            self.record(card, word, by, Step::Before).await?;
        }
        let decided = self.parked.decide(card.id(), word.verdict.clone(), word.digest, by).await;
        match decided {
            Ok(card) => {
                if open {
                    let asked = card.asked();
                    let tool = (asked.server.as_str(), asked.tool.as_str());
                    self.metrics.decided(&asked.agent, tool, choice(&word.verdict));
                }
                Ok(card)
            }
            Err(error) => {
                if open {
                    self.record(card, word, by, Step::Void(error.to_string())).await?;
                }
                Err(error.into())
            }
        }
    }

    // Writing waits for the disk, so it has a thread of its own.
    async fn record(
        &self,
        card: &Card,
        word: &Word,
        by: &Decider,
        step: Step,
    ) -> Result<(), DecisionFault> {
        let (audit, by, card, word) =
            (Arc::clone(&self.audit), by.name.clone(), card.clone(), word.clone());
        let written = tokio::task::spawn_blocking(move || {
            let asked = card.asked();
            let decided = Decided {
                card: card.id(),
                agent: &asked.agent,
                run: &asked.run,
                server: &asked.server,
                tool: asked.tool.as_str(),
                arguments: asked.digest,
                choice: choice(&word.verdict),
                reason: reason(&word.verdict),
                by: &by,
            };
            match step {
                Step::Before => audit.decision(&decided),
                Step::Void(why) => audit.decision_void(&decided, &why),
            }
        })
        .await;
        let unrecorded = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "a decision could not be recorded");
            DecisionFault::Record
        };
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unrecorded(&error)),
            Err(error) => Err(unrecorded(&error)),
        }
    }
}

fn choice(verdict: &Verdict) -> Choice {
    match verdict {
        Verdict::Approve => Choice::Approve,
        Verdict::Deny { .. } => Choice::Deny,
    }
}

fn reason(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Deny { reason } if !reason.is_empty() => Some(reason),
        Verdict::Approve | Verdict::Deny { .. } => None,
    }
}
