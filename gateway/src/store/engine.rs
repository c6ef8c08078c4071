//! The two engines behind one face: read a statement, write a work.

pub(super) mod postgres;
mod session;
pub(super) mod sqlite;
pub(super) mod trouble;

use super::fault::StoreFault;
use super::row::Row;
use super::statement::Statement;
use super::work::{Work, Wrote};
use postgres::Postgres;
use sqlite::Sqlite;

/// An engine that is open.
#[derive(Debug)]
pub(super) enum Engine {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Engine {
    /// Reads what is committed.
    pub(super) async fn read(&self, statement: &Statement) -> Result<Vec<Row>, StoreFault> {
        match self {
            Self::Sqlite(sqlite) => sqlite.read(statement).await,
            Self::Postgres(postgres) => postgres.read(statement).await,
        }
    }

    /// Commits a work, or nothing of it. A caller that goes away does not undo it.
    pub(super) async fn write(&self, work: Work) -> Result<Wrote, StoreFault> {
        match self {
            Self::Sqlite(sqlite) => sqlite.write(work).await,
            Self::Postgres(postgres) => postgres.write(work).await,
        }
    }

    /// Transactions that were committed since the store was opened.
    pub(super) fn commits(&self) -> u64 {
        match self {
            Self::Sqlite(sqlite) => sqlite.commits(),
            Self::Postgres(postgres) => postgres.commits(),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close().await,
            Self::Postgres(postgres) => postgres.close().await,
        }
    }

    /// The clock of the engine minus ours.
    pub(super) async fn clock_offset_ms(&self) -> Result<i64, StoreFault> {
        match self {
            Self::Sqlite(_) => Ok(0),
            Self::Postgres(postgres) => postgres.clock_offset_ms().await,
        }
    }
}
