//! The closed set of label values.

use super::{ErrorType, Operation as Timed, Transport};
use portcullis_policy::name::{AgentName, ServerName};
use prometheus_client::encoding::EncodeLabelSet;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Most tools that have series of their own; a server that keeps renaming its tools ends here.
pub const TOOL_LABELS_MAX: usize = 4_096;

const METHODS: [&str; 28] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/cancel",
    "tasks/update",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
    "notifications/roots/list_changed",
];
const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

static OTHER: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("_other"));

pub(super) fn other() -> Arc<str> {
    Arc::clone(&OTHER)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Call {
    pub(super) agent: Arc<str>,
    pub(super) server: Arc<str>,
    pub(super) tool: Arc<str>,
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Pruned {
    pub(super) kind: &'static str,
}

/// A message to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Delivery {
    /// By its configured name.
    pub(super) webhook: String,
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Refusal {
    pub(super) agent: Arc<str>,
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Decision {
    pub(super) agent: Arc<str>,
    pub(super) server: Arc<str>,
    pub(super) tool: Arc<str>,
    pub(super) verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Operation {
    mcp_method_name: &'static str,
    gen_ai_tool_name: Arc<str>,
    error_type: &'static str,
    network_transport: &'static str,
    mcp_protocol_version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Upstream {
    pub(super) server: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Reloaded {
    pub(super) result: &'static str,
}

/// The names that may be label values, each in the spelling of its first declaration.
#[derive(Debug, Default)]
pub(super) struct Names {
    agents: HashMap<AgentName, Arc<str>>,
    servers: HashMap<String, Arc<str>>,
    tools: HashMap<String, HashMap<String, Arc<str>>>,
    tool_count: usize,
}

impl Names {
    pub(super) fn agents<'a>(&mut self, agents: impl IntoIterator<Item = &'a AgentName>) {
        for agent in agents {
            self.agents.entry(agent.clone()).or_insert_with(|| agent.as_str().into());
        }
    }

    pub(super) fn servers<'a>(&mut self, servers: impl IntoIterator<Item = &'a ServerName>) {
        for server in servers {
            self.servers.entry(server.to_string()).or_insert_with(|| server.as_str().into());
        }
    }

    pub(super) fn tools<'a>(&mut self, tools: impl IntoIterator<Item = (&'a ServerName, &'a str)>) {
        for (server, tool) in tools {
            let known = self.tools.entry(server.to_string()).or_default();
            if self.tool_count < TOOL_LABELS_MAX && !known.contains_key(tool) {
                known.insert(tool.to_owned(), tool.into());
                self.tool_count += 1;
            }
        }
    }

    pub(super) fn agent(&self, agent: &AgentName) -> Arc<str> {
        self.agents.get(agent).unwrap_or(&OTHER).clone()
    }

    pub(super) fn server(&self, server: Option<&str>) -> Arc<str> {
        server.and_then(|server| self.servers.get(server)).unwrap_or(&OTHER).clone()
    }

    pub(super) fn tool(&self, tool: Option<(&str, &str)>) -> Arc<str> {
        tool.and_then(|(server, tool)| self.tools.get(server)?.get(tool)).unwrap_or(&OTHER).clone()
    }

    pub(super) fn operation(&self, timed: &Timed<'_>) -> Operation {
        Operation {
            mcp_method_name: closed(&METHODS, timed.method),
            gen_ai_tool_name: match timed.tool {
                Some(tool) => self.tool(Some(tool)),
                None => Arc::default(),
            },
            error_type: timed.error.map_or("", error_type),
            network_transport: match timed.transport {
                Transport::Tcp => "tcp",
                Transport::Pipe => "pipe",
            },
            mcp_protocol_version: closed(&VERSIONS, timed.version),
        }
    }
}

fn closed(set: &[&'static str], value: &str) -> &'static str {
    set.iter().find(|known| **known == value).copied().unwrap_or("_other")
}

fn error_type(error: ErrorType) -> &'static str {
    match error {
        ErrorType::Tool => "tool_error",
        ErrorType::Timeout => "timeout",
        ErrorType::Connection => "connection",
        ErrorType::Rpc(code) => match code {
            -32700 => "-32700",
            -32600 => "-32600",
            -32601 => "-32601",
            -32602 => "-32602",
            -32603 => "-32603",
            -32000 => "-32000",
            -32001 => "-32001",
            -32002 => "-32002",
            -32020 => "-32020",
            -32021 => "-32021",
            -32022 => "-32022",
            -32042 => "-32042",
            4601 => "4601",
            4602 => "4602",
            4603 => "4603",
            _ => "_other",
        },
    }
}
