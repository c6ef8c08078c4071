//! What a run leaves of its agent's scope: who starts it may hand over less, never more.
//!
//! A [`Narrow`] is read strictly from JSON and kept as text; [`Agent::narrowed`] applies it. What
//! is left goes through [`Scope::resolve`](crate::scope::Scope::resolve) like any other agent, so
//! there is no second filter. Whether a call asks, limits and approvers stay those of the agent.

mod fault;
mod narrowing;
mod read;
#[cfg(test)]
mod tests;

use crate::definition::{Rule, Selection};
use crate::diagnostic::Location;
use crate::json::write_string;
use crate::name::ServerName;

pub use fault::{NarrowFault, NarrowFaultKind};
pub use narrowing::Narrowing;
pub(crate) use narrowing::Within;

#[cfg(doc)]
use crate::definition::Agent;

/// Longest text of a narrow, in bytes.
pub const NARROW_BYTES_MAX: usize = 64 * 1024;
/// Most servers that a narrow lists.
pub const NARROW_SERVERS_MAX: usize = 256;
/// Most patterns in one list of a narrow.
pub const NARROW_RULES_MAX: usize = 1_000;

/// What a run may use at most, server by server. A server that is not listed is not there.
#[derive(Debug, Clone)]
pub struct Narrow {
    // INVARIANT: made by `read`, so each server stands once and every list is within its limit.
    entries: Vec<Entry>,
    sub_agents: Selection,
}

/// What a run may use of one server at most.
#[derive(Debug, Clone)]
struct Entry {
    server: ServerName,
    allow: Selection,
    resources: Vec<Rule>,
    prompts: Selection,
    location: Location,
}

impl Narrow {
    /// Takes everything away.
    #[must_use]
    pub fn nothing() -> Self {
        Self { entries: Vec::new(), sub_agents: Selection::none() }
    }

    /// Reads the JSON text of a narrow: `{"tools": [{"server": …, "allow": …, "resources": …,
    /// "prompts": …}], "subAgents": …}`, with the meaning that these keys have in policy files.
    /// Without `subAgents` the run starts nobody: a child would reach what its own policy gives.
    ///
    /// # Errors
    /// [`NarrowFault`] for anything that is not exactly that.
    pub fn read(json: &str) -> Result<Self, NarrowFault> {
        read::read(json).map(|(entries, sub_agents)| Self { entries, sub_agents })
    }

    /// A text that [`Narrow::read`] takes and that means the same.
    #[must_use]
    pub fn write(&self) -> String {
        let mut out = "{\"tools\":[".to_owned();
        for (at, entry) in self.entries.iter().enumerate() {
            out.push_str(if at == 0 { "{\"server\":" } else { ",{\"server\":" });
            write_string(&mut out, entry.server.as_str());
            out.push_str(",\"allow\":");
            write_selection(&mut out, &entry.allow);
            if !entry.resources.is_empty() {
                out.push_str(",\"resources\":");
                write_rules(&mut out, &entry.resources);
            }
            if !entry.prompts.is_none() {
                out.push_str(",\"prompts\":");
                write_selection(&mut out, &entry.prompts);
            }
            out.push('}');
        }
        out.push(']');
        if !self.sub_agents.is_none() {
            out.push_str(",\"subAgents\":");
            write_selection(&mut out, &self.sub_agents);
        }
        out.push('}');
        out
    }

    fn entry(&self, server: &ServerName) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.server == *server)
    }
}

fn write_selection(out: &mut String, selection: &Selection) {
    match selection {
        Selection::Every(_) => out.push_str("\"*\""),
        Selection::Listed(rules) => write_rules(out, rules),
    }
}

fn write_rules(out: &mut String, rules: &[Rule]) {
    out.push('[');
    for (at, rule) in rules.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(out, rule.pattern.as_str());
    }
    out.push(']');
}
