//! Client libraries and harnesses as they are, whose calls wait for an approval: they are held
//! where their timers allow it, told the truth where not, and what was approved runs once.
//!
//! What ends here by a client's own timer takes a minute. So all of it is one test, in which
//! every client has a gateway of its own and all timers run side by side.

mod agents;
mod crewai;
mod langchain;
mod legs;
mod sdks;
mod stage;
mod subagents;
pub(crate) mod tap;
mod tasks;
mod urls;

use std::cmp::Reverse;
use std::pin::Pin;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// What one client goes through.
struct Case {
    name: &'static str,
    seconds: u32,
    run: Pin<Box<dyn Future<Output = ()>>>,
}

impl Case {
    /// `seconds` is about how long its timers run: what runs longest starts first.
    fn new(name: &'static str, seconds: u32, run: impl Future<Output = ()> + 'static) -> Self {
        Self { name, seconds, run: Box::pin(run) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_clients_outlast_the_wait_for_an_approval() {
    let held = [crewai::cases(), agents::cases(), langchain::cases(), sdks::cases()];
    let told = [legs::cases(), tasks::cases(), urls::cases()];
    let mut cases: Vec<Case> = held.into_iter().chain(told).flatten().collect();
    cases.sort_by_key(|case| Reverse(case.seconds));
    let failed = LocalSet::new().run_until(side_by_side(cases)).await;
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Runs all cases to their end; returns what failed and why.
async fn side_by_side(cases: Vec<Case>) -> Vec<String> {
    let running: Vec<(&str, JoinHandle<()>)> =
        cases.into_iter().map(|case| (case.name, spawn_local(stage::in_turn(case.run)))).collect();
    let mut failed = Vec::new();
    for (name, case) in running {
        let Err(error) = case.await else { continue };
        let why = error.into_panic();
        let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or(why.downcast_ref::<String>().cloned());
        failed.push(format!("{name}: {}", text.unwrap_or_default()));
    }
    failed
}
