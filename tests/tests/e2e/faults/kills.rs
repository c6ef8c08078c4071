//! SIGKILL of the gateway at random moments, with calls in every state.

use super::cycle::{Held, Stage, arguments_of};
use super::told::{Told, told};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;
use tokio::time::sleep;

/// How often the gateway is killed.
const ROUNDS: u32 = 10;
/// Calls that are under way each time.
const CALLS: u32 = 8;
/// It dies within this time of the first call.
const MOMENTS_MS: u64 = 500;

fn random(below: u64) -> u64 {
    RandomState::new().build_hasher().finish() % below
}

/// What the gateway had said of the calls before it died.
#[derive(Default)]
struct Said {
    seen: BTreeMap<u32, String>,
    approved: BTreeSet<u32>,
}

// Approves every other call until the gateway is gone.
async fn works(stage: &Stage, amounts: &[u32], said: &mut Said) {
    loop {
        for card in stage.list().await.unwrap_or_default() {
            let same = |amount: &&u32| card["arguments"] == arguments_of(**amount);
            let Some(amount) = amounts.iter().find(same) else { continue };
            said.seen.insert(*amount, card["id"].as_str().unwrap().to_owned());
            if card["state"] == "parked"
                && amount % 2 == 0
                && stage.house.decide(&card, "approve", None).await.0 == 200
            {
                said.approved.insert(*amount);
            }
        }
    }
}

async fn check(stage: &Stage, amounts: &[u32], said: &Said) {
    for amount in amounts {
        let cards = stage.settled(*amount).await;
        assert!(stage.runs(*amount) <= 1, "{cards:?} ran twice");
        if let Some(id) = said.seen.get(amount) {
            assert!(cards.iter().any(|card| card["id"] == **id), "{id} is lost: {cards:?}");
        }
        if said.approved.contains(amount) {
            assert_eq!(cards[0]["decision"]["decision"], "approve", "a decision is lost");
        }
    }
}

/// Kills the gateway of `stage` again and again, and settles what is left.
pub(super) async fn killed_at_random(mut stage: Stage) {
    let mut known = 0;
    for round in 0..ROUNDS {
        stage.upstream.set(|offer| offer.call_delay = Duration::from_millis(random(200)));
        let amounts: Vec<u32> = (round * CALLS..(round + 1) * CALLS).collect();
        let calls: Vec<_> = amounts.iter().map(|amount| stage.call(*amount)).collect();
        let mut said = Said::default();
        tokio::select! {
            () = works(&stage, &amounts, &mut said) => {}
            () = sleep(Duration::from_millis(random(MOMENTS_MS))) => {}
        }
        calls.iter().for_each(Held::abort);
        stage = stage.crash().await;
        check(&stage, &amounts, &said).await;
        known += said.seen.len();
    }
    assert!(known > 0, "it died before it did anything");
    stage.upstream.set(|offer| offer.call_delay = Duration::ZERO);
    for amount in 0..ROUNDS * CALLS {
        let left = stage.settled(amount).await;
        let live = |card: &Value| card["state"] == "parked" || card["state"] == "approved";
        if left.iter().any(live) {
            let answer = stage.cycle(amount).await;
            assert_eq!(told(&answer), Told::Result, "{}", answer.text);
            assert_eq!(stage.runs(amount), 1, "{left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_at_any_moment_loses_no_call_and_runs_none_twice_or_undecided() {
    killed_at_random(Stage::open().await).await;
}
