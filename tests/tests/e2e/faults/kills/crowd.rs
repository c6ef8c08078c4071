//! Many calls at once, what was said of each of them, and what must be true of all.

use super::super::cycle::{Held, Stage, arguments_of};
use super::super::told::{Told, told};
use super::{DECIDING, MOMENTS_MS, STARTING_MS, STARTS, one_in, random};
use portcullis_tests::agent::Answer;
use portcullis_tests::approver::Approver;
use portcullis_tests::house::{Folder, binary};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Approvers that decide side by side.
const APPROVERS: usize = 4;
/// Calls that are brought to their end side by side.
const SETTLING: usize = 16;
const GATHERED_WITHIN: Duration = Duration::from_secs(60);
const LIVE: &str = "state=parked,approved,executing";

/// What is known of one call.
#[derive(Debug, Default)]
struct Call {
    ids: BTreeSet<String>,
    // The decision that the gateway said it has.
    decided: Option<&'static str>,
    answered: Option<Told>,
}

/// What is counted. The first three must stay zero.
#[derive(Debug, Default)]
struct Figures {
    lost: usize,
    twice: usize,
    undecided: usize,
    kills: u32,
    // Deaths at work, and the calls that were there then, by what they were after it.
    deaths: usize,
    parked: usize,
    approved: usize,
}

pub(super) struct Crowd {
    stage: Stage,
    approver: Approver,
    calls: BTreeMap<u32, Call>,
    // Those that are not known to be settled.
    open: BTreeSet<u32>,
    held: Vec<(u32, Held)>,
    parked: Vec<Value>,
    next: u32,
    figures: Figures,
}

impl Crowd {
    pub(super) fn new(stage: Stage) -> Self {
        Self {
            approver: Approver::of(&stage.house),
            stage,
            calls: BTreeMap::new(),
            open: BTreeSet::new(),
            held: Vec::new(),
            parked: Vec::new(),
            next: 0,
            figures: Figures::default(),
        }
    }

    pub(super) fn kills(&self) -> u32 {
        self.figures.kills
    }

    /// Waits until enough calls are live for `count` to be there a moment later: those that were
    /// left, some of them repeated, and new ones.
    pub(super) async fn gathers(&mut self, count: usize) {
        let count = count + count / 2;
        let left = self.approver.cards(LIVE).await.unwrap();
        for card in &left {
            let amount = self.note(card);
            if card["state"] == "parked" && one_in(2) {
                self.call(amount);
            }
        }
        for _ in left.len()..count {
            self.next += 1;
            self.open.insert(self.next);
            self.call(self.next);
        }
        let gathered = async {
            loop {
                let live = self.approver.cards(LIVE).await.unwrap();
                if live.len() >= count {
                    return live;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let live = timeout(GATHERED_WITHIN, gathered).await.expect("calls that do not park");
        for card in &live {
            self.note(card);
        }
        // Their callers are back while the gateway dies.
        for card in live.iter().filter(|card| card["state"] == "approved" && one_in(2)) {
            self.call(amount_of(card));
        }
        self.parked = live.into_iter().filter(|card| card["state"] == "parked").collect();
    }

    fn call(&mut self, amount: u32) {
        self.held.push((amount, self.stage.call(amount)));
    }

    fn note(&mut self, card: &Value) -> u32 {
        let amount = amount_of(card);
        let id = card["id"].as_str().unwrap().to_owned();
        self.calls.entry(amount).or_default().ids.insert(id);
        self.open.insert(amount);
        amount
    }

    /// Approvers decide and callers leave until the gateway dies at some moment.
    pub(super) async fn dies_at_work(&mut self) {
        let delay = Duration::from_millis(50 + random(200));
        self.stage.upstream.set(|offer| offer.call_delay = delay);
        let mut deciding = JoinSet::new();
        let (count, mut counted) = watch::channel(0);
        for part in 0..APPROVERS {
            let mine = self.parked.iter().skip(part).step_by(APPROVERS).cloned();
            deciding.spawn(decides(self.approver.clone(), mine.collect(), count.clone()));
        }
        for (_, held) in self.held.iter().filter(|_| one_in(8)) {
            held.abort();
        }
        let some = random(self.parked.len() as u64 / 3 + 1);
        // Fewer come than that if all approvers are through.
        drop(timeout(DECIDING, counted.wait_for(|count| *count >= some)).await);
        sleep(Duration::from_millis(random(MOMENTS_MS))).await;
        let pid = self.stage.house.pid().unwrap().to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().await.unwrap().success());
        for (amount, decision) in deciding.join_all().await.into_iter().flatten() {
            self.calls.entry(amount).or_default().decided = Some(decision);
        }
        for (amount, held) in std::mem::take(&mut self.held) {
            let call = self.calls.entry(amount).or_default();
            // Who left, or was cut off by the end of the gateway, was told nothing.
            let answer: Option<Answer> = held.await.ok().and_then(Result::ok);
            call.answered = answer.map(|answer| told(&answer)).or(call.answered);
        }
        self.figures.kills += 1;
    }

    /// Starts the gateway anew on what it left; now and then it dies again on the way.
    pub(super) async fn rises(mut self) -> Self {
        let folder = self.stage.house.kill().await;
        while one_in(STARTS) {
            dies_at_its_start(&folder, &self.stage.environment).await;
            self.figures.kills += 1;
        }
        let stage = Stage::on(folder, self.stage.upstream, self.stage.environment).await;
        let approver = Approver::of(&stage.house);
        Self { stage, approver, ..self }
    }

    /// Looks at every call that was open, after a start: nobody has done anything since.
    pub(super) async fn look(&mut self) {
        let live = self.approver.cards(LIVE).await.unwrap();
        let count = |state: &str| live.iter().filter(|card| card["state"] == state).count();
        assert_eq!(count("executing"), 0, "after a start nothing executes");
        self.figures.deaths += 1;
        self.figures.parked += count("parked");
        self.figures.approved += count("approved");
        for card in &live {
            self.note(card);
        }
        let live: BTreeMap<&str, &Value> =
            live.iter().map(|card| (card["id"].as_str().unwrap(), card)).collect();
        let runs = self.runs();
        for amount in std::mem::take(&mut self.open) {
            let mut cards = Vec::new();
            for id in self.calls.entry(amount).or_default().ids.clone() {
                match live.get(id.as_str()) {
                    Some(card) => cards.push((*card).clone()),
                    None => match self.approver.card(&id).await.unwrap() {
                        Some(card) => cards.push(card),
                        None => self.lose(&id),
                    },
                }
            }
            self.judge(amount, &cards, runs.get(&amount).copied().unwrap_or_default());
        }
        let unknown = runs.keys().find(|amount| !self.calls.contains_key(amount));
        assert_eq!(unknown, None, "it ran and nobody made it");
    }

    fn lose(&mut self, what: &str) {
        eprintln!("lost: {what}");
        self.figures.lost += 1;
    }

    // By the upstream's own record.
    fn runs(&self) -> BTreeMap<u32, usize> {
        let mut runs = BTreeMap::new();
        for arguments in self.stage.upstream.calls("refund") {
            *runs.entry(read(&arguments)).or_default() += 1;
        }
        runs
    }

    fn judge(&mut self, amount: u32, cards: &[Value], runs: usize) {
        let live = |card: &&Value| card["state"] == "parked" || card["state"] == "approved";
        if cards.iter().any(|card| live(&card)) {
            self.open.insert(amount);
        }
        let used = cards.iter().filter(|card| used_up(card)).count();
        if runs > used {
            eprintln!("it ran {runs} times: {cards:?}");
            let figure =
                if used == 0 { &mut self.figures.undecided } else { &mut self.figures.twice };
            *figure += runs - used;
        }
        let call = &self.calls[&amount];
        let (decided, answered) = (call.decided, call.answered);
        let has =
            |decision: &str| cards.iter().any(|card| card["decision"]["decision"] == decision);
        if decided.is_some_and(|decision| !has(decision)) {
            self.lose(&format!("the decision on {cards:?}"));
        }
        if answered == Some(Told::Result) {
            // An answer is on record before anybody gets it.
            assert!(runs == 1 && cards.iter().any(|card| card["state"] == "done"), "{cards:?}");
        }
    }

    /// Brings every call that is left to its end, looks at all there ever were, and says what
    /// was counted.
    pub(super) async fn settles(mut self) {
        self.stage.upstream.set(|offer| offer.call_delay = Duration::ZERO);
        let left: Vec<u32> = self.open.iter().copied().collect();
        for part in left.chunks(SETTLING) {
            let calls: Vec<_> = part.iter().map(|amount| self.stage.call(*amount)).collect();
            for (amount, held) in part.iter().zip(calls) {
                let answer = self.stage.ends(*amount, held).await;
                assert_eq!(told(&answer), Told::Result, "{}", answer.text);
            }
        }
        self.open = self.calls.keys().copied().collect();
        let all = self.approver.cards("").await.unwrap();
        let runs = self.runs();
        for amount in std::mem::take(&mut self.open) {
            let ids = &self.calls[&amount].ids;
            let of_it = |card: &&Value| ids.contains(card["id"].as_str().unwrap());
            let cards: Vec<Value> = all.iter().filter(of_it).cloned().collect();
            for _ in cards.len()..ids.len() {
                self.lose("a card that was there");
            }
            self.judge(amount, &cards, runs.get(&amount).copied().unwrap_or_default());
        }
        assert!(self.open.is_empty(), "live at the end: {:?}", self.open);
        self.look_at_the_trail(&all);
        let Figures { lost, twice, undecided, kills, deaths, parked, approved } = self.figures;
        let executing = all.iter().filter(|card| card["state"] == "unknown").count();
        eprintln!(
            "{} calls, {kills} kills, {deaths} of them at work, each with {} calls parked, {} approved and {} executing: lost {lost}, twice {twice}, undecided {undecided}",
            all.len(),
            parked / deaths,
            approved / deaths,
            executing / deaths,
        );
        assert_eq!((lost, twice, undecided), (0, 0, 0));
        assert!(parked > 0 && approved > 0 && executing > 0, "a state is missing");
    }

    // What ran has a decision on disk in the trail as well, and one intent.
    fn look_at_the_trail(&mut self, all: &[Value]) {
        let (mut approved, mut intents) = (BTreeSet::new(), BTreeMap::new());
        for line in self.stage.house.audit() {
            let Some(card) = line["card"].as_str().map(str::to_owned) else { continue };
            if line["kind"] == "decision" && line["decision"] == "approve" {
                approved.insert(card);
            } else if line["kind"] == "intent" {
                *intents.entry(card).or_insert(0) += 1;
            }
        }
        for card in all.iter().filter(|card| used_up(card)) {
            let id = card["id"].as_str().unwrap();
            assert!(approved.contains(id), "no decision on record: {card}");
            assert!(intents.get(id).copied().unwrap_or_default() <= 1, "two intents: {card}");
        }
        let ran = |id: &String| all.iter().any(|card| card["id"] == **id && used_up(card));
        assert!(intents.keys().all(ran), "an intent of a card that did not start");
    }
}

// Decides a good half of `cards`; returns what the gateway said it has taken.
async fn decides(
    approver: Approver,
    cards: Vec<Value>,
    count: watch::Sender<u64>,
) -> Vec<(u32, &'static str)> {
    let mut decided = Vec::new();
    for card in cards {
        let decision = match random(10) {
            0..5 => "approve",
            5 => "deny",
            _ => continue,
        };
        match approver.decide(&card, decision).await {
            Ok((200, _)) => {
                decided.push((amount_of(&card), decision));
                count.send_modify(|count| *count += 1);
            }
            Ok(other) => panic!("{other:?}"),
            // The gateway is gone.
            Err(_) => break,
        }
    }
    decided
}

async fn dies_at_its_start(folder: &Folder, environment: &[(String, String)]) {
    let mut serve = Command::new(binary());
    serve.args(["serve", "--config", "gateway.yaml"]).current_dir(folder.path());
    serve.envs(environment.iter().map(|(name, value)| (name, value)));
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut process = serve.spawn().unwrap();
    sleep(Duration::from_millis(random(STARTING_MS))).await;
    process.kill().await.unwrap();
}

fn amount_of(card: &Value) -> u32 {
    read(card["arguments"].as_str().unwrap())
}

fn read(arguments: &str) -> u32 {
    let amount = arguments.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    assert_eq!(arguments, arguments_of(amount));
    amount
}

// Its approval is used up, by a call that ended one way or the other.
fn used_up(card: &Value) -> bool {
    card["decision"]["decision"] == "approve"
        && (card["state"] == "done" || card["state"] == "unknown")
}
