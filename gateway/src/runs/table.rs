//! The live runs, as requests find them: who they are, who started them, what they may reach.

use crate::identity::Lease;
use crate::parked::Clock;
use crate::scopes::Generation;
use parking_lot::{Mutex, RwLock};
use portcullis_policy::definition::Definition;
use portcullis_policy::ledger::Ancestor;
use portcullis_policy::name::AgentName;
use portcullis_policy::narrow::Narrow;
use portcullis_policy::scope::Scope;
use std::collections::HashMap;
use std::sync::Arc;

/// Most runs above one another.
pub const DEPTH_MAX: usize = 16;

/// A run that may be used.
#[derive(Debug)]
pub(crate) struct LiveRun {
    /// Its id.
    pub(crate) id: String,
    /// The agent.
    pub(crate) agent: AgentName,
    /// The run that started it.
    pub(crate) parent: Option<String>,
    /// True for the run of a credential, which nobody started.
    pub(crate) unnamed: bool,
    /// What it may reach of what its agent may reach; `None` is all.
    pub(crate) narrow: Option<Narrow>,
    /// True if no person watches it.
    pub(crate) unattended: bool,
    /// SHA-256 of its token.
    pub(super) token: Option<[u8; 32]>,
    // When its time is over, on the steady clock; `None` is never.
    ends_ms: Option<u64>,
    clock: Clock,
    /// What is open on it.
    pub(crate) lease: Lease,
    // The scope of the newest generation that was asked for.
    scope: Mutex<Option<Arc<Scope>>>,
}

/// A run about to be live.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) id: String,
    pub(super) agent: AgentName,
    pub(super) parent: Option<String>,
    pub(super) unnamed: bool,
    pub(super) narrow: Option<Narrow>,
    pub(super) unattended: bool,
    pub(super) token: Option<[u8; 32]>,
    pub(super) ends_ms: Option<u64>,
    pub(super) clock: Clock,
}

impl LiveRun {
    fn new(run: Coming) -> Self {
        Self {
            token: run.token,
            clock: run.clock,
            id: run.id,
            agent: run.agent,
            parent: run.parent,
            unnamed: run.unnamed,
            narrow: run.narrow,
            unattended: run.unattended,
            ends_ms: run.ends_ms,
            lease: Lease::new(),
            scope: Mutex::new(None),
        }
    }

    /// True if nothing may begin on it: it was ended, or its time is over and nobody has noticed.
    pub(crate) fn is_over(&self) -> bool {
        let over = self.ends_ms.is_some_and(|ends_ms| ends_ms <= self.clock.steady_ms());
        over || self.lease.is_closed()
    }

    /// What the run may reach in `generation`; `None` if no policy defines its agent.
    pub(crate) fn scope(&self, generation: &Generation) -> Option<Arc<Scope>> {
        let Some(narrow) = &self.narrow else {
            return generation.scopes.get(&self.agent).map(Arc::clone);
        };
        let mut known = self.scope.lock();
        if let Some(scope) = known.as_ref().filter(|scope| scope.generation == generation.number) {
            return Some(Arc::clone(scope));
        }
        let agent = generation.definition.agents.get(&self.agent)?;
        let (agent, _) = agent.narrowed(narrow);
        let (scope, _) = Scope::resolve(
            &agent,
            &generation.definition,
            &generation.catalogue,
            generation.number,
        );
        let scope = Arc::new(scope);
        // A request of an older generation leaves the newer one where it is.
        if known.as_ref().is_none_or(|scope| scope.generation < generation.number) {
            *known = Some(Arc::clone(&scope));
        }
        Some(scope)
    }
}

/// All live runs.
#[derive(Debug, Default)]
pub(crate) struct RunTable {
    live: RwLock<HashMap<String, Arc<LiveRun>>>,
    // Ends that the store did not take, by run: why, and by whom.
    unfinished: Mutex<HashMap<String, (String, String)>>,
}

impl RunTable {
    /// Adds a run, unless it is there.
    pub(super) fn add(&self, run: Coming) -> Arc<LiveRun> {
        let mut live = self.live.write();
        let known = live.entry(run.id.clone()).or_insert_with(|| Arc::new(LiveRun::new(run)));
        Arc::clone(known)
    }

    /// Takes a run away.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<LiveRun>> {
        self.live.write().remove(id)
    }

    /// The live run of that id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<LiveRun>> {
        self.live.read().get(id).map(Arc::clone)
    }

    /// How many runs are live.
    pub(crate) fn count(&self) -> usize {
        self.live.read().len()
    }

    /// How many live runs `agent` has, and how many were started by `parent`.
    pub(super) fn counts(&self, agent: &AgentName, parent: Option<&str>) -> (usize, usize) {
        let live = self.live.read();
        let of_agent = live.values().filter(|run| run.agent == *agent).count();
        let below =
            live.values().filter(|run| run.parent.is_some() && run.parent.as_deref() == parent);
        (of_agent, below.count())
    }

    /// The runs of credentials.
    pub(super) fn unnamed(&self) -> Vec<String> {
        let live = self.live.read();
        live.values().filter(|run| run.unnamed).map(|run| run.id.clone()).collect()
    }

    /// The live run of that id and all below it.
    pub(super) fn tree(&self, id: &str) -> Vec<Arc<LiveRun>> {
        let live = self.live.read();
        let mut tree: Vec<Arc<LiveRun>> = live.get(id).map(Arc::clone).into_iter().collect();
        let mut at = 0;
        while let Some(above) = tree.get(at).map(|run| run.id.clone()) {
            let below = live.values().filter(|run| run.parent.as_ref() == Some(&above));
            tree.extend(below.map(Arc::clone));
            at += 1;
        }
        tree
    }

    /// Notes an end that the store did not take.
    pub(super) fn unfinish(&self, id: &str, why: &str, by: &str) {
        self.unfinished.lock().insert(id.to_owned(), (why.to_owned(), by.to_owned()));
    }

    /// Takes the ends that the store did not take: run, why, by whom.
    pub(super) fn unfinished(&self) -> Vec<(String, String, String)> {
        let unfinished = std::mem::take(&mut *self.unfinished.lock());
        unfinished.into_iter().map(|(id, (why, by))| (id, why, by)).collect()
    }

    /// Runs whose time is over, and how much time the others have.
    pub(super) fn times(&self, steady_ms: u64) -> Times {
        let mut times = Times::default();
        for run in self.live.read().values().filter(|run| !run.lease.is_closed()) {
            match run.ends_ms.map(|ends| ends.saturating_sub(steady_ms)) {
                None => {}
                Some(0) => times.over.push(run.id.clone()),
                Some(left_ms) => times.left.push((run.id.clone(), left_ms)),
            }
        }
        times
    }

    /// The runs above a run of `agent`, the nearest first: those that started one another, and
    /// where nobody did, the unnamed run of the one agent that binds this one. `unnamed` knows it
    /// for agents with one credential; with several, who the parent is cannot be told.
    pub(crate) fn above(
        &self,
        run: Option<&LiveRun>,
        agent: &AgentName,
        definition: &Definition,
        unnamed: impl Fn(&AgentName) -> Option<String>,
    ) -> Vec<Ancestor> {
        let mut above: Vec<Ancestor> = Vec::new();
        let mut agent = agent.clone();
        let mut parent = run.and_then(|run| run.parent.clone());
        while above.len() < DEPTH_MAX {
            let started = parent.take().and_then(|id| self.find(&id));
            let next = match started {
                Some(run) => {
                    parent.clone_from(&run.parent);
                    Some(Ancestor { agent: run.agent.clone(), run: run.id.clone() })
                }
                None => binder(definition, &agent).and_then(|agent| {
                    Some(Ancestor { agent: agent.clone(), run: unnamed(agent)? })
                }),
            };
            let Some(next) = next else { break };
            if above.iter().any(|known| known.run == next.run) {
                break;
            }
            agent = next.agent.clone();
            above.push(next);
        }
        above
    }
}

/// See [`RunTable::times`].
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) over: Vec<String>,
    /// Run and milliseconds left.
    pub(super) left: Vec<(String, u64)>,
}

// The one agent that binds `agent`; with several, policy does not say who the parent is.
fn binder<'a>(definition: &'a Definition, agent: &AgentName) -> Option<&'a AgentName> {
    let mut binders = definition
        .agents
        .values()
        .filter(|other| other.sub_agents.iter().any(|bound| bound.agent == *agent));
    match (binders.next(), binders.next()) {
        (Some(binder), None) => Some(&binder.name),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coming(id: &str, parent: Option<&str>, ends_ms: Option<u64>, clock: &Clock) -> Coming {
        Coming {
            id: id.to_owned(),
            agent: AgentName::new("support").unwrap(),
            parent: parent.map(ToOwned::to_owned),
            unnamed: false,
            narrow: None,
            unattended: false,
            token: None,
            ends_ms,
            clock: clock.clone(),
        }
    }

    #[test]
    fn a_run_is_over_with_its_time_though_nobody_has_ended_it() {
        let (clock, hands) = Clock::manual(0);
        let table = RunTable::default();
        let timed = table.add(coming("run_a", None, Some(100), &clock));
        let endless = table.add(coming("run_b", None, None, &clock));
        hands.advance(99);
        assert!(!timed.is_over() && table.times(clock.steady_ms()).over.is_empty());
        hands.advance(1);
        assert!(timed.is_over() && !endless.is_over());
        assert_eq!(table.times(clock.steady_ms()).over, ["run_a"]);
        // Closed, it is left to whoever closed it.
        timed.lease.close();
        assert!(table.times(clock.steady_ms()).over.is_empty());
    }

    #[test]
    fn a_tree_is_a_run_and_all_below_it_and_nothing_beside_it() {
        let (clock, _) = Clock::manual(0);
        let table = RunTable::default();
        for (id, parent) in
            [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", None), ("e", Some("d"))]
        {
            table.add(coming(id, parent, None, &clock));
        }
        let mut tree: Vec<String> = table.tree("a").iter().map(|run| run.id.clone()).collect();
        tree.sort();
        assert_eq!(tree, ["a", "b", "c"]);
        assert!(table.tree("nothing").is_empty());
        let agent = AgentName::new("SUPPORT").unwrap();
        assert_eq!(table.counts(&agent, Some("a")), (5, 1));
        assert_eq!(table.counts(&agent, None), (5, 0));
    }
}
