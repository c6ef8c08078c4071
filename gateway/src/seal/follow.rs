//! Takes up a key file that changed while the gateway runs.

use super::{Seal, key_file};
use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often the file is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file, if it is there.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let file = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            // Permissions count as well: a file that others can read is refused.
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

/// What a look at the file led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing had changed.
    Same,
    /// Its keys are in force.
    Taken,
    /// It cannot be used; the keys from before stay in force.
    Kept,
}

impl Seal {
    /// Looks at the file again and again, and takes up every change of it. Runs until it is
    /// dropped.
    pub fn follow(&self, path: &Path) -> impl Future<Output = ()> + Send + 'static {
        let (seal, path) = (self.clone(), path.to_owned());
        async move {
            let mut tick = tokio::time::interval(LOOK_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                seal.look(&path);
            }
        }
    }

    /// Looks once. A state of the file that cannot be used is reported once.
    pub(crate) fn look(&self, path: &Path) -> Look {
        // Taken before the file is read: a change in between is seen at the next look.
        let stamp = Stamp::of(path);
        let mut seen = self.shared.seen.lock();
        if *seen == stamp {
            return Look::Same;
        }
        *seen = stamp;
        drop(seen);
        match key_file::ring(path) {
            Ok(ring) => {
                self.replace(ring);
                tracing::info!(keys = ?self, "the sealing keys changed and are in force");
                Look::Taken
            }
            Err(error) => {
                tracing::error!(%error, "the sealing keys changed but cannot be used; those from before stay in force");
                Look::Kept
            }
        }
    }
}
