//! A look at a SQLite file.

use super::super::backup::{integrity, read_only};
use super::super::engine::sqlite::beside;
use super::super::{Spot, StoreFault, schema};
use super::{COUNT_CARDS, Held, Inspection, Integrity, by_state};
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use std::fs::{File, TryLockError};
use std::path::Path;

pub(super) async fn inspect(file: &Path) -> Result<Inspection, StoreFault> {
    let spot = Spot::file(file);
    let bytes = file.metadata().map_err(|error| StoreFault::unavailable(&spot, &error))?.len();
    let seen = look(file).await.map_err(|error| StoreFault::of(&spot, &error))?;
    let wal_bytes = std::fs::metadata(with(file, "-wal")).map_or(0, |wal| wal.len());
    let integrity = match seen.findings.as_slice() {
        [] => Integrity::Sound,
        findings => Integrity::Damaged(findings.to_vec()),
    };
    Ok(Inspection {
        spot,
        schema: seen.schema,
        known: schema::known(),
        integrity,
        cards: by_state(&seen.cards),
        bytes,
        journal: format!("{}, {wal_bytes} bytes of it to be taken over", seen.journal),
        held: held(file),
    })
}

struct Seen {
    schema: i64,
    findings: Vec<String>,
    cards: Vec<(String, i64)>,
    journal: String,
}

async fn look(file: &Path) -> Result<Seen, sqlx::Error> {
    let mut connection = read_only(file).await?;
    let schema = schema::sqlite(&mut connection).await?;
    let findings = integrity(&mut connection).await?;
    let cards = if (1..=schema::known()).contains(&schema) {
        cards(&mut connection).await?
    } else {
        Vec::new()
    };
    let row = sqlx::query("PRAGMA journal_mode").fetch_one(&mut connection).await?;
    Ok(Seen { schema, findings, cards, journal: row.try_get(0)? })
}

async fn cards(connection: &mut SqliteConnection) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let rows = sqlx::query(COUNT_CARDS).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

fn with(file: &Path, end: &str) -> std::path::PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
}

// Asks for the lock for a moment; a gateway that starts just then asks again.
fn held(file: &Path) -> Held {
    let Ok(lock) = File::open(beside(file)) else { return Held::Free };
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Held::By("a gateway on this machine".to_owned()),
        Ok(()) | Err(TryLockError::Error(_)) => Held::Free,
    }
}
