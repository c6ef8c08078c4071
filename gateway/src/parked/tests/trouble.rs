//! Whatever write fails, once, in whatever way: nothing runs without a committed decision and a
//! committed start, nothing runs twice, somebody hears of it, and every call finds its end.

use super::restart::life;
use super::*;
use crate::store::ground::{Failure, When};
use tokio::time::timeout;

/// How long a call may take before the sweep is asked to look after it.
const PATIENCE: Duration = Duration::from_millis(20);

async fn park(rig: &Rig, number: u32) -> Ticket {
    loop {
        match rig.try_call(number).await {
            Ok(ticket) => return ticket,
            Err(ParkError::Store(_)) => rig.parked.sweep().await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn approve(rig: &Rig, id: &str) {
    loop {
        match rig.try_approve(id).await {
            Ok(_) => return,
            Err(DecideError::Store(_)) => rig.parked.sweep().await,
            // What started unseen may have run, and says so.
            Err(DecideError::Settled(card)) if card.state() == State::Unknown => return,
            Err(error) => panic!("{error}"),
        }
    }
}

// A call from its parking to its end. Each step is repeated until it counts, as agents and
// approvers do.
async fn cycle(rig: &Rig, number: u32) -> Settlement {
    let mut ticket = park(rig, number).await;
    let id = ticket.id().to_owned();
    if !rig.state(&id).await.is_settled() {
        approve(rig, &id).await;
    }
    let settlement = loop {
        match timeout(PATIENCE, settled(&mut ticket)).await {
            Ok(settlement) => break settlement,
            Err(_) => rig.parked.sweep().await,
        }
    };
    while !rig.state(&id).await.is_settled() {
        tokio::time::sleep(PATIENCE).await;
        rig.parked.sweep().await;
    }
    ticket.delivered(Reached::Surely).await;
    settlement
}

/// Before a statement, before a commit, after a commit.
const WAYS: [fn(usize) -> When; 3] = [When::Statement, When::Commit, When::Committed];

// A call during which one failure is planned. False if it ended before the failure came.
async fn struck(rig: &Rig, number: u32, when: When, failure: Failure) -> bool {
    let store = &rig.parked.inner.store;
    store.plan(when, failure);
    let before = rig.runs();
    let settlement = cycle(rig, number).await;
    let ran = rig.runs() - before;
    let told = format!("{failure:?} at {when:?}: {settlement:?}, ran {ran} times");
    let unknown = matches!(settlement, Settlement::Unknown { .. });
    assert!(if unknown { ran <= 1 } else { ran == 1 && settlement == result() }, "{told}");
    store.struck()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_fails_once_in_every_way_and_the_sweep_mends_it() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut number = 0;
    for (failure, way) in Failure::ALL.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let mut at = 0;
        while struck(&rig, number, way(at), failure).await {
            (at, number) = (at + 1, number + 1);
        }
        number += 1;
        // Parked, decided, started, ended, delivered.
        assert!(at >= 5, "{failure:?} struck {at} times");
    }
    no_start_without_record(&rig);
}

fn no_start_without_record(rig: &Rig) {
    let starts = rig.starts.lock().clone();
    assert!(starts.iter().all(|start| *start == (State::Executing, 1)), "{starts:?}");
}

// One step after the other until one fails; then the gateway dies.
async fn until_it_fails(rig: &Rig, number: u32) {
    let Ok(mut ticket) = rig.try_call(number).await else { return };
    let by = operator("ann");
    if rig.parked.decide(ticket.id(), &yes(number), &by, None).await.is_ok() {
        drop(timeout(PATIENCE, settled(&mut ticket)).await);
    }
}

// A life of a gateway: it mends what the life before left behind, then dies of one failure.
// Says how often the call of each life ran in this one.
async fn life_and_death(ground: &Ground, number: u32, when: When) -> [usize; 2] {
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    if let Some(before) = number.checked_sub(1) {
        let settlement = cycle(&rig, before).await;
        let unknown = matches!(settlement, Settlement::Unknown { .. });
        assert!(unknown || settlement == result(), "{settlement:?}");
    }
    let mended = rig.runs();
    rig.parked.inner.store.plan(when, Failure::Gone);
    until_it_fails(&rig, number).await;
    no_start_without_record(&rig);
    [mended, rig.runs() - mended]
}

#[test]
fn every_write_fails_once_and_a_restart_mends_it() {
    let ground = Ground::new(KIND);
    let whens = WAYS.into_iter().flat_map(|way| (0..14).map(way));
    let mut runs: Vec<usize> = Vec::new();
    for (number, when) in (0..).zip(whens) {
        let [mended, failed] = life(life_and_death(&ground, number, when));
        if let Some(before) = runs.last_mut() {
            *before += mended;
        }
        runs.push(failed);
    }
    assert!(runs.iter().all(|ran| *ran <= 1), "{runs:?}");
}
