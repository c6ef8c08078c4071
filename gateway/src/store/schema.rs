//! The schema of both engines, brought up to date step by step. A newer one is refused.

use super::fault::StoreFault;
use super::place::Spot;
use sqlx::Row as _;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

static SQLITE: Migrator = sqlx::migrate!("./migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("./migrations/postgres");

/// The newest schema that this version knows.
pub(super) fn known() -> i64 {
    SQLITE.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Brings a file up to date.
pub(super) async fn bring_sqlite(
    spot: &Spot,
    connection: &mut SqliteConnection,
) -> Result<(), StoreFault> {
    let found = sqlite(connection).await.map_err(|error| StoreFault::of(spot, &error))?;
    refuse_newer(spot, found)?;
    SQLITE.run(connection).await.map_err(|error| broken(spot, &error))
}

/// Brings a database up to date.
pub(super) async fn bring_postgres(
    spot: &Spot,
    connection: &mut PgConnection,
) -> Result<(), StoreFault> {
    let found = postgres(connection).await.map_err(|error| StoreFault::of(spot, &error))?;
    refuse_newer(spot, found)?;
    POSTGRES.run(connection).await.map_err(|error| broken(spot, &error))
}

/// The newest migration that was applied to a database; 0 for an empty one.
pub(super) async fn postgres(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let there = sqlx::query("SELECT 1 WHERE to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_optional(&mut *connection)
        .await?;
    if there.is_none() {
        return Ok(0);
    }
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

/// The newest migration that was applied to a file; 0 for a new one.
pub(super) async fn sqlite(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let there = sqlx::query("SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
        .fetch_optional(&mut *connection)
        .await?;
    if there.is_none() {
        return Ok(0);
    }
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

fn refuse_newer(spot: &Spot, found: i64) -> Result<(), StoreFault> {
    let known = known();
    if found > known {
        return Err(StoreFault::NewerSchema { spot: spot.clone(), found, known });
    }
    Ok(())
}

// What the engine says about itself stays that; a schema that does not fit is damage.
fn broken(spot: &Spot, error: &MigrateError) -> StoreFault {
    if let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) = error {
        return StoreFault::of(spot, error);
    }
    StoreFault::corrupt(spot, error)
}
