//! Removing what is old, a little at a time.

use super::statement::Statement;
use super::work::{Batch, Ran};
use super::{Store, StoreFault};

/// Most rows of each kind that one pruning removes.
pub const PRUNE_ROWS_MAX: u64 = 500;

/// What is old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Wall time: what ended by itself before it is of no use.
    pub now_ms: u64,
    /// Settled cards, ended runs, tokens and standing approvals of before go.
    pub cards_before_ms: u64,
    /// Events of before go, but the last.
    pub events_before_ms: u64,
}

/// How many rows went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Settled cards.
    pub cards: u64,
    /// Kept answers.
    pub results: u64,
    /// Runs that have ended, with no card and no run below left.
    pub runs: u64,
    /// Tokens.
    pub tokens: u64,
    /// Events.
    pub events: u64,
    /// Counts.
    pub counters: u64,
    /// Ended sessions.
    pub sessions: u64,
    /// Standing approvals.
    pub grants: u64,
}

impl Pruned {
    /// Adds what went by another pruning.
    pub fn add(&mut self, other: &Self) {
        let Self { cards, results, runs, tokens, events, counters, sessions, grants } = other;
        self.cards += cards;
        self.results += results;
        self.runs += runs;
        self.tokens += tokens;
        self.events += events;
        self.counters += counters;
        self.sessions += sessions;
        self.grants += grants;
    }

    /// Each kind of row, as metrics call it, and how many went.
    #[must_use]
    pub fn kinds(&self) -> [(&'static str, u64); 8] {
        [
            ("cards", self.cards),
            ("results", self.results),
            ("runs", self.runs),
            ("tokens", self.tokens),
            ("events", self.events),
            ("counters", self.counters),
            ("sessions", self.sessions),
            ("grants", self.grants),
        ]
    }
}

impl Store {
    /// Removes what is old, at most [`PRUNE_ROWS_MAX`] of each kind.
    ///
    /// # Errors
    /// [`StoreFault`]; then some may be gone.
    pub async fn prune(&self, retention: &Retention) -> Result<Pruned, StoreFault> {
        let Retention { now_ms, cards_before_ms, events_before_ms } = *retention;
        Ok(Pruned {
            results: self.remove(RESULTS, now_ms).await?,
            cards: self.remove(CARDS, cards_before_ms).await?,
            grants: self.remove(GRANTS, cards_before_ms).await?,
            tokens: self.remove(TOKENS, cards_before_ms).await?,
            runs: self.remove(RUNS, cards_before_ms).await?,
            events: self.remove(EVENTS, events_before_ms).await?,
            counters: self.remove(COUNTERS, now_ms).await?,
            sessions: self.remove(SESSIONS, now_ms).await?,
        })
    }

    // One transaction for each kind, so that what waits to be written comes in between.
    async fn remove(&self, sql: &'static str, before_ms: u64) -> Result<u64, StoreFault> {
        let delete = Statement::change(sql).with(before_ms).with(PRUNE_ROWS_MAX);
        Ok(match self.write_one(Batch::of(delete)).await? {
            Ran::Whole { changed, .. } => changed,
            Ran::Skipped(_) => 0,
        })
    }
}

const RESULTS: &str = "DELETE FROM results WHERE card IN \
     (SELECT card FROM results WHERE expires_ms <= $1 LIMIT $2)";
const CARDS: &str = "DELETE FROM cards WHERE id IN (SELECT id FROM cards \
     WHERE state NOT IN ('parked', 'approved', 'executing') AND updated_ms < $1 LIMIT $2)";
const GRANTS: &str = "DELETE FROM grants WHERE id IN \
     (SELECT id FROM grants WHERE ended_ms < $1 OR expires_ms < $1 LIMIT $2)";
const TOKENS: &str = "DELETE FROM tokens WHERE id IN \
     (SELECT id FROM tokens WHERE revoked_ms < $1 OR expires_ms < $1 LIMIT $2)";
// An unnamed run would come back with its credential, and its end with it be forgotten.
const RUNS: &str = "DELETE FROM runs WHERE id IN (SELECT id FROM runs AS old \
     WHERE ended_ms < $1 AND unnamed = 0 \
     AND NOT EXISTS (SELECT 1 FROM cards WHERE cards.run = old.id) \
     AND NOT EXISTS (SELECT 1 FROM runs AS below WHERE below.parent = old.id) LIMIT $2)";
// From the front alone, also where the clock went back, so that nothing is missing in between.
const EVENTS: &str = "DELETE FROM events WHERE id IN (SELECT id FROM events \
     WHERE id < COALESCE((SELECT MIN(id) FROM events WHERE at_ms >= $1), \
     (SELECT MAX(id) FROM events)) ORDER BY id LIMIT $2)";
const COUNTERS: &str = "DELETE FROM counters WHERE key IN \
     (SELECT key FROM counters WHERE ends_ms <= $1 LIMIT $2)";
const SESSIONS: &str = "DELETE FROM ended_sessions WHERE hash IN \
     (SELECT hash FROM ended_sessions WHERE expires_ms <= $1 LIMIT $2)";
