//! What time it is: one wall clock for people and records, one that never jumps for limits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Both clocks.
#[derive(Clone)]
pub struct Clock {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    // The second is what the wall clock is ahead of this machine's, in milliseconds.
    System(Instant, Arc<AtomicI64>),
    Manual(ManualClock),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::System(..) => "Clock::system()",
            Kind::Manual(_) => "Clock::manual()",
        })
    }
}

impl Clock {
    /// The clocks of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self { kind: Kind::System(Instant::now(), Arc::default()) }
    }

    /// Clocks that a test moves.
    #[must_use]
    pub fn manual(wall_ms: u64) -> (Self, ManualClock) {
        let manual = ManualClock {
            wall_ms: Arc::new(AtomicU64::new(wall_ms)),
            steady_ms: Arc::new(AtomicU64::new(0)),
        };
        (Self { kind: Kind::Manual(manual.clone()) }, manual)
    }

    /// Takes over a wall clock that is `ahead_ms` ahead of this machine's: with a database that
    /// several machines share, its clock is the only one.
    pub fn follow(&self, ahead_ms: i64) {
        match &self.kind {
            Kind::System(_, known) => known.store(ahead_ms, Ordering::Relaxed),
            Kind::Manual(_) => {}
        }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        match &self.kind {
            Kind::System(_, ahead_ms) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .ok()
                .and_then(|since| u64::try_from(since.as_millis()).ok())
                .unwrap_or_default()
                .saturating_add_signed(ahead_ms.load(Ordering::Relaxed)),
            Kind::Manual(manual) => manual.wall_ms.load(Ordering::SeqCst),
        }
    }

    /// Milliseconds since the clock was made; never goes back.
    #[must_use]
    pub fn steady_ms(&self) -> u64 {
        match &self.kind {
            Kind::System(start, _) => {
                u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
            }
            Kind::Manual(manual) => manual.steady_ms.load(Ordering::SeqCst),
        }
    }
}

/// Moves the clocks of [`Clock::manual`].
#[derive(Debug, Clone)]
pub struct ManualClock {
    wall_ms: Arc<AtomicU64>,
    steady_ms: Arc<AtomicU64>,
}

impl ManualClock {
    /// Lets time pass on both.
    pub fn advance(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock, as an administrator or a time server does.
    pub fn jump(&self, wall_ms: u64) {
        self.wall_ms.store(wall_ms, Ordering::SeqCst);
    }
}
