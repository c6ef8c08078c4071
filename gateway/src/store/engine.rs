//! The two engines behind one face: read a statement, write a work.

pub(super) mod session;
pub(super) mod sqlite;

use super::fault::StoreFault;
use super::row::Row;
use super::statement::Statement;
use super::work::{Work, Wrote};
use sqlite::Sqlite;

/// An engine that is open.
#[derive(Debug)]
pub(super) enum Engine {
    Sqlite(Sqlite),
}

impl Engine {
    /// Reads what is committed.
    pub(super) async fn read(&self, statement: &Statement) -> Result<Vec<Row>, StoreFault> {
        match self {
            Self::Sqlite(sqlite) => sqlite.read(statement).await,
        }
    }

    /// Commits a work, or nothing of it. A caller that goes away does not undo it.
    pub(super) async fn write(&self, work: Work) -> Result<Wrote, StoreFault> {
        match self {
            Self::Sqlite(sqlite) => sqlite.write(work).await,
        }
    }

    /// Transactions that were committed since the store was opened.
    pub(super) fn commits(&self) -> u64 {
        match self {
            Self::Sqlite(sqlite) => sqlite.commits(),
        }
    }
}
