//! The operator's token file, followed; and the time of credentials.

use super::TICK;
use super::credentials::{Credentials, Noted, time};
use crate::config;
use crate::identity::{Source, TokenEntry, TokenHash};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::time::MissedTickBehavior;

/// How many ticks lie between two looks at the token file.
const TICKS_A_LOOK: u32 = 2;

/// The operator's token file, and what it was like when it was read.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    path: PathBuf,
    seen: Mark,
}

// What tells a changed file from the same one without reading it.
type Mark = Option<(u64, u64, i64, i64)>;

impl Followed {
    /// The file as it is now; taken before it is read, so that no change goes unseen.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: mark(path) }
    }
}

impl Credentials {
    /// Looks at expiry and at the token file until the gateway is gone.
    pub(crate) async fn keep_time(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count: u32 = 0;
        loop {
            ticks.tick().await;
            let now = SystemTime::now();
            self.admins.expire(now);
            for principal in self.runs.inner.tokens.expired(now) {
                self.close_soon(principal, "its credential expired", "the gateway");
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(TICKS_A_LOOK) {
                self.look().await;
            }
        }
    }

    // What a file says that cannot be read does not count: the last good one goes on.
    async fn look(&mut self) {
        let Some(file) = &mut self.file else { return };
        let path = file.path.clone();
        let now = mark(&path);
        if now == file.seen {
            return;
        }
        file.seen = now;
        let shown = path.display().to_string();
        let read = tokio::task::spawn_blocking(move || config::tokens(&path));
        let entries = match read.await {
            Ok(Ok(entries)) => configured(entries),
            Ok(Err(error)) => {
                let text = "the token file cannot be read; the tokens of before still count";
                tracing::error!(file = shown, %error, "{text}");
                return;
            }
            Err(error) => {
                tracing::error!(file = shown, %error, "reading the token file was broken off");
                return;
            }
        };
        let turnover = self.runs.inner.tokens.configure(entries);
        let (came, went) = (turnover.came.len(), turnover.went.len());
        tracing::info!(file = shown, came, went, "the token file was read again");
        let runs: Vec<String> = turnover.came.iter().map(|come| come.run.clone()).collect();
        if let Err(fault) = self.runs.inner.store.revive_runs(&runs).await {
            tracing::error!(%fault, "the runs of new tokens could not be taken up");
        }
        for principal in &turnover.came {
            let noted = Noted::credential(principal);
            if let Err(error) =
                self.record(noted, "added to the token file", "the token file").await
            {
                tracing::error!(%error, "a new token could not be recorded");
            }
        }
        for principal in turnover.went {
            self.close_soon(principal, "its credential was removed", "the token file");
        }
    }
}

/// The entries of the token file as the table takes them.
pub(crate) fn configured(entries: Vec<config::TokenEntry>) -> Vec<TokenEntry> {
    let entry = |entry: config::TokenEntry| TokenEntry {
        agent: entry.agent,
        hash: TokenHash::from(entry.sha256),
        expires: entry.expires_ms.map(|ms| u64::try_from(ms).unwrap_or_default()).and_then(time),
        source: Source::Configured,
    };
    entries.into_iter().map(entry).collect()
}

fn mark(file: &Path) -> Mark {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
