//! SIGKILL of the gateway at each write of one call's life, one after another.

use super::cycle::{Stage, arguments_of};
use super::told::{Told, told};
use portcullis_tests::approver::Approver;
use portcullis_tests::strace::Strace;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Gateways that share the work of one kind of write.
const GATEWAYS: u32 = 4;
/// More writes than this make no cycle: it would never end without one.
const WRITES_MAX: u32 = 200;
/// How long a gateway that answered has for what it still writes.
const AFTER_THE_ANSWER: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What is written to.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Store,
    Trail,
}

impl Kept {
    // Writes are counted in each thread. One thread writes the store. The first record of a call
    // has a thread of its own, so that those after it are only reached behind an earlier call.
    fn cycles(self) -> u32 {
        match self {
            Self::Store => 1,
            Self::Trail => 2,
        }
    }
}

fn files(state: &Path, kept: Kept) -> Vec<PathBuf> {
    match kept {
        Kept::Store => vec![state.join("state.db"), state.join("state.db-wal")],
        Kept::Trail => {
            let trail = fs::read_dir(state.join("audit")).unwrap();
            trail.map(|entry| entry.unwrap().path()).collect()
        }
    }
}

/// Kills at the first, second, … `call` of one cycle until a cycle has no more of them. Returns
/// how many there are.
async fn dies_at_each(call: &'static str, kept: Kept) -> u32 {
    let next = Arc::new(AtomicU32::new(1));
    let mut gateways = JoinSet::new();
    for _ in 0..GATEWAYS {
        let next = Arc::clone(&next);
        gateways.spawn(async move {
            let (folder, upstream) = Stage::folder("").await;
            let one = vec![("TOKIO_WORKER_THREADS".to_owned(), "1".to_owned())];
            let mut stage = Stage::on(folder, upstream, one).await;
            loop {
                let turn = next.fetch_add(1, Ordering::SeqCst);
                assert!(turn < WRITES_MAX, "a cycle does not end");
                let died;
                (stage, died) = dies_at(stage, (call, turn), kept).await;
                if !died {
                    return turn - 1;
                }
            }
        });
    }
    gateways.join_all().await.into_iter().min().unwrap_or_default()
}

/// One cycle in which the gateway dies at the `turn`th `call`, and what is left of it. False if
/// it has fewer and the gateway lived.
async fn dies_at(stage: Stage, (call, turn): (&str, u32), kept: Kept) -> (Stage, bool) {
    let files = files(&stage.house.folder.path().join("state"), kept);
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut strace = Strace::kills(stage.house.pid().unwrap(), call, turn, &files).await;
    let mut heard = BTreeMap::new();
    let lived = tokio::select! {
        lived = cycles(&stage, turn * kept.cycles()..(turn + 1) * kept.cycles(), &mut heard) => lived,
        () = strace.gone() => false,
    };
    // That the answer was delivered is written after it.
    if lived && timeout(AFTER_THE_ANSWER, strace.gone()).await.is_err() {
        drop(strace.detach().await);
        return (stage, false);
    }
    strace.gone().await;
    let stage = stage.crash().await;
    for (amount, heard) in heard {
        judge(&stage, amount, &heard).await;
        stage.recovers(amount).await;
    }
    (stage, true)
}

async fn cycles(stage: &Stage, amounts: Range<u32>, heard: &mut BTreeMap<u32, Heard>) -> bool {
    for amount in amounts {
        if !cycle(stage, amount, heard.entry(amount).or_default()).await {
            return false;
        }
    }
    true
}

/// What was heard of a call before the gateway died.
#[derive(Debug, Default)]
struct Heard {
    card: Option<String>,
    approved: bool,
    result: bool,
}

// Makes the call of `amount` and approves it. False if the gateway went away meanwhile.
async fn cycle(stage: &Stage, amount: u32, heard: &mut Heard) -> bool {
    let approver = Approver::of(&stage.house);
    let held = stage.call(amount);
    while !held.is_finished() {
        let Ok(cards) = approver.cards("state=parked").await else { return false };
        let its = cards.iter().find(|card| card["arguments"] == arguments_of(amount));
        if let Some(card) = its {
            heard.card = card["id"].as_str().map(str::to_owned);
            match approver.decide(card, "approve").await {
                Ok((status, _)) => heard.approved |= status == 200,
                Err(_) => return false,
            }
        }
        sleep(LOOK_AGAIN).await;
    }
    let Ok(answer) = held.await.unwrap() else { return false };
    stage.judge(amount, &answer);
    heard.result = told(&answer) == Told::Result;
    true
}

async fn judge(stage: &Stage, amount: u32, heard: &Heard) {
    let cards = stage.settled(amount).await;
    let has = |member: &str, value: &str| cards.iter().any(|card| card[member] == value);
    assert!(stage.runs(amount) <= 1, "it ran twice: {cards:?}");
    assert!(heard.card.as_ref().is_none_or(|id| has("id", id)), "{heard:?} is lost: {cards:?}");
    let approved = cards.iter().any(|card| card["decision"]["decision"] == "approve");
    assert!(approved || !heard.approved, "its decision is lost: {cards:?}");
    assert!(!heard.result || has("state", "done"), "its end is lost: {cards:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_at_any_write_of_the_store_loses_no_call_and_runs_none_twice() {
    assert!(dies_at_each("pwrite64", Kept::Store).await >= 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_at_any_sync_of_the_store_loses_no_call_and_runs_none_twice() {
    assert!(dies_at_each("fsync", Kept::Store).await >= 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_at_any_record_of_the_trail_loses_no_call_and_runs_none_twice() {
    let records = dies_at_each("write", Kept::Trail).await;
    let syncs = dies_at_each("fdatasync", Kept::Trail).await;
    assert!(records >= 4 && syncs >= 1, "{records} records, {syncs} syncs");
}
