//! Opening the file: locked, private, of a schema that is known.

use super::{Store, StoreFault, StoreSettings, fault};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row as _, SqlitePool};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

impl Store {
    /// Opens the file, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreFault`] if another gateway has it, a newer one wrote it, or it cannot be used.
    pub async fn open(settings: &StoreSettings) -> Result<Self, StoreFault> {
        let file = settings.file.as_path();
        let unavailable = |error: io::Error| StoreFault::Unavailable {
            file: file.display().to_string(),
            cause: error.to_string(),
        };
        let lock = private(&beside(file)).map_err(unavailable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreFault::InUse { file: file.display().to_string() });
            }
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
        }
        // Made before SQLite would make it, since arguments of calls are for nobody else.
        private(file).map_err(unavailable)?;
        let options = SqliteConnectOptions::new()
            .filename(file)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(settings.busy);
        let pool = |size: u32| {
            SqlitePoolOptions::new()
                .min_connections(1)
                .max_connections(size)
                .acquire_timeout(settings.queue)
                .idle_timeout(None)
                .max_lifetime(None)
        };
        let failed = |error: sqlx::Error| fault(file, &error);
        let writer = pool(1).connect_with(options.clone()).await.map_err(failed)?;
        migrate(file, &writer).await?;
        let readers = pool(settings.readers.max(1)).connect_with(options).await.map_err(failed)?;
        Ok(Self { file: file.into(), writer, readers, _lock: Arc::new(lock) })
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn private(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

async fn migrate(file: &Path, writer: &SqlitePool) -> Result<(), StoreFault> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
    let found = schema(writer).await.map_err(|error| fault(file, &error))?;
    if found > known {
        return Err(StoreFault::NewerSchema { file: file.display().to_string(), found, known });
    }
    MIGRATIONS.run(writer).await.map_err(|error| StoreFault::Corrupt {
        file: file.display().to_string(),
        cause: error.to_string(),
    })
}

// The newest migration that was applied; 0 for a new file.
async fn schema(writer: &SqlitePool) -> Result<i64, sqlx::Error> {
    let there = sqlx::query("SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
        .fetch_optional(writer)
        .await?;
    if there.is_none() {
        return Ok(0);
    }
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations")
        .fetch_one(writer)
        .await?;
    row.try_get(0)
}
