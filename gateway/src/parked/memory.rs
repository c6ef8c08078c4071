//! What memory holds of a live card: who waits, what runs, when its time is over.
//!
//! Nothing here is the truth about a card; a later version of it always wins over an earlier.

use super::Settlement;
use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_policy::decide::{Caps, Refusal};
use portcullis_policy::ledger::{Card, State};
use portcullis_policy::name::{AgentName, ServerName};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::AbortHandle;

/// Progress that a waiting caller may be behind before it misses some.
const PROGRESS_QUEUE: usize = 64;

/// What the waiters of a card know.
#[derive(Debug, Clone)]
pub(super) struct News {
    pub(super) card: Arc<Card>,
    pub(super) settled: Option<Settlement>,
}

/// Sends progress of a running call to whoever waits for it.
#[derive(Debug, Clone)]
pub struct ProgressSender {
    sender: broadcast::Sender<Bytes>,
}

impl ProgressSender {
    /// Passes on the `params` of one progress notification.
    pub fn send(&self, params: Bytes) {
        // Nobody may be waiting, and progress is for those who are.
        drop(self.sender.send(params));
    }
}

/// A place among the waiters of a card.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) news: watch::Receiver<News>,
    pub(super) progress: broadcast::Receiver<Bytes>,
}

/// How a start was answered.
pub(super) enum Start {
    /// The call runs.
    Begun,
    /// Its last caller left meanwhile.
    Deserted,
    /// The card is not executing any more.
    Ended,
}

#[derive(Debug)]
struct Live {
    agent: AgentName,
    run: String,
    server: ServerName,
    state: State,
    // Its caller polls, so it runs without one that waits.
    task: bool,
    version: u64,
    // On the steady clock.
    deadline_ms: Option<u64>,
    waiters: usize,
    // Set while one task looks after the execution of the card.
    claimed: bool,
    running: Option<AbortHandle>,
    news: watch::Sender<News>,
    progress: broadcast::Sender<Bytes>,
}

impl Live {
    fn new(card: &Card, (left_ms, steady_ms): (Option<u64>, u64)) -> Self {
        Self {
            agent: card.asked().agent.clone(),
            run: card.asked().run.clone(),
            server: card.asked().server.clone(),
            state: card.state(),
            task: card.is_task(),
            version: card.version(),
            deadline_ms: left_ms.map(|left| steady_ms.saturating_add(left)),
            waiters: 0,
            claimed: false,
            running: None,
            news: watch::Sender::new(News { card: Arc::new(card.clone()), settled: None }),
            progress: broadcast::Sender::new(PROGRESS_QUEUE),
        }
    }
}

impl Live {
    fn waits(&self) -> bool {
        matches!(self.state, State::Parked | State::Approved)
    }

    // True if somebody is there to take the answer.
    fn wanted(&self) -> bool {
        self.waiters > 0 || self.task
    }
}

fn waiting(live: &HashMap<String, Live>, agent: &AgentName) -> u32 {
    let count = live.values().filter(|entry| entry.agent == *agent && entry.waits()).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

// As many calls as wait beside that of `card`.
fn beside(live: &HashMap<String, Live>, card: &Card) -> Caps {
    let asked = card.asked();
    let mut there = Caps { agent: 0, run: 0, server: 0 };
    for entry in live.values().filter(|entry| entry.waits()) {
        there.agent += u32::from(entry.agent == asked.agent);
        there.run += u32::from(entry.run == asked.run);
        there.server += u32::from(entry.server == asked.server);
    }
    there
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    live: Mutex<HashMap<String, Live>>,
    // Tickets of a card, settled or not, whose end is not known yet.
    held: Mutex<HashMap<String, usize>>,
    let_go: Notify,
}

/// What a look at one live card tells.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) left_ms: Option<u64>,
    pub(super) wanted: bool,
}

impl Memory {
    /// Makes room for a card that is live, if there is none; its time left is that of the card
    /// at `now_ms` of both clocks.
    pub(super) fn enter(&self, card: &Card, left_ms: Option<u64>, steady_ms: u64) {
        let mut live = self.live.lock();
        live.entry(card.id().to_owned()).or_insert_with(|| Live::new(card, (left_ms, steady_ms)));
    }

    /// The same for a new card, unless there are as many that wait as may, if that is said.
    pub(super) fn enter_within(
        &self,
        card: &Card,
        most: Option<&Caps>,
        times: (Option<u64>, u64),
    ) -> Result<(), Refusal> {
        let mut live = self.live.lock();
        let asked = card.asked();
        let refusal =
            most.and_then(|most| most.refusal(&asked.agent, &asked.server, &beside(&live, card)));
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        live.insert(card.id().to_owned(), Live::new(card, times));
        Ok(())
    }

    /// Forgets a card that was never stored.
    pub(super) fn forget(&self, id: &str) {
        self.live.lock().remove(id);
    }

    /// Takes a seat; `None` if the card is not live here.
    pub(super) fn seat(&self, id: &str) -> Option<Seat> {
        let mut live = self.live.lock();
        let entry = live.get_mut(id)?;
        entry.waiters += 1;
        Some(Seat { news: entry.news.subscribe(), progress: entry.progress.subscribe() })
    }

    /// A ticket for the card is out.
    pub(super) fn hold(&self, id: &str) {
        *self.held.lock().entry(id.to_owned()).or_default() += 1;
    }

    /// A ticket for the card came back.
    pub(super) fn let_go(&self, id: &str) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                held.remove(id);
            }
        }
        self.let_go.notify_waiters();
    }

    /// True if a ticket for the card is out.
    pub(super) fn held(&self, id: &str) -> bool {
        self.held.lock().contains_key(id)
    }

    /// Waits until no ticket for the card is out.
    pub(super) async fn quiet(&self, id: &str) {
        loop {
            let let_go = self.let_go.notified();
            if !self.held(id) {
                return;
            }
            let_go.await;
        }
    }

    /// Gives a seat back. True if it was the last one of a card that is live.
    pub(super) fn rise(&self, id: &str) -> bool {
        let mut live = self.live.lock();
        let Some(entry) = live.get_mut(id) else { return false };
        entry.waiters = entry.waiters.saturating_sub(1);
        entry.waiters == 0
    }

    /// True if somebody is there to take the answer: a caller that waits, or one that polls.
    pub(super) fn wanted(&self, id: &str) -> bool {
        self.live.lock().get(id).is_some_and(Live::wanted)
    }

    /// True if somebody waits.
    pub(super) fn waited_for(&self, id: &str) -> bool {
        self.live.lock().get(id).is_some_and(|entry| entry.waiters > 0)
    }

    /// Takes over a committed step. False if a later one was there before.
    pub(super) fn publish(
        &self,
        card: &Card,
        settled: Option<Settlement>,
        left: (Option<u64>, u64),
    ) -> bool {
        let (left_ms, steady_ms) = left;
        let mut live = self.live.lock();
        let Some(entry) = live.get_mut(card.id()) else { return true };
        if entry.version >= card.version() {
            return false;
        }
        entry.version = card.version();
        entry.task = card.is_task();
        if entry.state != card.state() {
            entry.state = card.state();
            entry.deadline_ms = left_ms.map(|left| steady_ms.saturating_add(left));
        }
        let settled = settled.or_else(|| entry.news.borrow().settled.clone());
        entry.news.send_replace(News { card: Arc::new(card.clone()), settled });
        if card.state().is_settled() {
            // The senders go with the entry; what they sent last stays readable. What still runs
            // of a settled card is ended.
            if let Some(running) = live.remove(card.id()).and_then(|entry| entry.running) {
                running.abort();
            }
        }
        true
    }

    /// Answers the waiters of a call that ended although the store does not take its end.
    pub(super) fn answer(&self, id: &str, settlement: Settlement) {
        if let Some(entry) = self.live.lock().get(id) {
            entry.news.send_modify(|news| news.settled = Some(settlement));
        }
    }

    /// Takes charge of an execution, if somebody waits and nobody else has it.
    pub(super) fn claim(&self, id: &str) -> bool {
        let mut live = self.live.lock();
        let Some(entry) = live.get_mut(id) else { return false };
        if entry.claimed || !entry.wanted() {
            return false;
        }
        entry.claimed = true;
        true
    }

    /// Gives a charge back.
    pub(super) fn release(&self, id: &str) {
        if let Some(entry) = self.live.lock().get_mut(id) {
            entry.claimed = false;
        }
    }

    /// Starts the call of an executing card, unless it was ended or deserted meanwhile: a stop
    /// that comes later finds what to abort.
    pub(super) fn start(
        &self,
        id: &str,
        begin: impl FnOnce(ProgressSender) -> AbortHandle,
    ) -> Start {
        let mut live = self.live.lock();
        match live.get_mut(id) {
            Some(entry) if entry.state == State::Executing => {
                if !entry.wanted() {
                    return Start::Deserted;
                }
                entry.running = Some(begin(ProgressSender { sender: entry.progress.clone() }));
                Start::Begun
            }
            Some(_) | None => Start::Ended,
        }
    }

    /// Calls of `agent` that wait.
    pub(super) fn count(&self, agent: &AgentName) -> u32 {
        waiting(&self.live.lock(), agent)
    }

    /// The time left of a card on the steady clock.
    pub(super) fn left_ms(&self, id: &str, steady_ms: u64) -> Option<u64> {
        let deadline_ms = self.live.lock().get(id)?.deadline_ms?;
        Some(deadline_ms.saturating_sub(steady_ms))
    }

    /// The card as last published.
    pub(super) fn card(&self, id: &str) -> Option<Arc<Card>> {
        let live = self.live.lock();
        Some(Arc::clone(&live.get(id)?.news.borrow().card))
    }

    /// Live cards as last published.
    pub(super) fn cards(&self, pick: impl Fn(&Card) -> bool) -> Vec<Arc<Card>> {
        let live = self.live.lock();
        live.values()
            .map(|entry| Arc::clone(&entry.news.borrow().card))
            .filter(|card| pick(card))
            .collect()
    }

    /// Where a live card stands.
    pub(super) fn state(&self, id: &str) -> Option<State> {
        Some(self.live.lock().get(id)?.state)
    }

    /// True if a task looks after the execution of the card.
    pub(super) fn claimed(&self, id: &str) -> bool {
        self.live.lock().get(id).is_some_and(|entry| entry.claimed)
    }

    /// A look at every live card.
    pub(super) fn looks(&self, steady_ms: u64) -> Vec<Look> {
        let live = self.live.lock();
        let look = |(id, entry): (&String, &Live)| Look {
            id: id.clone(),
            state: entry.state,
            left_ms: entry.deadline_ms.map(|deadline| deadline.saturating_sub(steady_ms)),
            wanted: entry.wanted(),
        };
        live.iter().map(look).collect()
    }
}
