//! Runs: one live delegation of an agent each. They are started, narrowed, found, and ended
//! together with everything below them.
//!
//! A run ends in one transaction with its cards; only then does what is open on it close. When
//! [`Runs::end`] answers, nothing of the run can start any more.

mod credentials;
mod end;
mod pairs;
mod start;
mod table;
mod token_file;

use crate::audit::Audit;
use crate::identity::{Principal, Seat, Tokens};
use crate::parked::{Clock, ParkError, Parked, StopError};
use crate::scopes::Scopes;
use crate::store::{Cursor, LIST_ITEMS_MAX, RunFilter, RunNamed, RunRow, Store, StoreFault};
use portcullis_policy::ledger::{Card, Deadline};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

pub use credentials::{Credentials, MINTED_MAX, NewToken, TokenError};
pub use pairs::{Over, Pairs, Subagent};
pub use start::{
    NewRun, ParentOf, RUNS_MAX, RUNS_OF_AGENT_MAX, RUNS_OF_PARENT_MAX, StartRunError, Started,
};
pub use table::DEPTH_MAX;
pub(crate) use table::{LiveRun, RunTable};
pub(crate) use token_file::{Followed, configured};

/// How often the time of runs and credentials is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How many ticks lie between two tries to end what the store did not take.
const TICKS_A_RETRY: u32 = 8;
/// How many ticks lie between two notes of the time that runs have left.
const TICKS_A_MARK: u32 = 120;
/// How long the end of a run waits for what is open on it to close.
const CLOSING: Duration = Duration::from_secs(5);

/// What runs are made with.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// How long a run lives whose starter does not say.
    pub ttl: Duration,
    /// How long a run may live.
    pub ttl_max: Duration,
    /// The start of a run's URL, without a slash at the end.
    pub url: String,
}

/// The runs of the gateway. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runs {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: RunSettings,
    table: Arc<RunTable>,
    tokens: Arc<Tokens>,
    scopes: Scopes,
    store: Store,
    parked: Parked,
    audit: Arc<Audit>,
    clock: Clock,
    pairs: Pairs,
}

/// What runs stand on.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) settings: RunSettings,
    pub(crate) table: Arc<RunTable>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) scopes: Scopes,
    pub(crate) store: Store,
    pub(crate) parked: Parked,
    pub(crate) audit: Arc<Audit>,
    pub(crate) clock: Clock,
}

/// What ended together.
#[derive(Debug, Default)]
pub struct Ended {
    /// The runs, the one that was named first.
    pub runs: Vec<RunRow>,
    /// The cards that were settled.
    pub cards: Vec<Card>,
}

impl Runs {
    /// Takes up the runs of the store. What ran out while no gateway was there ends at the first
    /// look at the time.
    ///
    /// # Errors
    /// [`StoreFault`] if the store cannot be read.
    pub(crate) async fn open(ground: Ground) -> Result<Self, StoreFault> {
        let Ground { settings, table, tokens, scopes, store, parked, audit, clock } = ground;
        let pairs = Pairs::default();
        let inner = Inner { settings, table, tokens, scopes, store, parked, audit, clock, pairs };
        let runs = Self { inner: Arc::new(inner) };
        for row in runs.inner.store.live_runs().await? {
            start::take_up(&runs.inner, &row);
        }
        Ok(runs)
    }

    /// Which runs belong to which subagents.
    #[must_use]
    pub fn pairs(&self) -> &Pairs {
        &self.inner.pairs
    }

    /// Starts a run.
    ///
    /// # Errors
    /// [`StartRunError`]; then nothing was started.
    pub async fn start(&self, new: NewRun) -> Result<Started, StartRunError> {
        start::start(&self.inner, new).await
    }

    /// Makes sure that the unnamed run of a credential is there, as a card needs it.
    ///
    /// # Errors
    /// [`ParkError::RunEnded`] if the credential has ended meanwhile, [`ParkError::Store`].
    pub(crate) async fn ensure(&self, principal: &Principal) -> Result<(), ParkError> {
        if principal.seat == Seat::Run {
            return Ok(());
        }
        match start::ensure(&self.inner, &principal.run, &principal.agent).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(ParkError::RunEnded),
            Err(fault) => Err(ParkError::Store(fault)),
        }
    }

    /// Ends a run and all below it: their cards are settled, their calls cancelled and their
    /// tokens dead when it returns. A run that has ended already gives nothing. Goes on to its
    /// end even if its caller does not wait.
    ///
    /// # Errors
    /// [`StopError`]; then nothing of them begins any more, and what the store did not take is
    /// tried again until it does.
    pub async fn end(&self, id: &str, why: &str, by: &str) -> Result<Ended, StopError> {
        let (runs, id) = (self.clone(), id.to_owned());
        let (why, by) = (why.to_owned(), by.to_owned());
        let ending = tokio::spawn(async move { end::end(&runs.inner, &id, &why, &by).await });
        ending.await.unwrap_or(Err(StopError::Stopping))
    }

    /// The runs of `filter`, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreFault> {
        self.inner.store.list_runs(filter).await
    }

    /// All runs of `filter`, page after page.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list_all(&self, mut filter: RunFilter) -> Result<Vec<RunRow>, StoreFault> {
        let mut rows: Vec<RunRow> = Vec::new();
        loop {
            let page = self.inner.store.list_runs(&filter).await?;
            let whole = page.len() < LIST_ITEMS_MAX as usize;
            filter.after =
                page.last().map(|row| Cursor { created_ms: row.created_ms, id: row.id.clone() });
            rows.extend(page);
            if whole {
                return Ok(rows);
            }
        }
    }

    /// The run whose id is or starts with `id`, with or without `run_`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn named(&self, id: &str) -> Result<RunNamed, StoreFault> {
        self.inner.store.run_named(id).await
    }

    /// The URL of a run.
    #[must_use]
    pub fn url(&self, row: &RunRow) -> String {
        let (base, agent) = (&self.inner.settings.url, row.agent.as_str());
        if row.unnamed {
            return format!("{base}/a/{agent}/mcp");
        }
        format!("{base}/a/{agent}/r/{}/mcp", row.id)
    }

    /// Looks at the time of runs until the gateway is gone.
    pub(crate) async fn keep_time(self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count: u32 = 0;
        loop {
            ticks.tick().await;
            let times = self.inner.table.times(self.inner.clock.steady_ms());
            for id in times.over {
                self.end_soon(id, "its time was over", "the gateway");
            }
            if count.is_multiple_of(TICKS_A_RETRY) {
                self.retry();
            }
            if count.is_multiple_of(TICKS_A_MARK) {
                self.mark(times.left).await;
            }
            count = count.wrapping_add(1);
        }
    }

    fn retry(&self) {
        for (id, why, by) in self.inner.table.unfinished() {
            self.end_soon(id, &why, &by);
        }
    }

    // Without waiting: one run that is slow to close keeps no other one open.
    fn end_soon(&self, id: String, why: &str, by: &str) {
        let (runs, why, by) = (self.clone(), why.to_owned(), by.to_owned());
        tokio::spawn(async move {
            if let Err(error) = runs.end(&id, &why, &by).await {
                tracing::error!(%error, run = id, "a run could not be ended in the store; it is tried again");
            }
        });
    }

    // Writes down the time left, so that a restart after a clock jump knows what has passed.
    async fn mark(&self, left: Vec<(String, u64)>) {
        let written_ms = self.inner.clock.wall_ms();
        let marks: Vec<(String, Deadline)> =
            left.into_iter().map(|(id, left_ms)| (id, Deadline { left_ms, written_ms })).collect();
        if let Err(fault) = self.inner.store.mark_runs(&marks).await {
            tracing::warn!(%fault, "the time left of the runs could not be stored");
        }
    }
}
