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

    /// The counters of an agent; `counts_minutes` if its policy limits calls a minute.
    pub(crate) fn usage(&self, agent: &AgentName, counts_minutes: bool) -> Usage {
        let Some(counter) = self.agents.get(agent) else {
            return Usage { unattended: self.unattended, ..Usage::default() };
        };
        let calls_last_minute = if counts_minutes { counter.last_minute() } else { 0 };
        Usage {
            concurrent_calls: counter.concurrent.load(Ordering::Relaxed),
            calls_last_minute,
            parked_calls: 0,
            unattended: self.unattended,
        }
    }

    /// Counts a call that starts; the guard counts its end.
    pub(crate) fn start(&self, agent: &AgentName, counts_minutes: bool) -> Running {
        let found = self.agents.get(agent).map(|counter| Arc::clone(counter.value()));
        let counter = found
            .unwrap_or_else(|| Arc::clone(self.agents.entry(agent.clone()).or_default().value()));
        counter.concurrent.fetch_add(1, Ordering::Relaxed);
        if counts_minutes {
            counter.started.lock().push_back(Instant::now());
        }
        Running { counter }
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

/// A call in flight.
#[derive(Debug)]
pub(crate) struct Running {
    counter: Arc<Counter>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counter.concurrent.fetch_sub(1, Ordering::Relaxed);
    }
}
