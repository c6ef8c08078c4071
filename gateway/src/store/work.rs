//! What is to be written, in one transaction, and what came of it.

use super::row::Row;
use super::statement::Statement;

/// Statements that count together: all of them, or none after the first whose guard failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    /// What to do, in order.
    pub(super) statements: Vec<Statement>,
    /// What to tell those who watch, if the batch counts. Ids of events are in the order of
    /// commits, so these come last of all.
    pub(super) events: Vec<Statement>,
}

impl Batch {
    pub(super) fn of(statement: Statement) -> Self {
        Self { statements: vec![statement], events: Vec::new() }
    }

    pub(super) fn then(mut self, statement: Statement) -> Self {
        self.statements.push(statement);
        self
    }

    pub(super) fn telling(mut self, event: Statement) -> Self {
        self.events.push(event);
        self
    }
}

/// Batches that are committed together.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    pub(super) batches: Vec<Batch>,
}

impl Work {
    pub(super) fn of(batch: Batch) -> Self {
        Self { batches: vec![batch] }
    }
}

/// What came of a batch.
#[derive(Debug)]
pub(super) enum Ran {
    /// It counts.
    Whole {
        /// Rows its statements changed.
        changed: u64,
        /// Rows its statements gave.
        rows: Vec<Row>,
    },
    /// The guard of the statement at this place failed.
    Skipped(usize),
}

impl Ran {
    pub(super) fn counts(&self) -> bool {
        match self {
            Self::Whole { .. } => true,
            Self::Skipped(_) => false,
        }
    }
}

/// What came of a work.
#[derive(Debug)]
pub(super) enum Wrote {
    /// Committed, with what came of each batch.
    Each(Vec<Ran>),
    /// A guard undid all of it.
    Undone,
}
