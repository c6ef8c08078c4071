//! Parked calls: who waits for which card, and the execution of the ledger's effects.
//!
//! Memory holds waiters and running calls, the store holds the truth. A call starts only when
//! its card is approved, a caller is there and the fresh decision permits it, and only after the
//! step to executing is committed; so it runs at most once, exactly as approved.

mod clock;
mod execute;
mod join;
mod memory;
mod step;
mod sweep;
mod tasks;
mod ticket;

#[cfg(test)]
mod tests;

use crate::store::{Filter, Named, Store, StoreFault};
use bytes::Bytes;
use memory::Memory;
use portcullis_policy::canonical::Digest;
use portcullis_policy::decide::{Permit, Refusal, Request};
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Approved, Card, Decider, State, Verdict};
use portcullis_policy::name::AgentName;
use portcullis_policy::scope::Scope;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use tokio::sync::watch;

pub use clock::{Clock, ManualClock};
pub use memory::ProgressSender;
pub use ticket::{Ticket, TicketEvent};

/// Largest answer that is kept for a caller that is not there.
pub const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Who calls: an agent in one of its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The agent.
    pub agent: AgentName,
    /// The run.
    pub run: String,
}

/// Times.
#[derive(Debug, Clone)]
pub struct ParkedSettings {
    /// How long an answer waits for a caller that is not there.
    pub result_keep: Duration,
    /// How long settled cards stay readable.
    pub card_keep: Duration,
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

    fn see(&self, card: &Card) {
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
            drain: Duration::from_secs(30),
            clock: Clock::system(),
            witness: Witness::new(|_| {}),
        }
    }
}

/// A call under way.
pub type Running = Pin<Box<dyn Future<Output = Executed> + Send>>;
/// See [`Runner::judge`].
pub type Judge = Box<dyn Fn(&Card, &Approved) -> Result<Permit, Refusal> + Send + Sync>;
/// See [`Runner::run`].
pub type Run = Box<dyn Fn(Card, Permit, ProgressSender) -> Running + Send + Sync>;

/// How the gateway decides an approved call anew and runs it.
pub struct Runner {
    /// The fresh decision, asked right before the call would start.
    pub judge: Judge,
    /// Sends the call. Dropping the future must end the call: that is how a stop reaches it.
    pub run: Run,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// How a call that was started ended.
#[derive(Debug, Clone)]
pub enum Executed {
    /// The server answered.
    Result {
        /// The JSON-RPC `result` member.
        raw: Bytes,
        /// True if the tool says it failed.
        is_error: bool,
    },
    /// The server answered with an error.
    Error {
        /// The JSON-RPC `error` member.
        raw: Bytes,
    },
    /// No byte left the gateway.
    NotSent {
        /// Why, as a clause.
        text: String,
    },
    /// Something left and no answer came.
    Unknown {
        /// What happened, as a clause.
        text: String,
    },
}

/// What a caller gets for a parked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// The answer of the server.
    Result {
        /// The JSON-RPC `result` member.
        raw: Bytes,
        /// True if the tool says it failed.
        is_error: bool,
    },
    /// The error of the server.
    Error {
        /// The JSON-RPC `error` member.
        raw: Bytes,
    },
    /// It did not run.
    NotRun {
        /// Where the card ended.
        state: State,
        /// For the caller.
        text: String,
    },
    /// It may have run.
    Unknown {
        /// For the caller.
        text: String,
    },
    /// It ran, and its answer is not there any more.
    NotKept {
        /// For the caller.
        text: String,
    },
}

/// Why a call was not parked.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    /// The agent has as many parked calls as its policy allows.
    #[error("{0}")]
    Full(Refusal),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// No random number for an id.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Stopping,
}

/// Why a caller was not attached to a card.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No card of that id, or it is not the caller's: these are not told apart.
    #[error("there is no such approval")]
    Unknown,
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Stopping,
}

/// Why a decision had no effect.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// No card of that id.
    #[error("there is no such approval")]
    Unknown,
    /// It came too late; the card says what was decided or became of it.
    #[error("approval `{}` is {} already", .0.id(), .0.state().as_str())]
    Settled(Box<Card>),
    /// The decision was made on other arguments than the card's.
    #[error("the digest is not that of the card; read the card again and decide on what it shows")]
    WrongDigest,
    /// The policy does not let this role decide.
    #[error("the policy does not let the {} decide this call", portcullis_policy::ledger::words::role(*.0))]
    NotApprover(Approver),
    /// The store did not take it; nothing runs.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The gateway is shutting down; the card stays as it is.
    #[error("the gateway is shutting down")]
    Stopping,
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
    tasks: Tasks,
    // Parking is one at a time: the lookups, the limit and the insert belong together.
    lane: tokio::sync::Mutex<()>,
    // Ends of calls that the store did not take; the sweep tries again.
    unsaved: parking_lot::Mutex<Vec<(String, Executed)>>,
}

impl Parked {
    /// Takes up the cards of `store`: what was executing may have run, and is never run again;
    /// what was parked or approved is back, unattended. Starts the sweep.
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
            tasks: Tasks::new(),
            lane: tokio::sync::Mutex::new(()),
            unsaved: parking_lot::Mutex::new(Vec::new()),
        });
        sweep::recover(&inner).await?;
        sweep::start(&inner);
        Ok(Self { inner })
    }

    /// Parks a call, or joins the live card of the identical one, or returns the answer that its
    /// caller never got. `scope` sets how many calls may be parked.
    ///
    /// # Errors
    /// [`ParkError`]; then nothing is parked.
    pub async fn park(
        &self,
        caller: &Caller,
        request: Request,
        scope: &Arc<Scope>,
    ) -> Result<Ticket, ParkError> {
        let inner = Arc::clone(&self.inner);
        let (caller, scope) = (caller.clone(), Arc::clone(scope));
        // Owned, so that a caller that goes away half way leaves no card without a waiter.
        let work = async move { join::park(&inner, &caller, &request, &scope).await };
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
    /// the same answer. Whether `by` may see the card at all is asked before.
    ///
    /// # Errors
    /// [`DecideError`]; then this decision has no effect.
    pub async fn decide(
        &self,
        id: &str,
        verdict: Verdict,
        digest: Option<Digest>,
        by: &Decider,
    ) -> Result<Card, DecideError> {
        let inner = Arc::clone(&self.inner);
        let (id, by) = (id.to_owned(), by.clone());
        let work = async move { step::decide(&inner, &id, (verdict, digest), by).await };
        self.inner.tasks.own(work).await.unwrap_or(Err(DecideError::Stopping))
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

    /// Settles every card of these runs, all at once, and ends their running calls; when it
    /// returns, nothing of them can start any more. Take away the runs' credentials before.
    ///
    /// # Errors
    /// [`StoreFault`]; then some may not be stopped, ask again.
    pub async fn stop(&self, runs: &[Caller], why: &str) -> Result<Vec<Card>, StoreFault> {
        let inner = Arc::clone(&self.inner);
        let (runs, why) = (runs.to_vec(), why.to_owned());
        let work = async move { step::stop(&inner, &runs, &why).await };
        self.inner.tasks.own(work).await.unwrap_or_else(|| Ok(Vec::new()))
    }

    /// The cards of `filter`, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Card>, StoreFault> {
        self.inner.store.list(filter).await
    }

    /// The card whose id is or starts with `id`, with or without `apr_`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn get(&self, id: &str) -> Result<Named, StoreFault> {
        self.inner.store.named(id).await
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
