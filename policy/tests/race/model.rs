//! The gateway's side of a parked call, as small as it can be: a store with a conditional
//! update, a memory that knows who waits, and an executor. What happens to the card is said by
//! the ledger alone.

use portcullis_policy::ledger::{Card, Effect, Event, Outcome, State, Unmoved, step};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};

/// The one time of the model; its limits are events.
pub(crate) const NOW: u64 = 1_800_000_000_000;

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Nothing is.
    Nothing,
    /// The store takes a step whatever version it was made from.
    BlindStore,
    /// A caller takes its seat after its card can be seen.
    LateSeat,
    /// The call is sent before its approval is used up.
    SentFirst,
    /// Who finds that nobody waits does not look again.
    NoSecondLook,
}

/// All there is of one parked call.
pub(crate) struct Desk {
    plant: Plant,
    store: Mutex<Stored>,
    // Wakes who waits for the card to be there.
    born: Condvar,
    memory: Mutex<Option<Live>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    sent: Mutex<usize>,
}

/// The truth.
#[derive(Default)]
struct Stored {
    card: Option<Card>,
    run_over: bool,
    // Steps that were taken into a final state.
    ends: usize,
}

/// What memory holds of the card while it lives.
struct Live {
    state: State,
    version: u64,
    waiters: usize,
    claimed: bool,
    news: Arc<News>,
}

#[derive(Default)]
struct News {
    settled: Mutex<Option<Card>>,
    changed: Condvar,
}

/// A place in the wait for the card; the end of a card that has ended is there without a seat.
pub(crate) struct Ticket {
    news: Arc<News>,
    seated: bool,
}

impl Ticket {
    /// Waits for the end; returns the card that was told.
    pub(crate) fn wait(self) -> Card {
        let mut settled = self.news.settled.lock().unwrap();
        loop {
            if let Some(card) = settled.as_ref() {
                return card.clone();
            }
            settled = self.news.changed.wait(settled).unwrap();
        }
    }
}

/// How the card stands when everybody has done what they do.
pub(crate) struct End {
    /// The card; `None` if its run was over before it came.
    pub(crate) card: Option<Card>,
    /// How often it came to an end.
    pub(crate) ends: usize,
    /// How often the call was sent.
    pub(crate) sent: usize,
}

impl Desk {
    pub(crate) fn new(plant: Plant) -> Arc<Self> {
        Arc::new(Self {
            plant,
            store: Mutex::default(),
            born: Condvar::new(),
            memory: Mutex::new(None),
            tasks: Mutex::default(),
            sent: Mutex::new(0),
        })
    }

    // The card as stored, once it is there; `None` if it will never be.
    fn read(&self) -> Option<Card> {
        let mut store = self.store.lock().unwrap();
        while store.card.is_none() && !store.run_over {
            store = self.born.wait(store).unwrap();
        }
        store.card.clone()
    }

    // The conditional update. `over` ends the run with it.
    fn update(&self, next: &Card, over: bool) -> bool {
        let mut store = self.store.lock().unwrap();
        let version = store.card.as_ref().map(Card::version);
        if self.plant != Plant::BlindStore && version != Some(next.version() - 1) {
            return false;
        }
        store.ends += usize::from(next.state().is_settled());
        store.run_over |= over;
        store.card = Some(next.clone());
        true
    }

    /// Moves the card: read, step, update on condition, and only then the effects. `None` if
    /// there is no card.
    pub(crate) fn advance(self: &Arc<Self>, event: &Event) -> Option<Result<Card, Unmoved>> {
        loop {
            let card = self.read()?;
            let (next, effects) = match step(&card, event.clone(), NOW) {
                Ok(moved) => moved,
                Err(unmoved) => return Some(Err(unmoved)),
            };
            if self.update(&next, false) {
                self.apply(&next, &effects);
                return Some(Ok(next));
            }
        }
    }

    /// Ends the run, and with it the card, in one update.
    pub(crate) fn stop(self: &Arc<Self>, event: &Event) -> Option<Card> {
        loop {
            let card = self.there_or_never()?;
            let Ok((next, effects)) = step(&card, event.clone(), NOW) else { return None };
            if self.update(&next, true) {
                self.apply(&next, &effects);
                return Some(next);
            }
        }
    }

    // The card that a stop finds; one that is not there comes too late for ever.
    fn there_or_never(&self) -> Option<Card> {
        let mut store = self.store.lock().unwrap();
        if store.card.is_none() {
            store.run_over = true;
            self.born.notify_all();
        }
        store.card.clone()
    }

    fn apply(self: &Arc<Self>, next: &Card, effects: &[Effect]) {
        self.publish(next);
        for effect in effects {
            match effect {
                Effect::Offer => self.offer(),
                Effect::Publish | Effect::Abort | Effect::Run(_) => {}
            }
        }
    }

    fn publish(&self, card: &Card) {
        let mut memory = self.memory.lock().unwrap();
        let Some(live) = memory.as_mut() else { return };
        if live.version >= card.version() {
            return;
        }
        (live.version, live.state) = (card.version(), card.state());
        if card.state().is_settled() {
            *live.news.settled.lock().unwrap() = Some(card.clone());
            live.news.changed.notify_all();
            *memory = None;
        }
    }

    /// Parks the call and takes a seat; `None` if its run is over.
    pub(crate) fn park(&self, card: &Card) -> Option<Ticket> {
        if self.plant == Plant::LateSeat {
            return self.insert(card).then(|| self.seated(card));
        }
        let ticket = self.seated(card);
        if self.insert(card) {
            return Some(ticket);
        }
        *self.memory.lock().unwrap() = None;
        None
    }

    fn seated(&self, card: &Card) -> Ticket {
        let news = Arc::new(News::default());
        let ticket = Ticket { news: Arc::clone(&news), seated: true };
        let (state, version) = (card.state(), card.version());
        *self.memory.lock().unwrap() =
            Some(Live { state, version, waiters: 1, claimed: false, news });
        ticket
    }

    fn insert(&self, card: &Card) -> bool {
        let mut store = self.store.lock().unwrap();
        if store.run_over {
            return false;
        }
        store.card = Some(card.clone());
        self.born.notify_all();
        true
    }

    /// Joins the wait for the card; `None` if there is none.
    pub(crate) fn attend(self: &Arc<Self>) -> Option<Ticket> {
        loop {
            let card = self.read()?;
            if card.state().is_settled() {
                let news = News { settled: Mutex::new(Some(card)), changed: Condvar::new() };
                return Some(Ticket { news: Arc::new(news), seated: false });
            }
            let Some(ticket) = self.seat() else {
                // It settled since it was read.
                thread::yield_now();
                continue;
            };
            if card.unattended() {
                self.advance(&Event::Attend);
            }
            // The seat is taken: either this sees the approval, or the approval sees the seat.
            if self.state() == Some(State::Approved) {
                self.offer();
            }
            return Some(ticket);
        }
    }

    fn seat(&self) -> Option<Ticket> {
        let mut memory = self.memory.lock().unwrap();
        let live = memory.as_mut()?;
        live.waiters += 1;
        Some(Ticket { news: Arc::clone(&live.news), seated: true })
    }

    /// Gives a seat back without an answer.
    pub(crate) fn leave(self: &Arc<Self>, ticket: &Ticket) {
        if !ticket.seated {
            return;
        }
        let last = {
            let mut memory = self.memory.lock().unwrap();
            memory.as_mut().is_some_and(|live| {
                live.waiters -= 1;
                live.waiters == 0
            })
        };
        if last {
            self.spawn(|desk| desk.desert());
        }
    }

    fn desert(self: &Arc<Self>) {
        if self.waited_for() {
            return;
        }
        self.advance(&Event::Leave);
        if self.waited_for() {
            self.advance(&Event::Attend);
        }
    }

    // Starts the execution of the approved card, if somebody waits and nobody else does it.
    fn offer(self: &Arc<Self>) {
        let claimed = {
            let mut memory = self.memory.lock().unwrap();
            match memory.as_mut() {
                Some(live) if !live.claimed && live.waiters > 0 => {
                    live.claimed = true;
                    true
                }
                Some(_) | None => false,
            }
        };
        if claimed {
            self.spawn(|desk| desk.charged());
        }
    }

    fn charged(self: &Arc<Self>) {
        let deserted = self.execute();
        if let Some(live) = self.memory.lock().unwrap().as_mut() {
            live.claimed = false;
        }
        if deserted && self.plant != Plant::NoSecondLook {
            // Whoever came since found the execution taken care of.
            self.offer();
        }
    }

    // True if the approval is unused since nobody waited.
    fn execute(self: &Arc<Self>) -> bool {
        loop {
            let Some(card) = self.read() else { return false };
            let Ok((next, effects)) = step(&card, Event::Execute, NOW) else { return false };
            assert!(effects.iter().any(|effect| matches!(effect, Effect::Run(_))));
            if !self.waited_for() {
                return true;
            }
            if self.plant == Plant::SentFirst {
                *self.sent.lock().unwrap() += 1;
            }
            if self.update(&next, false) {
                self.publish(&next);
                self.run();
                return false;
            }
        }
    }

    fn run(self: &Arc<Self>) {
        let waiters = {
            let memory = self.memory.lock().unwrap();
            let executing = memory.as_ref().filter(|live| live.state == State::Executing);
            executing.map(|live| live.waiters)
        };
        let outcome = match waiters {
            // It was stopped before it began.
            None => return,
            Some(0) => Outcome::NotSent,
            Some(_) => {
                if self.plant != Plant::SentFirst {
                    *self.sent.lock().unwrap() += 1;
                }
                Outcome::Ok
            }
        };
        // A stop may have been faster than the answer; then the card says so already.
        self.advance(&Event::Finish { outcome, detail: String::new() });
    }

    fn waited_for(&self) -> bool {
        self.memory.lock().unwrap().as_ref().is_some_and(|live| live.waiters > 0)
    }

    fn state(&self) -> Option<State> {
        self.memory.lock().unwrap().as_ref().map(|live| live.state)
    }

    fn spawn(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let desk = Arc::clone(self);
        let task = thread::spawn(move || work(&desk));
        self.tasks.lock().unwrap().push(task);
    }

    /// Waits until nothing is under way any more. An approved card that somebody waits for has
    /// been forgotten then: nothing but time will move it.
    pub(crate) fn rest(self: &Arc<Self>) {
        loop {
            let Some(task) = self.tasks.lock().unwrap().pop() else { break };
            task.join().unwrap();
        }
        let forgotten = self.waited_for() && self.state() == Some(State::Approved);
        assert!(!forgotten, "somebody waits for an approved call that nobody starts");
    }

    /// Lets the time to decide or to use pass.
    pub(crate) fn time_passes(self: &Arc<Self>) {
        for event in [Event::Expire, Event::Lapse] {
            // Whichever does not apply changes nothing.
            self.advance(&event);
        }
    }

    pub(crate) fn end(&self) -> End {
        let store = self.store.lock().unwrap();
        End { card: store.card.clone(), ends: store.ends, sent: *self.sent.lock().unwrap() }
    }
}
