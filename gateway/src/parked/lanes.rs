//! Identical calls park one after another, different ones side by side.

use portcullis_policy::canonical::Digest;
use tokio::sync::Mutex;

/// How many lanes there are. Two keys in one lane wait for each other, and that is all.
const LANES: usize = 64;

/// The lookups and the insert of a call belong together: each lane has one call at a time.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Mutex<()>>,
    spare: Mutex<()>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { lanes: (0..LANES).map(|_| Mutex::default()).collect(), spare: Mutex::default() }
    }
}

impl Lanes {
    /// The lane of a key.
    pub(super) fn of(&self, key: Digest) -> &Mutex<()> {
        let number = u64::from_str_radix(&key.short(4), 16).unwrap_or_default();
        let at = usize::try_from(number).unwrap_or_default() % LANES;
        self.lanes.get(at).unwrap_or(&self.spare)
    }
}
