//! Approve, deny, the end of the time, the end of the run, callers that leave, cancel and
//! repeat: all at once over real sockets, and everybody who looks sees the same one outcome.

use super::{admin, open, start, text};
use portcullis_tests::agent::{Agent, Answer, Speaks, read};
use portcullis_tests::approver::Approver;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// An unoptimised gateway has time for a quarter of them.
const ROUNDS: u32 = if cfg!(debug_assertions) { 500 } else { 2_000 };
/// Rounds that are under way at one time.
const AT_ONCE: usize = 32;
/// The time to decide of both agents.
const DECIDE_WITHIN: Duration = Duration::from_secs(1);
/// How far apart they come: as one, or so that the first is often through.
const APART_MS: [u64; 4] = [1, 20, 100, 400];
/// Nobody is left without word for longer once it is settled.
const WORD_WITHIN: Duration = Duration::from_secs(20);

/// Why each run is stopped.
const WHY: &str = "enough";

/// Everybody at the admin listener.
struct Desk {
    operator: Approver,
    ann: Approver,
    bob: Approver,
    cat: Approver,
}

/// What became of one round, as far as its gateway told.
struct Seen {
    round: u32,
    id: String,
    state: String,
    decider: Option<(String, String)>,
    outcome: Option<String>,
    /// Other cards that the repeat made, all of them settled unused.
    others: Vec<String>,
}

fn arguments(round: u32) -> String {
    format!("{{\"round\":{round}}}")
}

fn random(below: u64) -> u64 {
    RandomState::new().build_hasher().finish() % below
}

/// When everybody comes. In each round somebody is favoured, which may be the end of the time.
struct Start {
    first: Part,
    apart_ms: u64,
    at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Approves,
    Denies,
    ApprovesToo,
    Stops,
    Goes,
    Cancels,
    Repeats,
    Time,
}

impl Start {
    /// Of a round whose time to decide is over at `end`.
    fn of(round: u32, end: Instant) -> Self {
        use Part::{Approves, ApprovesToo, Cancels, Denies, Goes, Repeats, Stops, Time};
        let parts = [Approves, Denies, ApprovesToo, Stops, Goes, Cancels, Repeats, Time];
        let first = parts[round as usize % parts.len()];
        let apart_ms = APART_MS[random(4) as usize];
        let at = match first {
            Time => end - Duration::from_millis(apart_ms / 2),
            Approves | Denies | ApprovesToo | Stops | Goes | Cancels | Repeats => Instant::now(),
        };
        Self { first, apart_ms, at }
    }

    async fn wait(&self, part: Part) {
        if part != self.first {
            sleep_until(self.at + Duration::from_millis(random(self.apart_ms))).await;
        }
    }
}

async fn call(agent: &Agent, id: u32, round: u32) -> Result<reqwest::Response, String> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"crm__refund","arguments":{}}}}}"#,
        arguments(round)
    );
    agent.send(&body, &agent.headers()).await
}

// The answer of a call that was held; `None` if the connection ended without one.
async fn heard(response: Result<reqwest::Response, String>) -> Option<Answer> {
    let answer = timeout(WORD_WITHIN, read(response.ok()?)).await.expect("somebody was forgotten");
    answer.ok().filter(|answer| answer.status == 200 && !answer.text.is_empty())
}

async fn race(desk: &Desk, round: u32) -> Seen {
    let name = if random(2) == 0 { "support" } else { "other" };
    let (run, agent) = start(&desk.operator, name, Speaks::Legacy("2025-11-25")).await;
    // The head of an answer says that its caller has a seat.
    let leaves = call(&agent, 1, round).await;
    let end = Instant::now() + DECIDE_WITHIN;
    let cancels = call(&agent, 2, round).await;
    let stays = if random(2) == 0 { Some(call(&agent, 3, round).await) } else { None };
    let cards = desk.operator.cards(&format!("run={run}")).await.unwrap();
    // On a slow machine the time may be over by now, and a second one parked.
    let Some(card) = cards.first() else { panic!("no card") };
    let start = Start::of(round, end);
    let decides = async |part: Part, by: &Approver, decision: &str| {
        start.wait(part).await;
        by.decide(card, decision).await.unwrap()
    };
    let stops = async {
        start.wait(Part::Stops).await;
        desk.operator.stop(&run, WHY).await.unwrap()
    };
    let goes = async {
        start.wait(Part::Goes).await;
        drop(leaves);
    };
    let cancelled = async {
        start.wait(Part::Cancels).await;
        let body =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
        // The run may be over, and its token with it.
        drop(agent.post(body, &[]).await);
    };
    let repeats = async {
        start.wait(Part::Repeats).await;
        heard(call(&agent, 4, round).await).await
    };
    let waits = async {
        match stays {
            Some(stays) => heard(stays).await,
            None => None,
        }
    };
    let (yes, no, again, second, stopped, (), (), repeated, waited, left) = tokio::join!(
        decides(Part::Approves, &desk.ann, "approve"),
        decides(Part::Denies, &desk.bob, "deny"),
        decides(Part::Approves, &desk.ann, "approve"),
        decides(Part::ApprovesToo, &desk.cat, "approve"),
        stops,
        goes,
        cancelled,
        repeats,
        waits,
        heard(cancels),
    );
    let cards = desk.operator.cards(&format!("run={run}")).await.unwrap();
    let told = [repeated, waited, left];
    agree(&cards, text(card, "id"), [yes, no, again, second], &stopped, &told);
    seen(round, &cards)
}

/// Everybody who looked saw one and the same.
fn agree(
    cards: &[Value],
    id: &str,
    answers: [(u16, Value); 4],
    stopped: &(u16, Value),
    told: &[Option<Answer>],
) {
    let card = cards.iter().find(|card| card["id"] == id).unwrap();
    for card in cards {
        let live = ["parked", "approved", "executing"].contains(&text(card, "state"));
        assert!(!live, "a run that was stopped has a live card: {card}");
        assert!(card["id"] == id || card["decision"].is_null(), "nobody was shown it: {card}");
    }
    let decided = &card["decision"];
    let names = [("ann", "approve"), ("bob", "deny"), ("ann", "approve"), ("cat", "approve")];
    for ((by, decision), (status, answer)) in names.into_iter().zip(answers) {
        let won = decided["by"] == by && decided["decision"] == decision;
        assert_eq!(status, if won { 200 } else { 409 }, "{by}: {answer}, {card}");
        if won || !decided.is_null() {
            assert_eq!(&answer["decision"], decided, "{by} was told another decision");
        }
    }
    let (status, ended) = stopped;
    assert_eq!(*status, 200, "{ended}");
    let by_stop = ended["settled"].as_array().unwrap().iter().find(|card| card["id"] == id);
    if let Some(by_stop) = by_stop {
        assert_eq!(by_stop["state"], card["state"], "{ended}, {card}");
    }
    assert_eq!(by_stop.is_some(), card["detail"].to_string().contains(WHY), "{ended} {card}");
    // A repeat that came after the end of the run was never queued, and is about no card.
    let about_a_card = |answer: &&Answer| !answer.says().contains("was not queued");
    for answer in told.iter().flatten().filter(about_a_card) {
        let about = answer.result()["_meta"]["dev.portcullis/approval"]["id"].clone();
        let about = cards.iter().find(|card| card["id"] == about).unwrap_or(card);
        assert_eq!(kind_told(answer), kind_of(about), "{}, {about}", answer.text);
    }
}

/// Whether it ran: `yes`, `no` or `perhaps`.
fn kind_of(card: &Value) -> &'static str {
    match (text(card, "state"), text(card, "outcome")) {
        ("done", "ok") => "yes",
        ("unknown", _) => "perhaps",
        _ => "no",
    }
}

fn kind_told(answer: &Answer) -> &'static str {
    let words = answer.says().to_lowercase();
    match answer.is_error() {
        false if words.starts_with("{\"round\":") => "yes",
        true if words.contains("may have run") => "perhaps",
        true if words.contains("did not run") => "no",
        _ => panic!("unclear: {}", answer.text),
    }
}

fn seen(round: u32, cards: &[Value]) -> Seen {
    let [card, others @ ..] = cards else { panic!("no card") };
    let decision = &card["decision"];
    let decider = (!decision.is_null())
        .then(|| (text(decision, "by").to_owned(), text(decision, "decision").to_owned()));
    Seen {
        round,
        id: text(card, "id").to_owned(),
        state: text(card, "state").to_owned(),
        decider,
        outcome: card["outcome"].as_str().map(str::to_owned),
        others: others.iter().map(|card| text(card, "id").to_owned()).collect(),
    }
}

/// The trail and the upstream know the same as everybody was told.
fn on_record(all: &[Seen], trail: &[Value], ran: &[String]) {
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for arguments in ran {
        *runs.entry(arguments).or_default() += 1;
    }
    let mut lines: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for line in trail.iter().filter(|line| line["card"].is_string()) {
        lines.entry(text(line, "card")).or_default().push(line);
    }
    for seen in all {
        let ran = runs.get(arguments(seen.round).as_str()).copied().unwrap_or_default();
        let due = match (seen.state.as_str(), seen.outcome.as_deref()) {
            ("done", Some("ok")) => 1..=1,
            ("unknown", _) => 0..=1,
            _ => 0..=0,
        };
        assert!(due.contains(&ran), "{} is {} and ran {ran} times", seen.id, seen.state);
        let lines = lines.get(seen.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let said = |kind: &str| -> BTreeSet<(String, String)> {
            let of_kind = lines.iter().filter(|line| line["kind"] == kind);
            of_kind
                .map(|line| (text(line, "by").to_owned(), text(line, "decision").to_owned()))
                .collect()
        };
        let stands: Vec<_> = said("decision").difference(&said("decision_void")).cloned().collect();
        assert_eq!(stands, Vec::from_iter(seen.decider.clone()), "{}: {lines:?}", seen.id);
        let intents = lines.iter().filter(|line| line["kind"] == "intent").count();
        assert!(intents >= ran && intents <= *due.end(), "{}: {lines:?}", seen.id);
    }
    let unused = all.iter().flat_map(|seen| &seen.others);
    for line in unused.filter_map(|id| lines.get(id.as_str())).flatten() {
        assert_eq!(line["kind"], "outcome", "nobody decided it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_everything_at_once_one_thing_counts_and_all_see_the_same() {
    let (house, upstream) = open(&[
        ("support", "decideWithin: 1s"),
        ("other", "decideWithin: 1s, onCallerGone: settle"),
    ])
    .await;
    let desk = Arc::new(Desk {
        operator: Approver::of(&house),
        ann: admin(&house, "ann", "approver").await,
        bob: admin(&house, "bob", "approver").await,
        cat: admin(&house, "cat", "approver").await,
    });
    let (room, mut rounds) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for round in 0..ROUNDS {
        let (desk, room) = (Arc::clone(&desk), Arc::clone(&room));
        rounds.spawn(async move {
            let _seat = room.acquire().await.unwrap();
            race(&desk, round).await
        });
    }
    let all = rounds.join_all().await;
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    for seen in &all {
        *ends.entry(&seen.state).or_default() += 1;
    }
    eprintln!("{} rounds: {ends:?}", all.len());
    on_record(&all, &house.audit(), &upstream.calls("refund"));
    for state in ["done", "denied", "expired", "stopped", "cancelled"] {
        assert!(ends.contains_key(state), "no round ended {state}: {ends:?}");
    }
}
