//! What parked calls are kept with: times, and someone who is shown what happens.

use super::Clock;
use portcullis_policy::ledger::Card;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Times.
#[derive(Debug, Clone)]
pub struct ParkedSettings {
    /// How long an answer waits for a caller that is not there.
    pub result_keep: Duration,
    /// How long settled cards stay readable.
    pub card_keep: Duration,
    /// How long events stay readable.
    pub event_keep: Duration,
    /// How long shutdown waits for calls that run.
    pub drain: Duration,
    /// What time it is.
    pub clock: Clock,
    /// Sees every card that was parked and every step that counts; the version tells the order.
    pub witness: Witness,
}

/// Someone who is shown each card as it was committed: for audit and metrics.
#[derive(Clone)]
pub struct Witness(Arc<dyn Fn(&Card) + Send + Sync>);

impl Witness {
    /// Shows the cards to `see`, which must not wait for anything.
    #[must_use]
    pub fn new(see: impl Fn(&Card) + Send + Sync + 'static) -> Self {
        Self(Arc::new(see))
    }

    pub(super) fn see(&self, card: &Card) {
        (self.0)(card);
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

impl Default for ParkedSettings {
    fn default() -> Self {
        Self {
            result_keep: Duration::from_secs(10 * 60),
            card_keep: Duration::from_secs(90 * 24 * 60 * 60),
            event_keep: Duration::from_secs(7 * 24 * 60 * 60),
            drain: Duration::from_secs(30),
            clock: Clock::system(),
            witness: Witness::new(|_| {}),
        }
    }
}
