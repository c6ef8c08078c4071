//! An agent with less: the narrows of a run, and what they leave of each grant.

use super::{Entry, Narrow};
use crate::definition::{Agent, Grant, Rule, Selection};
use crate::diagnostic::Diagnostic;
use crate::name::{ServerName, ToolName};
use crate::pattern::{Case, Pattern};
use crate::source::{did_you_mean, overlap};
use std::sync::Arc;

/// The narrows that an agent goes under; by default none.
#[derive(Debug, Clone, Default)]
pub struct Narrowing {
    narrows: Arc<[Narrow]>,
    // INVARIANT: not in the agent's grants. They reach nothing and are named nowhere; they are
    // kept because what they own stays theirs: a URI or name that belongs to one of them, or to
    // nobody because of one, must not fall to another server when a narrow takes it away.
    outside: Arc<[Grant]>,
}

/// What the narrows of an agent leave of one server: an entry of each, `None` where one does not
/// list the server. All must cover.
#[derive(Debug)]
pub(crate) struct Within<'a>(Vec<Option<&'a Entry>>);

impl Agent {
    /// The agent as a run has it that was started with `narrow`, and a warning for each part of
    /// `narrow` that covers nothing the agent has. Narrowed again, both narrows must cover.
    #[must_use]
    pub fn narrowed(&self, narrow: &Narrow) -> (Self, Vec<Diagnostic>) {
        let found = narrow.entries.iter().flat_map(|entry| not_granted(self, entry)).collect();
        let (grants, gone): (Vec<Grant>, Vec<Grant>) =
            self.grants.iter().cloned().partition(|grant| narrow.entry(&grant.server).is_some());
        let narrows = self.narrowing.narrows.iter().chain([narrow]).cloned().collect();
        let outside = self.narrowing.outside.iter().cloned().chain(gone).collect();
        let bound = |name: &str| {
            ToolName::new(name).is_ok_and(|name| narrow.sub_agents.covering(&name).is_some())
        };
        let sub_agents = self.sub_agents.iter().filter(|s| bound(&s.name)).cloned().collect();
        let narrowing = Narrowing { narrows, outside };
        (Self { grants, sub_agents, narrowing, ..self.clone() }, found)
    }
}

impl Narrowing {
    /// What is left of `server`.
    pub(crate) fn within(&self, server: &ServerName) -> Within<'_> {
        Within(self.narrows.iter().map(|narrow| narrow.entry(server)).collect())
    }

    /// The grants that a narrow took away.
    pub(crate) fn outside(&self) -> &[Grant] {
        &self.outside
    }
}

impl Within<'_> {
    /// True if a tool of that name is left.
    pub(crate) fn covers(&self, name: &ToolName) -> bool {
        self.all(|entry| entry.allow.covering(name).is_some())
    }

    /// The same for a tool that differs from another one only in case: a list must spell it.
    pub(crate) fn spells(&self, name: &ToolName) -> bool {
        self.all(|entry| match &entry.allow {
            Selection::Every(_) => true,
            Selection::Listed(_) => entry.allow.spelling(name).is_some(),
        })
    }

    /// True if a resource of that URI, or a template of that text, is left.
    pub(crate) fn reads(&self, uri: &str) -> bool {
        self.all(|entry| entry.resources.iter().any(|r| r.pattern.matches(uri, Case::Exact)))
    }

    /// True if a prompt of that name is left.
    pub(crate) fn prompts(&self, name: &ToolName) -> bool {
        self.all(|entry| entry.prompts.covering(name).is_some())
    }

    /// True if some resource may be left.
    pub(crate) fn reads_some(&self) -> bool {
        self.all(|entry| !entry.resources.is_empty())
    }

    /// True if some prompt may be left.
    pub(crate) fn prompts_some(&self) -> bool {
        self.all(|entry| !entry.prompts.is_none())
    }

    /// True if some tool that `grant` may come to cover is left and would ask; told from what is
    /// written, as [`Grant::may_park`] is.
    pub(crate) fn may_park(&self, grant: &Grant) -> bool {
        let left = |asks: &Pattern| {
            self.all(|entry| match &entry.allow {
                Selection::Every(_) => true,
                Selection::Listed(rules) => rules.iter().any(|rule| {
                    !grant.auto_approve.includes(&rule.pattern)
                        && overlap(&rule.pattern, asks, Case::Fold)
                }),
            })
        };
        grant.may_park()
            && match &grant.allow {
                Selection::Every(_) => left(&Pattern::new("*")),
                Selection::Listed(rules) => rules
                    .iter()
                    .any(|rule| !grant.auto_approve.includes(&rule.pattern) && left(&rule.pattern)),
            }
    }

    fn all(&self, covers: impl Fn(&Entry) -> bool) -> bool {
        self.0.iter().all(|entry| entry.is_some_and(&covers))
    }
}

/// The parts of `entry` that cover nothing `agent` has.
fn not_granted(agent: &Agent, entry: &Entry) -> Vec<Diagnostic> {
    let Some(grant) = agent.grants.iter().find(|grant| grant.server == entry.server) else {
        let hint = did_you_mean(
            entry.server.as_str(),
            agent.grants.iter().map(|grant| grant.server.as_str()),
        );
        let text = format!(
            "agent `{}` has no grant for server `{}`, so the run gets nothing of it; remove the \
             entry{hint}",
            agent.name, entry.server
        );
        return vec![Diagnostic::warning("narrow_not_granted", &entry.location, text)];
    };
    let within = agent.narrowing.within(&grant.server);
    let tool = |pattern: &Pattern| {
        touches(&grant.allow, pattern)
            && !grant.deny.includes(pattern)
            && within.all(|earlier| touches(&earlier.allow, pattern))
    };
    let resource = |pattern: &Pattern| {
        meets(&grant.resources, pattern, Case::Exact)
            && within.all(|earlier| meets(&earlier.resources, pattern, Case::Exact))
    };
    let prompt = |pattern: &Pattern| {
        touches(&grant.prompts, pattern) && within.all(|earlier| touches(&earlier.prompts, pattern))
    };
    // `*` names nothing in particular, so it cannot name what is not there.
    let resources = entry.resources.iter().filter(|rule| rule.pattern.as_str() != "*");
    let unmet = (entry.allow.rules().iter().filter(|rule| !tool(&rule.pattern)))
        .map(|rule| ("tool", rule))
        .chain(resources.filter(|rule| !resource(&rule.pattern)).map(|rule| ("resource", rule)))
        .chain(
            (entry.prompts.rules().iter().filter(|rule| !prompt(&rule.pattern)))
                .map(|rule| ("prompt", rule)),
        );
    unmet
        .map(|(what, rule)| {
            let text = format!(
                "`{}` covers no {what} that agent `{}` is granted on server `{}`, so it gives the \
                 run nothing; remove it",
                rule.pattern.as_str().escape_debug(),
                agent.name,
                grant.server
            );
            Diagnostic::warning("narrow_not_granted", &rule.location, text)
        })
        .collect()
}

fn touches(selection: &Selection, pattern: &Pattern) -> bool {
    matches!(selection, Selection::Every(_)) || meets(selection.rules(), pattern, Case::Fold)
}

fn meets(rules: &[Rule], pattern: &Pattern, case: Case) -> bool {
    rules.iter().any(|rule| overlap(&rule.pattern, pattern, case))
}
