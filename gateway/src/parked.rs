//! Parked calls: who waits for which card, and the execution of the ledger's effects.
//!
//! Memory holds waiters and running calls, the store holds the truth. A call starts only when
//! its card is approved, a caller is there and the fresh decision permits it, and only after the
//! step to executing is committed; so it runs at most once, exactly as approved.

mod clock;
mod execute;
mod join;
mod lanes;
mod memory;
mod outcome;
mod settings;
mod step;
mod stop;
mod sweep;
mod tasks;
mod ticket;

#[cfg(test)]
mod tests;

use crate::store::{Filter, Named, Pruned, RunRow, Store, StoreFault};
use lanes::Lanes;
use memory::Memory;
use portcullis_policy::decide::{Caps, NotNow, Permit, Request};
use portcullis_policy::ledger::{Ancestor, Approved, Card, Decider, Grant, Word};
use portcullis_policy::name::{AgentName, ServerName};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tasks::Tasks;
use tokio::sync::watch;

pub use clock::{Clock, ManualClock};
pub use memory::ProgressSender;
pub use outcome::{AttachError, DecideError, Executed, ParkError, Settlement, StopError};
pub use settings::{ParkedSettings, Witness};
pub use ticket::{Reached, Ticket, TicketEvent};

/// Largest answer that is kept for a caller that is not there.
pub const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Largest answer that is kept for a caller that polls.
pub const TASK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long an approved call may take, for the life of its task, in milliseconds.
const TASK_RUN_MS: u64 = 60 * 60 * 1_000;

/// How long a task lives after its call, in milliseconds: as long as it may take to decide, to
/// start and to run, and as long as an answer is kept after that.
pub(crate) fn task_life_ms(card: &Card, keep_ms: u64) -> u64 {
    let asked = card.asked();
    [asked.decide_within_ms, asked.use_within_ms, TASK_RUN_MS, keep_ms]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// Who calls: an agent in one of its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The agent.
    pub agent: AgentName,
    /// The run.
    pub run: String,
    /// The server of a one-server endpoint: for a caller there, others have no calls.
    pub server: Option<ServerName>,
}

/// Where a call comes from, as its card keeps it.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The runs above the caller's, the nearest first.
    pub above: Vec<Ancestor>,
    /// How many calls may be parked.
    pub caps: Caps,
    /// True if the caller polls: then the call runs without one that waits.
    pub task: bool,
}

/// What ended together, in one transaction.
#[derive(Debug, Default)]
pub struct Stopped {
    /// The runs, the one that was named first.
    pub runs: Vec<RunRow>,
    /// The cards, as they are now.
    pub cards: Vec<Card>,
}

/// A call under way.
pub type Running = Pin<Box<dyn Future<Output = Executed> + Send>>;
/// See [`Runner::judge`].
pub type Judge = Box<dyn Fn(&Card, &Approved) -> Result<Permit, NotNow> + Send + Sync>;
/// See [`Runner::vouch`].
pub type Vouch = Arc<dyn Fn(&Card, &Grant) -> bool + Send + Sync>;
/// See [`Runner::run`].
pub type Run = Box<dyn Fn(Card, Permit, ProgressSender) -> Running + Send + Sync>;

/// How the gateway decides an approved call anew and runs it.
pub struct Runner {
    /// The fresh decision, asked right before the call would start.
    pub judge: Judge,
    /// Puts on record that a standing approval decides a card, if its giver still may. Asked
    /// before the card is made; it may wait for the disk.
    pub vouch: Vouch,
    /// Sends the call. Dropping the future must end the call: that is how a stop reaches it.
    pub run: Run,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// All parked calls of the gateway. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Parked {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    settings: ParkedSettings,
    runner: Runner,
    memory: Memory,
    changes: watch::Sender<u64>,
    stopping: watch::Sender<bool>,
    // Nothing runs before what judges it is there.
    begun: AtomicBool,
    tasks: Tasks,
    lanes: Lanes,
    pruned: parking_lot::Mutex<Pruned>,
    // Ends of calls that the store did not take; the sweep tries again.
    unsaved: parking_lot::Mutex<Vec<(String, Executed)>>,
    // Cards of tasks that the store may have taken although it said no; the sweep ends them.
    unmade: parking_lot::Mutex<Vec<String>>,
}

impl Parked {
    /// Takes up the cards of `store`: what was executing may have run, and is never run again;
    /// what was parked or approved is back, unattended. Starts the sweep. Nothing runs before
    /// [`Parked::begin`].
    ///
    /// # Errors
    /// [`StoreFault`] if the store cannot be read or written.
    pub async fn open(
        store: Store,
        settings: ParkedSettings,
        runner: Runner,
    ) -> Result<Self, StoreFault> {
        let inner = Arc::new(Inner {
            store,
            settings,
            runner,
            memory: Memory::default(),
            changes: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            begun: AtomicBool::new(false),
            tasks: Tasks::new(),
            lanes: Lanes::default(),
            pruned: parking_lot::Mutex::default(),
            unsaved: parking_lot::Mutex::new(Vec::new()),
            unmade: parking_lot::Mutex::new(Vec::new()),
        });
        sweep::follow_clock(&inner).await?;
        sweep::recover(&inner).await?;
        sweep::start(&inner);
        Ok(Self { inner })
    }

    /// Lets approved calls run: what decides them anew is there.
    pub fn begin(&self) {
        self.inner.begun.store(true, Ordering::SeqCst);
        sweep::offer_all(&self.inner);
    }

    /// Parks a call, or joins the live card of the identical one, or returns the answer that its
    /// caller never got.
    ///
    /// # Errors
    /// [`ParkError`]; then nothing is parked.
    pub async fn park(
        &self,
        caller: &Caller,
        request: Request,
        origin: Origin,
    ) -> Result<Ticket, ParkError> {
        let inner = Arc::clone(&self.inner);
        let caller = caller.clone();
        // Owned, so that a caller that goes away half way leaves no card without a waiter.
        let work = async move { join::park(&inner, &caller, &request, &origin).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(ParkError::Stopping))
    }

    /// Joins the caller to a card of its run, as `approval_status` does. An approved call runs.
    ///
    /// # Errors
    /// [`AttachError`]; a foreign id and an unknown one answer the same.
    pub async fn attach(&self, caller: &Caller, id: &str) -> Result<Ticket, AttachError> {
        let inner = Arc::clone(&self.inner);
        let (caller, id) = (caller.clone(), id.to_owned());
        let work = async move { join::attach(&inner, &caller, &id).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(AttachError::Stopping))
    }

    /// Decides a card. The first decision counts; the same one by the same decider again gets
    /// the same answer. Whether `by` may see the card at all is asked before. `grant` is the name
    /// of the standing approval that the word may give.
    ///
    /// # Errors
    /// [`DecideError`]; then this decision has no effect.
    pub async fn decide(
        &self,
        id: &str,
        word: &Word,
        by: &Decider,
        grant: Option<&str>,
    ) -> Result<Card, DecideError> {
        let inner = Arc::clone(&self.inner);
        let (id, word, by) = (id.to_owned(), word.clone(), by.clone());
        let grant = grant.map(str::to_owned);
        let work = async move { step::decide(&inner, &id, (word, by), grant).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(DecideError::Stopping))
    }

    /// A card of the caller's run and its answer, for a caller that polls from now on: once it is
    /// approved the call runs, whoever waits.
    ///
    /// # Errors
    /// [`AttachError`]; a foreign id and an unknown one answer the same.
    pub async fn poll(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<(Card, Option<Settlement>), AttachError> {
        let inner = Arc::clone(&self.inner);
        let (caller, id) = (caller.clone(), id.to_owned());
        let work = async move { join::poll(&inner, &caller, &id).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(AttachError::Stopping))
    }

    /// The caller that polls has the answer of a settled card. It can ask for it again, but a
    /// repeat of the call does not get it.
    pub async fn collected(&self, id: &str) {
        if let Err(fault) = self.inner.store.deliver(id).await {
            tracing::warn!(%fault, card = id, "a delivered answer may be handed out again");
        }
    }

    /// Ends a card of the caller's run for good, as `tasks/cancel` does.
    ///
    /// # Errors
    /// [`AttachError`]; a foreign id and an unknown one answer the same.
    pub async fn cancel(&self, caller: &Caller, id: &str) -> Result<Card, AttachError> {
        let inner = Arc::clone(&self.inner);
        let (caller, id) = (caller.clone(), id.to_owned());
        let work = async move { join::cancel(&inner, &caller, &id).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(AttachError::Stopping))
    }

    /// Ends a run and every run below it, and settles all their cards, in one transaction; then
    /// ends their running calls. When it returns nothing of them can be parked or started any
    /// more. Nothing of a run that is not live.
    ///
    /// # Errors
    /// [`StopError`]; then nothing has ended as far as can be told, ask again.
    pub async fn stop(&self, run: &str, why: &str) -> Result<Stopped, StopError> {
        let inner = Arc::clone(&self.inner);
        let (run, why) = (run.to_owned(), why.to_owned());
        let work = async move { stop::stop(&inner, &run, &why).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(StopError::Stopping))
    }

    /// The cards of `filter`, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Card>, StoreFault> {
        self.inner.store.list(filter).await
    }

    /// All cards of `filter`, page after page.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list_all(&self, filter: &mut Filter) -> Result<Vec<Card>, StoreFault> {
        stop::list_all(&self.inner.store, filter).await
    }

    /// The card whose id is or starts with `id`, with or without `apr_`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn get(&self, id: &str) -> Result<Named, StoreFault> {
        self.inner.store.named(id).await
    }

    /// The live cards that `pick` takes, in no order.
    #[must_use]
    pub fn live(&self, pick: impl Fn(&Card) -> bool) -> Vec<Arc<Card>> {
        self.inner.memory.cards(pick)
    }

    /// The live card of that id.
    #[must_use]
    pub fn live_card(&self, id: &str) -> Option<Arc<Card>> {
        self.inner.memory.card(id)
    }

    /// Changes with every step of any card: a hint to list again.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// How many calls of `agent` wait: parked, or approved and not started.
    #[must_use]
    pub fn parked_count(&self, agent: &AgentName) -> u32 {
        self.inner.memory.count(agent)
    }

    /// The wall clock of cards, in milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.inner.settings.clock.wall_ms()
    }

    /// The rows that retention removed since the start.
    #[must_use]
    pub fn pruned(&self) -> Pruned {
        *self.inner.pruned.lock()
    }

    /// Settles what is overdue and repairs what a store failure left behind. Runs by itself
    /// every moment; a test calls it to see time pass.
    pub async fn sweep(&self) {
        sweep::sweep(&self.inner).await;
    }

    /// Stops the sweep, starts nothing any more, waits for running calls as long as the
    /// settings say and marks the rest unknown. Cards that wait stay in the store.
    pub async fn shutdown(&self) {
        sweep::shutdown(&self.inner).await;
    }
}
