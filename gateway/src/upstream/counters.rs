//! What is counted about one server, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one server; they only grow.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections that were made again after one was lost.
    pub(crate) restarts: AtomicU64,
    /// Messages that were dropped: unparsable, or answers nobody waited for.
    pub(crate) dropped_frames: AtomicU64,
    /// Progress and log messages that were dropped because nobody took them in time.
    pub(crate) dropped_notices: AtomicU64,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The value at this moment.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
