//! How far each webhook was told of what happened.

use super::row::Row;
use super::statement::Statement;
use super::work::Batch;
use super::{Store, StoreFault};

/// How far a webhook was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The last event that it was told, or that it is not told.
    pub event: i64,
    /// How often the one after that was tried.
    pub tries: u64,
    /// Wall time of the first of these tries.
    pub since_ms: u64,
}

impl Store {
    /// How far the webhook of that name was told; none if it is new.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn webhook(&self, name: &str) -> Result<Option<Told>, StoreFault> {
        let statement =
            Statement::rows("SELECT event, tries, since_ms FROM webhooks WHERE name = $1");
        let told = |row: &mut Row| {
            Ok(Told { event: row.signed()?, tries: row.big()?, since_ms: row.big()? })
        };
        self.read_one(&statement.with(name), told).await
    }

    /// Notes how far the webhook of that name was told.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn webhook_told(&self, name: &str, told: &Told) -> Result<(), StoreFault> {
        let upsert = Statement::change(
            "INSERT INTO webhooks (name, event, tries, since_ms) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (name) DO UPDATE SET event = excluded.event, tries = excluded.tries, \
             since_ms = excluded.since_ms",
        );
        let upsert = upsert.with(name).with(told.event).with(told.tries).with(told.since_ms);
        self.write_one(Batch::of(upsert)).await?;
        Ok(())
    }
}
