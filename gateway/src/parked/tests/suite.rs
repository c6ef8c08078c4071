//! The rig: a real store in a place of its own, a clock that a test moves, a tool that answers
//! as the test says.

mod alone;
mod closed;
mod collect;
mod race;
mod restart;
mod trouble;
mod wait;

use super::KIND;
use crate::parked::*;
use crate::store::ground::Ground;
use crate::store::{Place, StoreSettings};
use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_policy::canonical::Digest;
use portcullis_policy::catalogue::{Catalogue, Offer, Status, ToolOffer};
use portcullis_policy::decide::{Ask, Decision, Usage, decide, decide_approved};
use portcullis_policy::definition::{
    Agent, AgentLimits, Approval, Approver, Definition, EraPin, Expose, Grant, OnCallerGone,
    SERVER_PARKED_CALLS, Selection, Server, StandingMost, Transport,
};
use portcullis_policy::diagnostic::Location;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::State;
use portcullis_policy::name::ServerName;
use portcullis_policy::scope::Scope;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

const NOW: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

/// How the tool answers.
#[derive(Clone)]
enum Answer {
    Now(Executed),
    /// Once it is told to.
    Later(Arc<Notify>, Executed),
    Never,
    Panic,
}

struct Rig {
    parked: Parked,
    clock: ManualClock,
    scope: Arc<Scope>,
    // The scope at the moment of execution.
    fresh: Arc<Mutex<Arc<Scope>>>,
    answer: Arc<Mutex<Answer>>,
    runs: Arc<AtomicUsize>,
    starts: Arc<Mutex<Vec<Start>>>,
}

/// The card's state and how many decisions are on record as its call starts.
type Start = (State, usize);

fn done() -> Executed {
    Executed::Result { raw: Bytes::from_static(br#"{"content":[]}"#), is_error: false }
}

fn result() -> Settlement {
    Settlement::Result { raw: Bytes::from_static(br#"{"content":[]}"#), is_error: false }
}

impl Rig {
    async fn open(place: &Place, on_caller_gone: OnCallerGone) -> Self {
        Self::open_at(place, on_caller_gone, NOW).await
    }

    async fn open_at(place: &Place, on_caller_gone: OnCallerGone, now_ms: u64) -> Self {
        Self::with(place, on_caller_gone, now_ms, |_| {}).await
    }

    // With a store that waits for no lock of others.
    async fn impatient(place: &Place) -> Self {
        let busy = Duration::from_millis(50);
        let store = StoreSettings { busy, ..StoreSettings::at(place.clone()) };
        Self::on(&store, OnCallerGone::Keep, NOW, |_| {}).await
    }

    async fn with(
        place: &Place,
        on_caller_gone: OnCallerGone,
        now_ms: u64,
        set: impl FnOnce(&mut ParkedSettings),
    ) -> Self {
        Self::on(&StoreSettings::at(place.clone()), on_caller_gone, now_ms, set).await
    }

    async fn on(
        store: &StoreSettings,
        on_caller_gone: OnCallerGone,
        now_ms: u64,
        set: impl FnOnce(&mut ParkedSettings),
    ) -> Self {
        let (clock, manual) = Clock::manual(now_ms);
        let scope = Arc::new(scope(on_caller_gone, "Pays back"));
        let fresh = Arc::new(Mutex::new(Arc::clone(&scope)));
        let answer = Arc::new(Mutex::new(Answer::Now(done())));
        let runs = Arc::new(AtomicUsize::new(0));
        let store = Store::open(store).await.unwrap();
        let starts = Arc::new(Mutex::new(Vec::new()));
        let records = Records { store: store.clone(), starts: Arc::clone(&starts) };
        let runner = runner(Arc::clone(&fresh), Arc::clone(&answer), Arc::clone(&runs), records);
        let drain = Duration::from_millis(200);
        let mut settings = ParkedSettings { clock, drain, ..ParkedSettings::default() };
        set(&mut settings);
        let parked = Parked::open(store, settings, runner).await.unwrap();
        parked.begin();
        Self { parked, clock: manual, scope, fresh, answer, runs, starts }
    }

    async fn call(&self, id: u32) -> Ticket {
        self.try_call(id).await.unwrap()
    }

    async fn try_call(&self, id: u32) -> Result<Ticket, ParkError> {
        self.park(&caller("run_a"), request(&self.scope, id)).await
    }

    async fn park(&self, caller: &Caller, request: Request) -> Result<Ticket, ParkError> {
        let run = RunRow::unnamed(&caller.run, &caller.agent, NOW);
        let store = &self.parked.inner.store;
        if store.run(&run.id).await?.is_none() {
            store.ensure_run(&run).await?;
        }
        self.parked.park(caller, request, self.origin()).await
    }

    fn origin(&self) -> Origin {
        let limits = &self.scope.limits;
        let caps = Caps { agent: limits.parked_calls, run: u32::MAX, server: u32::MAX };
        Origin { above: Vec::new(), caps, task: false }
    }

    async fn approve(&self, id: &str) -> Card {
        self.try_approve(id).await.unwrap()
    }

    /// Approves what the card shows.
    async fn try_approve(&self, id: &str) -> Result<Card, DecideError> {
        let digest = self.card(id).await.digest();
        self.parked.decide(id, &Word::approve(digest), &operator("ann"), None).await
    }

    async fn state(&self, id: &str) -> State {
        match self.parked.get(id).await.unwrap() {
            Named::One(card) => card.state(),
            Named::None | Named::Several => panic!("no card {id}"),
        }
    }

    async fn card(&self, id: &str) -> Card {
        match self.parked.get(id).await.unwrap() {
            Named::One(card) => *card,
            Named::None | Named::Several => panic!("no card {id}"),
        }
    }

    /// Waits until the card satisfies `when`.
    async fn until(&self, id: &str, when: impl Fn(&Card) -> bool) {
        let mut changes = self.parked.changes();
        while !when(&self.card(id).await) {
            changes.changed().await.unwrap();
        }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

// What is on record as a call starts.
#[derive(Clone)]
struct Records {
    store: Store,
    starts: Arc<Mutex<Vec<Start>>>,
}

impl Records {
    async fn look(&self, id: &str) {
        let state = self.store.card(id).await.unwrap().unwrap().state();
        let decisions = self.store.decisions(id).await.unwrap().len();
        self.starts.lock().push((state, decisions));
    }
}

fn runner(
    fresh: Arc<Mutex<Arc<Scope>>>,
    answer: Arc<Mutex<Answer>>,
    runs: Arc<AtomicUsize>,
    records: Records,
) -> Runner {
    Runner {
        vouch: Arc::new(|_, _| true),
        judge: Box::new(move |_, approved| decide_approved(&fresh.lock(), approved)),
        run: Box::new(move |card, permit, progress| {
            runs.fetch_add(1, Ordering::SeqCst);
            drop(permit.spend());
            let answer = answer.lock().clone();
            let records = records.clone();
            Box::pin(async move {
                records.look(card.id()).await;
                progress.send(Bytes::from_static(b"{\"progress\":1}"));
                match answer {
                    Answer::Now(executed) => executed,
                    Answer::Later(when, executed) => {
                        when.notified().await;
                        executed
                    }
                    Answer::Never => std::future::pending().await,
                    Answer::Panic => panic!("the tool's fault"),
                }
            })
        }),
    }
}

fn caller(run: &str) -> Caller {
    Caller { agent: AgentName::new("support").unwrap(), run: run.to_owned(), server: None }
}

fn operator(name: &str) -> Decider {
    Decider { name: name.to_owned(), role: Approver::Human }
}

/// Approves the call of [`request`].
fn yes(id: u32) -> Word {
    Word::approve(Digest::of(format!(r#"{{"id":{id}}}"#).as_bytes()))
}

fn deny(reason: &str) -> Word {
    Word::deny(reason)
}

fn request(scope: &Scope, id: u32) -> Request {
    let arguments = Some(Bytes::from(format!(r#"{{"id":{id}}}"#)));
    let ask = Ask::Tool { name: "crm__refund".to_owned(), arguments };
    match decide(scope, &scope.all, ask, &Usage::default()) {
        Decision::Park(request) => request,
        Decision::Run(_) | Decision::Refuse(_) => panic!("not parked"),
    }
}

fn scope(on_caller_gone: OnCallerGone, description: &str) -> Scope {
    let here = Location { file: "support.agents.json".into(), line: 12, column: 0 };
    let crm = ServerName::new("crm").unwrap();
    let json = format!(r#"{{"name":"refund","description":"{description}","inputSchema":{{}}}}"#);
    let tool = ToolOffer::parse(&json, JsonLimits::default()).unwrap();
    let offer = Offer { status: Status::Ready, tools: vec![Arc::new(tool)], ..Offer::default() };
    let server = Server {
        name: crm.clone(),
        transport: Transport::Http { url: "http://127.0.0.1:1".into(), headers: [].into() },
        enabled: true,
        era: EraPin::Auto,
        call_timeout: Duration::from_secs(1),
        parked_calls: SERVER_PARKED_CALLS,
        location: here.clone(),
    };
    let grant = Grant {
        server: crm.clone(),
        allow: Selection::Every(here.clone()),
        auto_approve: Selection::none(),
        deny: Selection::none(),
        resources: Vec::new(),
        prompts: Selection::none(),
        secret: Vec::new(),
        location: here.clone(),
    };
    let agent = Agent {
        name: AgentName::new("support").unwrap(),
        description: String::new(),
        grants: vec![grant],
        narrowing: portcullis_policy::narrow::Narrowing::default(),
        sub_agents: Vec::new(),
        permission_prompt: None,
        expose: Expose::Direct,
        approval: Approval { on_caller_gone, standing: StandingMost::Tool, ..Approval::default() },
        limits: AgentLimits::default(),
        location: here,
    };
    let mut definition = Definition::default();
    definition.servers.insert(crm.clone(), server);
    let catalogue = Catalogue { servers: [(crm, Arc::new(offer))].into() };
    Scope::resolve(&agent, &definition, &catalogue, 1).0
}

async fn settled(ticket: &mut Ticket) -> Settlement {
    loop {
        if let TicketEvent::Settled(settlement) = ticket.next().await {
            return settlement;
        }
    }
}
