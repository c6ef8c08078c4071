//! How much each agent does at this moment: the counters that `decide` looks at.

use dashmap::DashMap;
use parking_lot::Mutex;
use portcullis_policy::decide::Usage;
use portcullis_policy::name::AgentName;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time over which calls are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Counters of all agents.
#[derive(Debug)]
pub(crate) struct Counters {
    agents: DashMap<AgentName, Arc<Counter>>,
    unattended: bool,
}

#[derive(Debug, Default)]
struct Counter {
    concurrent: AtomicU32,
    started: Mutex<VecDeque<Instant>>,
}

impl Counters {
    /// No calls yet; `unattended` if the operator said that nobody watches this gateway.
    pub(crate) fn new(unattended: bool) -> Self {
        Self { agents: DashMap::new(), unattended }
    }

    /// Takes a place among the calls of an agent and returns the counters without it, so that
    /// calls that come together do not all see the same number.
    pub(crate) fn enter(&self, agent: &AgentName, counts_minutes: bool) -> (Running, Usage) {
        let found = self.agents.get(agent).map(|counter| Arc::clone(counter.value()));
        let counter = found
            .unwrap_or_else(|| Arc::clone(self.agents.entry(agent.clone()).or_default().value()));
        let concurrent_calls = counter.concurrent.fetch_add(1, Ordering::Relaxed);
        let calls_last_minute = if counts_minutes { counter.last_minute() } else { 0 };
        let usage = Usage {
            concurrent_calls,
            calls_last_minute,
            unattended: self.unattended,
            parent: false,
        };
        (Running { counter, counts_minutes }, usage)
    }
}

impl Counter {
    fn last_minute(&self) -> u32 {
        let mut started = self.started.lock();
        while started.front().is_some_and(|at| at.elapsed() >= MINUTE) {
            started.pop_front();
        }
        u32::try_from(started.len()).unwrap_or(u32::MAX)
    }
}

/// A place among the calls in flight; given back when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    counter: Arc<Counter>,
    counts_minutes: bool,
}

impl Running {
    /// Counts the call among those of the last minute: it was not refused.
    pub(crate) fn starts(&self) {
        if self.counts_minutes {
            self.counter.started.lock().push_back(Instant::now());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counter.concurrent.fetch_sub(1, Ordering::Relaxed);
    }
}
