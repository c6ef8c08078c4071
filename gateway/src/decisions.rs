//! A decision on a card: on record first, then in effect, then counted. Operators and parents
//! decide here and nowhere else.

mod edit;
mod wish;

use crate::audit::{Audit, AuditError, Choice, Decided};
use crate::identity::random_id;
use crate::parked::{DecideError, Parked};
use crate::store::Store;
use crate::telemetry::Metrics;
use portcullis_policy::canonical::Digest;
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::ledger::{
    Card, Covers, Decider, Event, Grant, Standing, Unmoved, Verdict, Whose, Word, step,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinError;

pub(crate) use edit::checked;
pub use edit::{EDIT_BYTES_MAX, EditFault};
pub use wish::{Wish, WishFault, WishedChoice, WishedStanding};

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Finds the tool of a card as its server defines it at this moment.
pub type FindTool = dyn Fn(&Card) -> Option<Arc<ToolOffer>> + Send + Sync;

/// The tools of cards, as they were shown.
#[derive(Clone)]
pub struct Schemas(Arc<FindTool>);

impl Schemas {
    /// Looks tools up by `find`.
    #[must_use]
    pub fn new(find: impl Fn(&Card) -> Option<Arc<ToolOffer>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    fn of(&self, card: &Card) -> Option<Arc<ToolOffer>> {
        (self.0)(card).filter(|tool| tool.hash == card.asked().definition)
    }
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schemas")
    }
}

/// Where cards are decided. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Decisions {
    parked: Parked,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    schemas: Schemas,
}

/// Why a decision had no effect.
#[derive(Debug, thiserror::Error)]
pub enum DecisionFault {
    /// It cannot be put on record.
    #[error("the decision cannot be put on record, so it has no effect; see the gateway's log")]
    Record,
    /// No random number for the name of a standing approval.
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] std::io::Error),
    /// It cannot be understood.
    #[error(transparent)]
    Wish(#[from] WishFault),
    /// The card did not take it.
    #[error(transparent)]
    Decide(#[from] DecideError),
}

struct Said<'a> {
    card: &'a Card,
    word: &'a Word,
    by: &'a Decider,
    grant: Option<&'a str>,
}

enum Step {
    Before,
    Void(String),
}

impl Decisions {
    /// Decides the cards of `parked`.
    #[must_use]
    pub fn new(parked: Parked, audit: Arc<Audit>, metrics: Arc<Metrics>, schemas: Schemas) -> Self {
        Self { parked, audit, metrics, schemas }
    }

    /// Decides `card` as its maker writes it.
    ///
    /// # Errors
    /// [`DecisionFault`]; then this decision has no effect.
    pub async fn wish(&self, card: &Card, wish: Wish, by: &Decider) -> Result<Card, DecisionFault> {
        let word = wish.word(card, &self.schemas).await?;
        self.decide(card, &word, by).await
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

    /// Puts on record that `by` is shown the secret arguments of `card`.
    ///
    /// # Errors
    /// [`DecisionFault::Record`]; then they may not be shown.
    pub async fn revealed(&self, card: &Card, by: &str) -> Result<(), DecisionFault> {
        let (audit, card, by) = (Arc::clone(&self.audit), card.clone(), by.to_owned());
        let written = tokio::task::spawn_blocking(move || audit.revealed(&card, &by)).await;
        recorded(written)
    }

    /// Ends a standing approval: on record first, then in effect.
    ///
    /// # Errors
    /// [`DecisionFault`]; then it stands as far as can be told.
    pub async fn end_grant(
        &self,
        store: &Store,
        grant: &Grant,
        by: &str,
    ) -> Result<(), DecisionFault> {
        let (audit, ended, by) = (Arc::clone(&self.audit), grant.clone(), by.to_owned());
        let written = tokio::task::spawn_blocking(move || audit.grant_ended(&ended, &by)).await;
        recorded(written)?;
        store.end_grant(grant, self.parked.now_ms()).await.map_err(DecideError::Store)?;
        Ok(())
    }

    async fn decided(&self, card: &Card, word: &Word, by: &Decider) -> Result<Card, DecisionFault> {
        // Nothing goes on record of which nothing can come: the ledger says so of the card as it
        // was shown, and again of the card as it is.
        let open = match step(card, Event::Decide { word: word.clone(), by: by.clone() }, 0) {
            // Who voted before may vote again for what was edited since.
            Ok(_) | Err(Unmoved::Voted) => true,
            Err(Unmoved::NotApprover(role)) => return Err(DecideError::NotApprover(role).into()),
            Err(Unmoved::WrongDigest) => return Err(DecideError::WrongDigest.into()),
            Err(Unmoved::TooMuch(why)) => return Err(DecideError::TooMuch(why).into()),
            Err(Unmoved::Settled(_) | Unmoved::Idle(_)) => false,
        };
        let grant = word.standing.map(|_| random_id("gra_")).transpose()?;
        let said = Said { card, word, by, grant: grant.as_deref() };
        if open {
            self.record(&said, Step::Before).await?;
        }
        match self.parked.decide(card.id(), word, by, grant.as_deref()).await {
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
                    self.record(&said, Step::Void(error.to_string())).await?;
                }
                Err(error.into())
            }
        }
    }

    // Writing waits for the disk, so it has a thread of its own.
    async fn record(&self, said: &Said<'_>, step: Step) -> Result<(), DecisionFault> {
        let Said { card, word, by, grant } = *said;
        let (audit, by, card, word) =
            (Arc::clone(&self.audit), by.name.clone(), card.clone(), word.clone());
        let grant = grant.map(str::to_owned);
        let written = tokio::task::spawn_blocking(move || {
            let standing = word.standing.as_ref().map(spelled);
            let decided = Decided {
                reason: reason(&word.verdict),
                edited: word.edited.as_ref().map(|arguments| Digest::of(arguments.as_bytes())),
                standing: standing.as_deref(),
                grant: grant.as_deref(),
                ..Decided::of(&card, choice(&word.verdict), &by)
            };
            match step {
                Step::Before => audit.decision(&decided),
                Step::Void(why) => audit.decision_void(&decided, &why),
            }
        })
        .await;
        recorded(written)
    }
}

fn recorded(written: Result<Result<(), AuditError>, JoinError>) -> Result<(), DecisionFault> {
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

// Such as `tool for 600s in run`.
fn spelled(standing: &Standing) -> String {
    let covers = match standing.covers {
        Covers::Arguments => "arguments",
        Covers::Tool => "tool",
    };
    let lasts = standing
        .lasts_ms
        .map_or("run".to_owned(), |ms| portcullis_policy::source::spell(Duration::from_millis(ms)));
    let of = match standing.of {
        Whose::Run => "run",
        Whose::Agent => "agent",
    };
    format!("{covers} for {lasts} in {of}")
}
