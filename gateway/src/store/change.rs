//! The steps of cards: each counts if it replaced the version it was made from.

use super::fault::Misfit;
use super::results::{self, Kept};
use super::row::Row;
use super::statement::{Guard, Statement};
use super::work::{Batch, Ran, Work};
use super::{Store, StoreFault, events, grants};
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, Grant, Verdict};

/// A step to commit: the card as it becomes, and what goes with it.
#[derive(Debug, Clone)]
pub struct Change {
    /// The card; it replaces the version before its own and no other.
    pub card: Card,
    /// Kept for a caller that is not there.
    pub kept: Option<Kept>,
    /// The step is a decision on the card, which is put on record.
    pub decided: bool,
    /// What the decision lets pass from now on.
    pub given: Option<Grant>,
    /// Nobody who watches needs to know.
    pub silent: bool,
}

/// A decision on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRow {
    /// The card.
    pub card: String,
    /// The version of the card that it made.
    pub version: u64,
    /// Who decided.
    pub name: String,
    /// In which role.
    pub role: String,
    /// `approve` or `deny`.
    pub verdict: String,
    /// Why; may be empty.
    pub reason: String,
    /// Digest of the arguments it was made on.
    pub digest: Digest,
    /// Wall time.
    pub at_ms: u64,
}

impl Store {
    /// Commits steps in one transaction and says of each if it counts. One that does not count
    /// was overtaken: read the card again.
    ///
    /// # Errors
    /// [`StoreFault`]; then no step counts as far as the store can tell.
    pub async fn commit(&self, changes: &[Change]) -> Result<Vec<bool>, StoreFault> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let batches = changes.iter().map(|change| self.step(change, Guard::OrSkip));
        let work = Work { batches: batches.collect::<Result<_, _>>()? };
        Ok(self.write_each(work).await?.iter().map(Ran::counts).collect())
    }

    /// The decisions on a card, in their order.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn decisions(&self, card: &str) -> Result<Vec<DecisionRow>, StoreFault> {
        let statement = Statement::rows(
            "SELECT card, version, name, role, verdict, reason, digest, at_ms \
             FROM decisions WHERE card = $1 ORDER BY version",
        );
        self.read(&statement.with(card), parse).await
    }

    /// One step; `guard` says what becomes of it, or of all, if it was overtaken.
    pub(super) fn step(&self, change: &Change, guard: Guard) -> Result<Batch, StoreFault> {
        let card = &change.card;
        let doc = card.write().map_err(|fault| self.misfit(&fault.into()))?;
        let update = Statement::change(
            "UPDATE cards SET version = $1, state = $2, doc = $3, updated_ms = $4 \
             WHERE id = $5 AND version = $6",
        )
        .with(card.version())
        .with(card.state().as_str())
        .with(doc)
        .with(card.updated_ms())
        .with(card.id())
        .with(card.version().saturating_sub(1))
        .guarded(guard);
        let mut batch = Batch::of(update);
        if let Some(kept) = &change.kept {
            batch = batch.then(results::keep(card.id(), kept));
        }
        if change.decided {
            batch.statements.extend(decision(card));
        }
        if let Some(grant) = &change.given {
            let [insert, told] = grants::give(grant);
            batch = batch.then(insert).telling(told);
        }
        Ok(if change.silent { batch } else { batch.telling(events::of_card(card)) })
    }
}

/// Puts what was said last of a card on record.
pub(super) fn decision(card: &Card) -> Option<Statement> {
    let decision = card.decision().or_else(|| card.votes().last())?;
    let (verdict, reason) = match &decision.verdict {
        Verdict::Approve => ("approve", ""),
        Verdict::Deny { reason } => ("deny", reason.as_str()),
    };
    let statement = Statement::change(
        "INSERT INTO decisions (card, version, name, role, verdict, reason, digest, at_ms) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .with(card.id())
    .with(card.version())
    .with(decision.by.name.as_str())
    .with(decision.by.role.as_str())
    .with(verdict)
    .with(reason)
    .with(card.digest().to_string())
    .with(decision.at_ms);
    Some(statement)
}

fn parse(row: &mut Row) -> Result<DecisionRow, Misfit> {
    Ok(DecisionRow {
        card: row.text()?,
        version: row.big()?,
        name: row.text()?,
        role: row.text()?,
        verdict: row.text()?,
        reason: row.text()?,
        digest: row.digest()?,
        at_ms: row.big()?,
    })
}
