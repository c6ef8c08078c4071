//! Counts within windows of time, for quotas that outlive the gateway.

use super::row::Row;
use super::statement::Statement;
use super::work::{Batch, Ran};
use super::{Store, StoreFault};

impl Store {
    /// Counts one for `key` and returns the new count in the window that `now_ms` is in.
    /// Windows start at multiples of `window_ms`. A clock that goes back opens no new window.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing was counted as far as the store can tell.
    pub async fn count(&self, key: &str, window_ms: u64, now_ms: u64) -> Result<u64, StoreFault> {
        let start_ms = start(window_ms, now_ms);
        let upsert = Statement::rows(
            "INSERT INTO counters (key, started_ms, ends_ms, count) VALUES ($1, $2, $3, 1) \
             ON CONFLICT (key) DO UPDATE SET \
             count = CASE WHEN excluded.started_ms > counters.started_ms THEN 1 \
             ELSE counters.count + 1 END, \
             started_ms = CASE WHEN excluded.started_ms > counters.started_ms \
             THEN excluded.started_ms ELSE counters.started_ms END, \
             ends_ms = CASE WHEN excluded.started_ms > counters.started_ms \
             THEN excluded.ends_ms ELSE counters.ends_ms END \
             RETURNING count",
        )
        .with(key)
        .with(start_ms)
        .with(start_ms.saturating_add(window_ms));
        let rows = match self.write_one(Batch::of(upsert)).await? {
            Ran::Whole { rows, .. } => rows,
            Ran::Skipped(_) => Vec::new(),
        };
        let count = rows.into_iter().next().map(|mut row| row.big()).transpose();
        Ok(count.map_err(|misfit| self.misfit(&misfit))?.unwrap_or_default())
    }

    /// The count of `key` in the window that `now_ms` is in.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn counted(&self, key: &str, window_ms: u64, now_ms: u64) -> Result<u64, StoreFault> {
        let statement =
            Statement::rows("SELECT count FROM counters WHERE key = $1 AND started_ms >= $2");
        let statement = statement.with(key).with(start(window_ms, now_ms));
        Ok(self.read_one(&statement, Row::big).await?.unwrap_or_default())
    }
}

fn start(window_ms: u64, now_ms: u64) -> u64 {
    now_ms - now_ms.checked_rem(window_ms).unwrap_or_default()
}
