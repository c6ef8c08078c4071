//! Sessions that were ended before their time.

use super::row::Row;
use super::statement::Statement;
use super::work::Batch;
use super::{Store, StoreFault};

impl Store {
    /// Notes that a session was ended, for as long as its id would count.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn end_session(&self, id_hash: &[u8; 32], expires_ms: u64) -> Result<(), StoreFault> {
        let insert = Statement::change(
            "INSERT INTO ended_sessions (hash, expires_ms) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        );
        self.write_one(Batch::of(insert.with(id_hash).with(expires_ms))).await?;
        Ok(())
    }

    /// The ended sessions whose ids would still count at `now_ms`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn ended_sessions(&self, now_ms: u64) -> Result<Vec<[u8; 32]>, StoreFault> {
        let statement = Statement::rows("SELECT hash FROM ended_sessions WHERE expires_ms > $1");
        self.read(&statement.with(now_ms), Row::hash).await
    }
}
