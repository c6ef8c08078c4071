//! Which runs belong to which subagents of a harness that tells of them by hooks.
//!
//! A helper that prints a token does not know for which subagent, and a hook does not know of
//! runs. So a run has candidates: the subagents of its agent that were at work when it began or began
//! right after, whoever tells of them: the helper may have another credential than the hooks. It is over when all of them are: then it is over whosever it
//! was. Soft state: after a restart runs end by their time.

use parking_lot::Mutex;
use portcullis_policy::name::AgentName;
use std::collections::{BTreeMap, BTreeSet};

/// How long after a run the subagent may begin that it is for, in milliseconds.
const AFTER_MS: u64 = 10_000;
/// Most subagents, and most runs, that are kept in mind; the oldest go first.
const KEPT_MAX: usize = 10_000;

/// A subagent: its harness, the session there, and its id in that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subagent {
    /// The admin principal that tells of it.
    pub harness: String,
    /// The session.
    pub session: String,
    /// The id within it.
    pub id: String,
}

/// What is known of runs and subagents. Cheap when nothing is.
#[derive(Debug, Default)]
pub struct Pairs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    at_work: BTreeMap<Subagent, AgentName>,
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    id: String,
    agent: AgentName,
    began_ms: u64,
    candidates: BTreeSet<Subagent>,
}

/// What the end of subagents means for runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// These are over.
    pub over: Vec<String>,
    /// So many may have been theirs, or those of others that are still at work.
    pub unclear: usize,
}

impl Pairs {
    /// A helper started a run of `agent`.
    pub fn began(&self, run: &str, agent: &AgentName, now_ms: u64) {
        let mut state = self.0.lock();
        let own = state.at_work.iter().filter(|(_, of)| *of == agent);
        let candidates = own.map(|(subagent, _)| subagent.clone()).collect();
        let (id, agent) = (run.to_owned(), agent.clone());
        state.runs.push(Run { id, agent, began_ms: now_ms, candidates });
        if state.runs.len() > KEPT_MAX {
            state.runs.remove(0);
        }
    }

    /// A subagent began.
    pub fn started(&self, subagent: Subagent, agent: &AgentName, now_ms: u64) {
        let mut state = self.0.lock();
        for run in &mut state.runs {
            if run.agent == *agent && now_ms.saturating_sub(run.began_ms) <= AFTER_MS {
                run.candidates.insert(subagent.clone());
            }
        }
        if state.at_work.len() >= KEPT_MAX {
            state.at_work.pop_first();
        }
        state.at_work.insert(subagent, agent.clone());
    }

    /// A subagent ended.
    pub fn stopped(&self, subagent: &Subagent) -> Over {
        self.0.lock().end(|one| one == subagent)
    }

    /// A session ended, and with it all its subagents.
    pub fn session_ended(&self, harness: &str, session: &str) -> Over {
        self.0.lock().end(|one| one.harness == harness && one.session == session)
    }
}

impl State {
    fn end(&mut self, is_over: impl Fn(&Subagent) -> bool) -> Over {
        self.at_work.retain(|subagent, _| !is_over(subagent));
        let mut ended = Over::default();
        self.runs.retain_mut(|run| {
            let before = run.candidates.len();
            run.candidates.retain(|subagent| !is_over(subagent));
            if run.candidates.len() == before {
                return true;
            }
            if run.candidates.is_empty() {
                ended.over.push(run.id.clone());
                return false;
            }
            ended.unclear += 1;
            true
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentName {
        AgentName::new("reviewer").unwrap()
    }

    fn one(id: &str) -> Subagent {
        of("ci", id)
    }

    fn of(harness: &str, id: &str) -> Subagent {
        let (harness, session) = (harness.to_owned(), "s".to_owned());
        Subagent { harness, session, id: id.to_owned() }
    }

    #[test]
    fn a_run_ends_with_the_subagent_that_was_at_work_when_it_began() {
        let pairs = Pairs::default();
        pairs.started(one("a"), &agent(), 0);
        pairs.began("run_a", &agent(), 5);
        // A connection that is made again is another run of the same subagent.
        pairs.began("run_b", &agent(), 90_000);
        pairs.started(one("b"), &agent(), 90_001 + AFTER_MS);
        pairs.began("run_other", &AgentName::new("writer").unwrap(), 90_002);
        let ended = pairs.stopped(&one("a"));
        assert_eq!(ended, Over { over: vec!["run_a".to_owned(), "run_b".to_owned()], unclear: 0 });
        assert_eq!(pairs.stopped(&one("b")), Over::default());
    }

    #[test]
    fn a_run_may_begin_right_before_its_subagent() {
        let pairs = Pairs::default();
        pairs.began("run_old", &agent(), 0);
        pairs.began("run_a", &agent(), 20_000);
        pairs.started(one("a"), &agent(), 20_000 + AFTER_MS);
        assert_eq!(pairs.stopped(&one("a")).over, ["run_a"]);
    }

    #[test]
    fn what_may_be_another_ones_is_over_with_the_last_of_them() {
        let pairs = Pairs::default();
        pairs.started(one("a"), &agent(), 0);
        pairs.started(one("b"), &agent(), 1);
        pairs.began("run_x", &agent(), 2);
        pairs.began("run_y", &agent(), 3);
        assert_eq!(pairs.stopped(&one("a")), Over { over: Vec::new(), unclear: 2 });
        assert_eq!(pairs.session_ended("ci", "another"), Over::default());
        assert_eq!(pairs.session_ended("ci", "s").over, ["run_x", "run_y"]);
    }

    #[test]
    fn a_run_that_began_before_its_subagent_does_not_end_with_another_one() {
        let pairs = Pairs::default();
        pairs.began("run_a", &agent(), 0);
        pairs.started(one("a"), &agent(), 1);
        pairs.began("run_b", &agent(), 2);
        pairs.started(one("b"), &agent(), 3);
        assert_eq!(pairs.stopped(&one("a")), Over { over: Vec::new(), unclear: 2 });
        assert_eq!(pairs.stopped(&one("b")).over, ["run_a", "run_b"]);
    }

    #[test]
    fn two_harnesses_may_number_alike() {
        let pairs = Pairs::default();
        pairs.began("run_a", &agent(), 1);
        pairs.started(one("a"), &agent(), 2);
        assert_eq!(pairs.stopped(&of("other", "a")), Over::default());
        assert_eq!(pairs.session_ended("other", "s"), Over::default());
        assert_eq!(pairs.stopped(&one("a")).over, ["run_a"]);
    }
}
