//! SIGKILL of the gateway at random moments, with many calls in every state.

mod crowd;

use super::cycle::Stage;
use crowd::Crowd;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// How much dies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// How often the gateway is killed.
    pub(super) kills: u32,
    /// Calls that are parked, approved or executing each time.
    pub(super) calls: usize,
}

/// What every run of the tests can afford.
const EACH_TIME: Size = Size { kills: 50, calls: 100 };
/// Names the size of a longer form, such as `1000x1000` before a release.
const SIZE: &str = "PORTCULLIS_TEST_KILLS";
/// It dies within this time of some decision.
const MOMENTS_MS: u64 = 40;
/// Or of the first one, if they do not come to that.
const DECIDING: Duration = Duration::from_secs(5);
/// One start in so many is killed as well, within this time.
const STARTS: u64 = 5;
const STARTING_MS: u64 = 200;

fn size() -> Size {
    let Ok(text) = std::env::var(SIZE) else { return EACH_TIME };
    let size = text.split_once('x').and_then(|(kills, calls)| {
        Some(Size { kills: kills.parse().ok()?, calls: calls.parse().ok()? })
    });
    size.unwrap_or_else(|| panic!("{SIZE} is kills and calls, such as `1000x1000`: {text}"))
}

fn random(below: u64) -> u64 {
    RandomState::new().build_hasher().finish() % below
}

fn one_in(many: u64) -> bool {
    random(many) == 0
}

/// Kills the gateway of `stage` again and again, and settles what is left.
pub(super) async fn killed_at_random(stage: Stage, size: Size) {
    let mut crowd = Crowd::new(stage);
    while crowd.kills() < size.kills {
        crowd.gathers(size.calls).await;
        crowd.dies_at_work().await;
        crowd = crowd.rises().await;
        crowd.look().await;
    }
    crowd.settles().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_at_any_moment_loses_no_call_and_runs_none_twice_or_undecided() {
    killed_at_random(Stage::open().await, size()).await;
}
