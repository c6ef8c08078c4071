//! How many calls one server gets at a time, and how many may wait for their turn.

use crate::upstream::message::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Most calls one server gets at one time.
pub(crate) const CALLS_MAX: usize = 256;
/// Most calls that wait for a server.
pub(crate) const WAITING_MAX: usize = 1024;

/// The gate in front of one server.
#[derive(Debug)]
pub(crate) struct Gate {
    slots: Semaphore,
    waiting: AtomicUsize,
}

impl Gate {
    /// A gate for `calls` at one time.
    pub(crate) fn new(calls: usize) -> Self {
        Self { slots: Semaphore::new(calls), waiting: AtomicUsize::new(0) }
    }

    /// Waits for a slot, not past `deadline` and not behind more than [`WAITING_MAX`] others.
    pub(crate) async fn enter(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Failure> {
        if let Ok(slot) = self.slots.try_acquire() {
            return Ok(slot);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::Busy);
        }
        let _place = Place(&self.waiting);
        match timeout_at(deadline, self.slots.acquire()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(Failure::Busy),
        }
    }

    /// Calls under way.
    pub(crate) fn in_flight(&self, calls: usize) -> usize {
        calls.saturating_sub(self.slots.available_permits())
    }
}

// A caller that goes away while it waits gives its place back.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn the_queue_is_bounded_in_length_and_time() {
        let gate = Gate::new(1);
        let deadline = Instant::now() + Duration::from_millis(20);
        let slot = gate.enter(deadline).await.unwrap();
        assert_eq!(gate.in_flight(1), 1);
        assert_eq!(gate.enter(deadline).await.unwrap_err(), Failure::Busy);
        gate.waiting.store(WAITING_MAX, Ordering::Relaxed);
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(gate.enter(later).await.unwrap_err(), Failure::Busy);
        gate.waiting.store(0, Ordering::Relaxed);
        drop(slot);
        assert!(gate.enter(later).await.is_ok());
    }
}
