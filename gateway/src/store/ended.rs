//! Sessions that were ended before their time.

use super::row::Row;
use super::statement::{Guard, Statement};
use super::work::Batch;
use super::{Store, StoreFault};

impl Store {
    /// Notes that a session was ended, for as long as its id would count. True for the first to
    /// do so, also where several gateways share the store.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn end_session(
        &self,
        id_hash: &[u8; 32],
        expires_ms: u64,
    ) -> Result<bool, StoreFault> {
        let insert = Statement::change(
            "INSERT INTO ended_sessions (hash, expires_ms) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        );
        let insert = insert.with(id_hash).with(expires_ms).guarded(Guard::OrSkip);
        Ok(self.write_one(Batch::of(insert)).await?.counts())
    }

    /// True if that session was ended.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn is_ended(&self, id_hash: &[u8; 32]) -> Result<bool, StoreFault> {
        let statement = Statement::rows("SELECT hash FROM ended_sessions WHERE hash = $1");
        Ok(self.read_one(&statement.with(id_hash), Row::hash).await?.is_some())
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
