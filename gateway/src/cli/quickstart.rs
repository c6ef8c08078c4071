//! The embedded default: a policy with a parent and a subagent, two demo servers, and a page
//! that says how to connect.

use crate::config::{Config, ConfigError};
use crate::gateway::Gateway;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The folder for all that the quickstart writes, in the working folder.
const STATE_DIR: &str = ".portcullis";

const FILES: &[(&str, &str)] = &[
    ("gateway.yaml", include_str!("../../../config/quickstart/gateway.yaml")),
    ("policy/agents.yaml", include_str!("../../../config/quickstart/policy/agents.yaml")),
    ("policy/servers.yaml", include_str!("../../../config/quickstart/policy/servers.yaml")),
];

/// A quickstart whose files are in place.
#[derive(Debug)]
pub(super) struct Quickstart {
    folder: PathBuf,
}

/// Writes the embedded files that are not there yet; files that someone edited stay.
///
/// # Errors
/// What to tell the user when the folder cannot be written.
pub(super) fn prepare() -> Result<Quickstart, String> {
    let folder = Path::new(STATE_DIR).join("quickstart");
    for (name, text) in FILES {
        let path = folder.join(name);
        let failed = |error: std::io::Error| {
            format!(
                "the quickstart cannot write {}: {error}; start in a folder that can be written, or name a \
                 configuration with --config",
                path.display()
            )
        };
        if let Some(parent) = path.parent() {
            // The state folder is above it, and that is for nobody else.
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        if !path.exists() {
            std::fs::write(&path, text).map_err(failed)?;
        }
    }
    Ok(Quickstart { folder })
}

/// The quickstart of this folder, if it was started before.
pub(super) fn prepared() -> Option<Quickstart> {
    let folder = Path::new(STATE_DIR).join("quickstart");
    folder.join("gateway.yaml").exists().then_some(Quickstart { folder })
}

impl Quickstart {
    /// Its configuration; the environment may say otherwise.
    ///
    /// # Errors
    /// [`ConfigError`] if someone edited the file into something wrong.
    pub(super) fn config(&self, mut env: BTreeMap<String, String>) -> Result<Config, ConfigError> {
        let state = std::path::absolute(STATE_DIR).unwrap_or_else(|_| PathBuf::from(STATE_DIR));
        env.entry("PORTCULLIS_STATE_DIR".to_owned()).or_insert_with(|| state.display().to_string());
        Config::load(Some(&self.folder.join("gateway.yaml")), &env)
    }
}

/// What a person reads when the gateway is up.
pub(super) fn banner(
    gateway: &Gateway,
    state_dir: &Path,
    quickstart: Option<&Quickstart>,
) -> String {
    let addresses = gateway.addresses();
    let mut page = format!("Portcullis {} is up.\n", env!("CARGO_PKG_VERSION"));
    // Writing into a String cannot fail.
    let _ = writeln!(
        page,
        "\n  agents     http://{}/mcp and /a/AGENT/mcp\n  admin      http://{}  (token in {})\n  \
         observe    http://{}/readyz, /healthz, /metrics",
        addresses.agents,
        addresses.admin,
        state_dir.join("admin.token").display(),
        addresses.observe
    );
    if gateway.tokens.is_empty() {
        return page;
    }
    page.push_str("\nAgents and their tokens:\n");
    for (agent, token) in &gateway.tokens {
        let _ = writeln!(
            page,
            "\n  {agent}\n    http://{}/a/{agent}/mcp\n    {}",
            addresses.agents,
            token.reveal()
        );
    }
    if let Some((agent, token)) = gateway.tokens.iter().next_back() {
        connect(
            &mut page,
            &format!("http://{}/a/{agent}/mcp", addresses.agents),
            agent.as_str(),
            token.reveal(),
        );
    }
    if let Some(quickstart) = quickstart {
        let _ = writeln!(
            page,
            "\nThis is the quickstart: two demo servers, one parent agent, one subagent. Its policy is in\n\
             {}; edit it and start again.",
            quickstart.folder.join("policy").display()
        );
    }
    let _ = writeln!(
        page,
        "\nAn agent that runs as the same system user can read {0}/admin.token and approve\n\
         its own calls. Run agents as another user, or keep {0} where they cannot read.\n\n\
         Ctrl-C stops. Calls that wait for a decision are kept.",
        state_dir.display()
    );
    page
}

fn connect(page: &mut String, url: &str, agent: &str, token: &str) {
    let meta = "{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{}}";
    // Writing into a String cannot fail.
    let _ = write!(
        page,
        "\nConnect as `{agent}`, for example:\n\n\
         Claude Code\n  claude mcp add --transport http {agent}-tools {url} \\\n    --header \"Authorization: Bearer {token}\"\n\n\
         Codex\n  export PORTCULLIS_TOKEN={token}\n  codex mcp add {agent}-tools --url {url} \\\n    --bearer-token-env-var PORTCULLIS_TOKEN\n\n\
         curl\n  curl -s {url} -H 'Authorization: Bearer {token}' \\\n    \
         -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n    \
         -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/list' \\\n    \
         -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{{\"_meta\":{meta}}}}}'\n\n\
         Decide calls that wait, in another terminal or on the page:\n  portcullis login-link\n  portcullis approvals --watch\n  portcullis approve ID\n  portcullis deny ID -m 'why not'\n"
    );
}
