//! What only the whole set can tell: a name defined twice, a name that nobody defines, a cycle.

use super::nearest::did_you_mean;
use crate::definition::{Agent, Definition, Server};
use crate::diagnostic::Diagnostic;
use crate::name::AgentName;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

/// Adds an agent unless its name is taken.
pub(super) fn add_agent(set: &mut Definition, agent: Agent, found: &mut Vec<Diagnostic>) {
    match set.agents.entry(agent.name.clone()) {
        Entry::Vacant(free) => {
            free.insert(agent);
        }
        Entry::Occupied(first) => {
            found.push(twin("agent", &agent.name, (&agent.location, &first.get().location)))
        }
    }
}

/// Adds a server unless its name is taken.
pub(super) fn add_server(set: &mut Definition, server: Server, found: &mut Vec<Diagnostic>) {
    match set.servers.entry(server.name.clone()) {
        Entry::Vacant(free) => {
            free.insert(server);
        }
        Entry::Occupied(first) => {
            found.push(twin("server", &server.name, (&server.location, &first.get().location)));
        }
    }
}

fn twin(
    kind: &str,
    name: &dyn std::fmt::Display,
    (here, first): (&crate::diagnostic::Location, &crate::diagnostic::Location),
) -> Diagnostic {
    let text = format!(
        "{kind} `{name}` is defined twice (names compare without case), first at {first}; \
         remove or rename one"
    );
    Diagnostic::error("duplicate_name", here, text)
}

/// Checks the references between the definitions.
pub(super) fn check(set: &Definition, found: &mut Vec<Diagnostic>) {
    for agent in set.agents.values() {
        for grant in agent.grants.iter().filter(|grant| !set.servers.contains_key(&grant.server)) {
            let names = set.servers.keys().map(crate::name::ServerName::as_str);
            let hint = did_you_mean(grant.server.as_str(), names);
            let text = format!(
                "server `{}` is not configured: no file defines it, so agent `{}` goes without \
                 it{hint}",
                grant.server, agent.name
            );
            found.push(Diagnostic::warning("server_not_configured", &grant.location, text));
        }
        for child in &agent.sub_agents {
            if set.agents.contains_key(&child.agent) {
                continue;
            }
            let names = set.agents.keys().map(AgentName::as_str);
            let hint = did_you_mean(child.agent.as_str(), names);
            let text = format!(
                "resolve AgentTemplate \"{}\": not found: no file defines this agent{hint}",
                child.agent
            );
            found.push(Diagnostic::error("agent_not_found", &child.location, text));
        }
    }
    cycles(set, found);
}

/// Reports each agent that starts itself by way of its subagents, once for a cycle.
fn cycles(set: &Definition, found: &mut Vec<Diagnostic>) {
    let mut safe: BTreeSet<&AgentName> = BTreeSet::new();
    for start in set.agents.keys() {
        // The agents from `start` to the one looked at, each with its next binding.
        let mut path: Vec<(&AgentName, usize)> = vec![(start, 0)];
        while let Some((name, next)) = path.last_mut() {
            let binding = set.agents.get(*name).and_then(|agent| agent.sub_agents.get(*next));
            *next += 1;
            let Some(binding) = binding else {
                safe.extend(path.pop().map(|(name, _)| name));
                continue;
            };
            if path.iter().any(|(name, _)| **name == binding.agent) {
                let text = format!(
                    "AgentTemplate tool cycle includes \"{}\": remove one of the bindings",
                    binding.agent
                );
                found.push(Diagnostic::error("agent_cycle", &binding.location, text));
            } else if !safe.contains(&binding.agent) {
                path.push((&binding.agent, 0));
            }
        }
    }
}
