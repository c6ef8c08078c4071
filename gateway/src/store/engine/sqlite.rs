//! SQLite: readers side by side, one writer that commits what waits together.
//!
//! The file is private and of one gateway: a lock file beside it says so for as long as the
//! writer lives.

mod writer;

use super::session::Session;
use super::trouble::Trouble;
use crate::store::StoreSettings;
use crate::store::fault::StoreFault;
use crate::store::place::Spot;
use crate::store::row::Row;
use crate::store::schema;
use crate::store::statement::Statement;
use crate::store::work::{Work, Wrote};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqlitePool};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writer::Writer;

/// How long a gateway that is just ending keeps the next one waiting.
const LOCK_WAIT: Duration = Duration::from_millis(500);
/// How often the lock is asked for meanwhile.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// An open file.
#[derive(Debug)]
pub(in crate::store) struct Sqlite {
    spot: Spot,
    readers: SqlitePool,
    writer: Writer,
}

impl Sqlite {
    pub(in crate::store) async fn open(
        file: &Path,
        settings: &StoreSettings,
        trouble: Trouble,
    ) -> Result<Self, StoreFault> {
        let spot = Spot::file(file);
        let lock = lock(&beside(file), &spot).await?;
        // Made before SQLite would make it, since arguments of calls are for nobody else.
        private(file).map_err(|error| StoreFault::unavailable(&spot, &error))?;
        let failed = |error: sqlx::Error| StoreFault::of(&spot, &error);
        let options = SqliteConnectOptions::new()
            .filename(file)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(settings.busy)
            .disable_statement_logging();
        let mut connection = options.connect().await.map_err(failed)?;
        schema::bring_sqlite(&spot, &mut connection).await?;
        let readers = SqlitePoolOptions::new()
            .min_connections(1)
            .max_connections(settings.readers.max(1))
            .acquire_timeout(settings.queue)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.clone().pragma("query_only", "ON"))
            .await
            .map_err(failed)?;
        let writer = Writer::start(writer::Start {
            connection,
            options,
            lock,
            spot: spot.clone(),
            queue: settings.queue,
            trouble,
        });
        Ok(Self { spot, readers, writer })
    }

    pub(super) async fn read(&self, statement: &Statement) -> Result<Vec<Row>, StoreFault> {
        let failed = |error: sqlx::Error| StoreFault::of(&self.spot, &error);
        let mut connection = self.readers.acquire().await.map_err(failed)?;
        let done = Session::Sqlite(&mut connection).execute(statement).await.map_err(failed)?;
        Ok(done.rows)
    }

    pub(super) async fn write(&self, work: Work) -> Result<Wrote, StoreFault> {
        self.writer.write(work).await
    }

    /// Closes the readers, then the writer, so that the last connection brings the file in order.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    pub(super) fn commits(&self) -> u64 {
        self.writer.commits()
    }
}

/// The file that is locked in place of `file`.
pub(in crate::store) fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

async fn lock(file: &Path, spot: &Spot) -> Result<File, StoreFault> {
    let lock = private(file).map_err(|error| StoreFault::unavailable(spot, &error))?;
    let attempt = async {
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    };
    match tokio::time::timeout(LOCK_WAIT, attempt).await {
        Ok(Ok(())) => Ok(lock),
        Ok(Err(error)) => Err(StoreFault::unavailable(spot, &error)),
        Err(_) => Err(StoreFault::InUse { spot: spot.clone() }),
    }
}

/// Opens a file that only its owner can read, and makes it if it is not there.
fn private(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}
