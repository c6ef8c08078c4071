//! Where the truth about parked calls is: a SQLite file or a PostgreSQL database.
//!
//! A card counts when its row is committed, synced to disk; a step counts when the conditional
//! update of that row changed it. The store knows no rule of its own. It refuses a place that is
//! in use, damaged or of a newer schema, and says what to do.

mod backup;
mod cards;
mod change;
mod counters;
mod ended;
mod engine;
mod events;
mod fault;
mod grants;
#[cfg(test)]
pub(crate) mod ground;
mod inspect;
mod pins;
mod place;
mod prune;
mod results;
mod row;
mod runs;
mod schema;
mod statement;
mod tokens;
mod webhooks;
mod work;

#[cfg(test)]
mod tests;

use engine::Engine;
use engine::postgres::Postgres;
use engine::sqlite::Sqlite;
use engine::trouble::Trouble;
use fault::Misfit;
use row::Row;
use statement::Statement;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use work::{Batch, Ran, Work, Wrote};

pub use backup::{BackupFault, backup};
pub use cards::{Cursor, Filter, Inserted, LIST_ITEMS_MAX, Named, Order, Standing};
pub use change::{Change, DecisionRow};
pub use events::{EVENTS_MAX, EventRow};
pub use fault::StoreFault;
pub use grants::{GrantFilter, GrantRow};
pub use inspect::{Held, Inspection, Integrity, inspect};
pub use pins::PinRow;
pub use place::{Place, Spot};
pub use prune::{PRUNE_ROWS_MAX, Pruned, Retention};
pub use results::{Kept, KeptKind};
pub use runs::{RUN_DEPTH_MAX, RunEnd, RunFilter, RunNamed, RunRow};
pub use tokens::{Holder, TokenRow};
pub use webhooks::Told;

/// The store. Cheap to clone; the place is released when the last clone is gone and what it
/// took is written.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Arc<Engine>,
    spot: Spot,
    told: Arc<watch::Sender<u64>>,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask it for failures"))]
    trouble: Trouble,
}

/// How the store is opened.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// Where it is.
    pub place: Place,
    /// Connections that read; with PostgreSQL also those that write.
    pub readers: u32,
    /// How long a statement waits for a lock that somebody else has.
    pub busy: Duration,
    /// How long a statement waits for those before it.
    pub queue: Duration,
}

impl StoreSettings {
    /// The usual settings for a SQLite file.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self::at(Place::Sqlite(file.into()))
    }

    /// The usual settings for a place.
    #[must_use]
    pub fn at(place: Place) -> Self {
        Self { place, readers: 4, busy: Duration::from_secs(5), queue: Duration::from_secs(10) }
    }
}

impl Store {
    /// Opens the place, makes a file that is not there, and brings the schema up to date.
    ///
    /// # Errors
    /// [`StoreFault`] if another gateway has it, a newer one wrote it, or it cannot be used.
    pub async fn open(settings: &StoreSettings) -> Result<Self, StoreFault> {
        let spot = settings.place.spot();
        let trouble = Trouble::default();
        let given = trouble.clone();
        let engine = match &settings.place {
            Place::Sqlite(file) => Engine::Sqlite(Sqlite::open(file, settings, given).await?),
            Place::Postgres(url) => Engine::Postgres(Postgres::open(url, settings, given).await?),
        };
        Ok(Self { engine: Arc::new(engine), spot, told: Arc::default(), trouble })
    }

    /// The clock of the database minus ours: with PostgreSQL it is the one that counts.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn clock_offset_ms(&self) -> Result<i64, StoreFault> {
        self.engine.clock_offset_ms().await
    }

    /// Writes what waits and gives the place free. What is asked of it after that fails.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Transactions committed since it was opened: what waits together is committed together.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.engine.commits()
    }

    async fn read<T>(
        &self,
        statement: &Statement,
        parse: impl Fn(&mut Row) -> Result<T, Misfit>,
    ) -> Result<Vec<T>, StoreFault> {
        let rows = self.engine.read(statement).await?;
        let parsed: Result<Vec<T>, Misfit> =
            rows.into_iter().map(|mut row| parse(&mut row)).collect();
        parsed.map_err(|misfit| self.misfit(&misfit))
    }

    async fn read_one<T>(
        &self,
        statement: &Statement,
        parse: impl Fn(&mut Row) -> Result<T, Misfit>,
    ) -> Result<Option<T>, StoreFault> {
        Ok(self.read(statement, parse).await?.pop())
    }

    /// Changes with every commit of this gateway that has an event.
    #[must_use]
    pub fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    async fn write(&self, work: Work) -> Result<Wrote, StoreFault> {
        let tells = work.batches.iter().any(|batch| !batch.events.is_empty());
        let wrote = self.engine.write(work).await?;
        if tells {
            self.told.send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(wrote)
    }

    /// Writes one batch; `Skipped` also if a guard undid it.
    async fn write_one(&self, batch: Batch) -> Result<Ran, StoreFault> {
        let mut each = self.write_each(Work::of(batch)).await?;
        Ok(each.pop().unwrap_or(Ran::Skipped(0)))
    }

    async fn write_each(&self, work: Work) -> Result<Vec<Ran>, StoreFault> {
        match self.write(work).await? {
            Wrote::Each(each) => Ok(each),
            Wrote::Undone => Ok(Vec::new()),
        }
    }

    fn misfit(&self, misfit: &Misfit) -> StoreFault {
        StoreFault::corrupt(&self.spot, misfit)
    }
}
