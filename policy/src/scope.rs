//! What one agent sees at one moment: its definition joined with the catalogue.
//!
//! Resolving never fails and never drops: it returns the scope and a diagnostic for all that is
//! declared but not there, or there but not usable. Everything an agent is shown is made once,
//! here, so that its bytes are a function of the agent's view alone.

mod resolve;
mod uri_template;
mod view;

use crate::canonical::Digest;
use crate::catalogue::{Catalogue, ToolOffer};
use crate::definition::{Agent, AgentLimits, Approval, Definition};
use crate::diagnostic::{Diagnostic, Location};
use crate::name::{ServerName, ToolName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use view::{Shown, View};

/// Most tools that `expose: auto` lists directly.
pub const DIRECT_TOOLS_MAX: usize = 40;
/// Largest list of tools that `expose: auto` sends directly, in bytes.
pub const DIRECT_LIST_BYTES_MAX: usize = 64 * 1024;
/// Longest exposed name, in bytes: `mcp__gw__` and the name fit the 64 that models allow.
pub const EXPOSED_NAME_BYTES_MAX: usize = 55;

/// One agent's scope in one generation.
#[derive(Debug)]
pub struct Scope {
    /// The agent.
    pub agent: Agent,
    /// The generation of policy and catalogue it was made from.
    pub generation: u64,
    /// How parked calls are decided.
    pub approval: Approval,
    /// How much the agent may do.
    pub limits: AgentLimits,
    /// All it sees, on the endpoint of the agent.
    pub all: View,
    /// The same for one server each, with native names.
    pub servers: BTreeMap<ServerName, View>,
    tools: BTreeMap<(ServerName, String), Arc<ScopedTool>>,
    // Exposed names of everything that exists, for the audit's hidden or unknown only.
    existing: Arc<BTreeSet<String>>,
}

/// A tool in a scope.
#[derive(Debug)]
pub struct ScopedTool {
    /// Its server.
    pub server: ServerName,
    /// Its name as the server registers it.
    pub name: ToolName,
    /// Its name on the agent's endpoint.
    pub exposed: String,
    /// Digest of its definition.
    pub hash: Digest,
    /// Whether a call runs or asks.
    pub approve: Approve,
    /// The definition.
    pub offer: Arc<ToolOffer>,
    /// Names of arguments whose values are masked.
    pub secret: Vec<String>,
}

/// Whether a call of a granted tool runs or asks, and the rule that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approve {
    /// It runs.
    Auto {
        /// The `autoApprove` rule.
        rule: Location,
    },
    /// It asks.
    Ask {
        /// The grant without an `autoApprove` rule for it.
        rule: Location,
    },
}

/// Something declared that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The server.
    pub server: ServerName,
    /// The tool, if one was named exactly; `None` is the whole server.
    pub tool: Option<String>,
    /// In which way it is missing.
    pub kind: MissingKind,
    /// Where it is declared.
    pub location: Location,
}

/// The ways to be missing: opposite next steps, opposite words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingKind {
    /// No file defines the server.
    NotConfigured,
    /// The operator switched the server off.
    Disabled,
    /// The server does not answer.
    Unreachable,
    /// The server has not answered yet.
    Starting,
    /// The server has no tool of that name.
    NotOffered,
}

impl MissingKind {
    /// The word in diagnostics and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotConfigured => "not configured",
            Self::Disabled => "disabled",
            Self::Unreachable => "unreachable",
            Self::Starting => "starting",
            Self::NotOffered => "not offered by the server",
        }
    }

    /// The cause, in a clause.
    #[must_use]
    pub fn cause(self, server: &ServerName) -> String {
        match self {
            Self::NotConfigured => format!("server `{server}` is not configured on this gateway"),
            Self::Disabled => format!("server `{server}` is disabled by the operator"),
            Self::Unreachable => format!("server `{server}` is unreachable at the moment"),
            Self::Starting => format!("server `{server}` is still starting"),
            Self::NotOffered => format!("server `{server}` does not offer a tool of that name"),
        }
    }

    /// What the agent should do.
    #[must_use]
    pub fn next_step(self) -> &'static str {
        match self {
            Self::NotConfigured | Self::NotOffered => {
                "Tell the operator; repeating the call will not help."
            }
            Self::Disabled => "Do not repeat the call; ask the operator if it should be enabled.",
            Self::Unreachable => {
                "The gateway keeps trying; repeat the call later or go on without it."
            }
            Self::Starting => "Repeat the call in a moment.",
        }
    }
}

impl Scope {
    /// Joins `agent` with what the servers offer. `definition` says which servers are configured.
    #[must_use]
    pub fn resolve(
        agent: &Agent,
        definition: &Definition,
        catalogue: &Catalogue,
        generation: u64,
    ) -> (Self, Vec<Diagnostic>) {
        resolve::resolve(agent, definition, catalogue, generation)
    }

    /// A granted tool by its server and its name as registered.
    #[must_use]
    pub fn tool(&self, server: &ServerName, name: &str) -> Option<&Arc<ScopedTool>> {
        // A tuple of borrowed parts is no key of the map; this path runs once an approval.
        self.tools.get(&(server.clone(), name.to_owned()))
    }

    /// All granted tools, by server and name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ScopedTool>> {
        self.tools.values()
    }

    /// The view of the agent's endpoint, or of one server's.
    #[must_use]
    pub fn view(&self, server: Option<&ServerName>) -> Option<&View> {
        match server {
            None => Some(&self.all),
            Some(server) => self.servers.get(server),
        }
    }

    /// True if the server is granted and configured, and nobody knows at this moment what it
    /// offers.
    #[must_use]
    pub fn is_away(&self, server: &ServerName) -> bool {
        self.all.missing.iter().any(|missing| {
            let away = matches!(missing.kind, MissingKind::Starting | MissingKind::Unreachable);
            away && missing.tool.is_none() && missing.server == *server
        })
    }

    /// True if a tool of that exposed name exists anywhere. Never tell the agent.
    #[must_use]
    pub fn exists(&self, exposed: &str) -> bool {
        self.existing.contains(exposed)
    }
}

/// The name of a tool on an agent's endpoint: server, `__`, tool, within
/// [`EXPOSED_NAME_BYTES_MAX`] and in `[A-Za-z0-9_-]`. If that changes it, the first 46 bytes, `_`
/// and 8 hex digits of a digest of both names.
#[must_use]
pub fn exposed_name(server: &ServerName, tool: &str) -> String {
    let plain = format!("{server}__{tool}");
    let safe: String = plain
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .collect();
    if safe == plain && safe.len() <= EXPOSED_NAME_BYTES_MAX {
        return safe;
    }
    let mut key = server.as_str().as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(tool.as_bytes());
    let head: String = safe.chars().take(EXPOSED_NAME_BYTES_MAX - 9).collect();
    format!("{head}_{}", Digest::of(&key).short(8))
}
