//! How long a call is held open for a decision, by client.
//!
//! The table is about timers, never about rights: a client that lies about its name only hurts
//! its own waiting.

use std::collections::BTreeMap;
use std::time::Duration;

/// Clients whose timer progress or any byte resets, or that have none.
const WHOLE_WINDOW: Duration = Duration::from_secs(7 * 24 * 60 * 60);

// `clientInfo.name` as seen on the wire, in lower case, and what the client's timer allows.
const CLIENTS: &[(&str, Duration)] = &[
    ("claude-code", WHOLE_WINDOW),
    ("opencode", WHOLE_WINDOW),
    ("visual studio code", WHOLE_WINDOW),
    ("visual-studio-code", WHOLE_WINDOW),
    ("gemini-cli-mcp-client", Duration::from_secs(570)),
    ("codex-mcp-client", Duration::from_secs(280)),
    ("goose", Duration::from_secs(280)),
    ("crewai", Duration::from_secs(25)),
    ("kagent", Duration::from_secs(25)),
    ("openai-agents", Duration::from_secs(4)),
];

// Names that an SDK gives itself when its user gives none. With a progress token any byte resets
// their timer; without one the timer is unknown.
const BARE_SDKS: &[&str] = &["mcp", "fastmcp", "rmcp"];

/// Holding times of a gateway.
#[derive(Debug, Clone)]
pub(crate) struct HoldTable {
    default: Duration,
    clients: BTreeMap<String, Duration>,
}

impl HoldTable {
    /// The shipped table under the operator's own entries.
    pub(crate) fn new(default: Duration, own: &BTreeMap<String, Duration>) -> Self {
        let mut clients: BTreeMap<String, Duration> =
            CLIENTS.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect();
        clients.extend(own.iter().map(|(name, time)| (name.to_ascii_lowercase(), *time)));
        Self { default, clients }
    }

    /// How long to hold a call of `client`; the policy's own word wins.
    pub(crate) fn budget(
        &self,
        policy: Option<Duration>,
        client: &str,
        has_token: bool,
    ) -> Duration {
        let client = client.to_ascii_lowercase();
        let known = || {
            let bare = has_token && BARE_SDKS.contains(&client.as_str());
            self.clients.get(&client).copied().or(bare.then_some(WHOLE_WINDOW))
        };
        policy.or_else(known).unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_wins_then_the_operator_then_the_table() {
        let own = BTreeMap::from([("Codex-MCP-Client".to_owned(), Duration::from_secs(9))]);
        let second = Duration::from_secs(1);
        let table = HoldTable::new(second * 50, &own);
        assert_eq!(table.budget(Some(second), "opencode", false), second);
        assert_eq!(table.budget(None, "codex-mcp-client", true), second * 9);
        assert_eq!(table.budget(None, "OpenCode", true), WHOLE_WINDOW);
        assert_eq!(table.budget(None, "who knows", true), second * 50);
        assert_eq!(table.budget(None, "mcp", false), second * 50);
        assert_eq!(table.budget(None, "mcp", true), WHOLE_WINDOW);
    }
}
