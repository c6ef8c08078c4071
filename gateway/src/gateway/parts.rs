//! What the gateway is put together from, made from its configuration.

use super::StartError;
use crate::audit::Durability;
use crate::config::{self, Config};
use crate::identity::{AdminEntry, Role, Token, TokenEntry, TokenHash, Tokens, quickstart_tokens};
use crate::shared::Limits;
use crate::upstream::{UpstreamSettings, Upstreams};
use portcullis_policy::definition::Definition;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::name::AgentName;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

pub(super) async fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { what, address, source })
}

pub(super) fn address(what: &'static str, listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_addr().map_err(|source| StartError::Listen { what, address: unknown, source })
}

pub(super) fn state_dir(config: &Config) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let failed = |source| StartError::State { path: config.state_dir.clone(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.state_dir).map_err(failed)
}

// Agents that the token file names use those tokens; with no token file at all, each agent gets
// one at the first start.
pub(super) fn agent_tokens(
    config: &Config,
    agents: &[AgentName],
) -> Result<(Tokens, BTreeMap<AgentName, Token>), StartError> {
    if config.auth.token_file.exists() {
        let entries =
            config::tokens(&config.auth.token_file)?.into_iter().map(|entry| TokenEntry {
                agent: entry.agent,
                hash: TokenHash::from(entry.sha256),
                expires: entry.expires_ms.and_then(|ms| {
                    SystemTime::UNIX_EPOCH
                        .checked_add(Duration::from_millis(u64::try_from(ms).ok()?))
                }),
            });
        return Ok((Tokens::new(entries), BTreeMap::new()));
    }
    let made = quickstart_tokens(&config.state_dir, agents)?;
    let entries = made.iter().map(|(agent, token)| TokenEntry {
        agent: agent.clone(),
        hash: token.hash(),
        expires: None,
    });
    Ok((Tokens::new(entries), made))
}

pub(super) fn principals(config: &Config) -> Vec<AdminEntry> {
    let entry = |principal: &config::Principal| AdminEntry {
        name: principal.name.clone(),
        role: match &principal.role {
            config::Role::Viewer => Role::Viewer,
            config::Role::Approver => Role::Approver,
            config::Role::Harness(agents) => Role::Harness { agents: agents.clone() },
            config::Role::Operator => Role::Operator,
        },
        hash: TokenHash::from(principal.sha256),
    };
    config.principals.iter().map(entry).collect()
}

pub(super) fn durability(config: &Config) -> Durability {
    match config.audit.durability {
        config::Durability::Os => Durability::Os,
        config::Durability::Disk => Durability::Disk,
    }
}

pub(super) fn limits(config: &Config) -> Limits {
    let json = JsonLimits { depth_max: config.limits.json_depth as usize, ..JsonLimits::default() };
    Limits {
        connections: config.limits.connections as usize,
        request_bytes: usize::try_from(config.limits.request_bytes).unwrap_or(usize::MAX),
        json,
    }
}

pub(super) fn upstreams(
    definition: &Definition,
    config: &Config,
    executable: PathBuf,
) -> Result<Upstreams, StartError> {
    let mut settings = UpstreamSettings::new(executable);
    settings.result_bytes_max = usize::try_from(config.limits.result_bytes).unwrap_or(usize::MAX);
    settings.tools_max = config.limits.tools_per_server as usize;
    Ok(Upstreams::start(definition.servers.values().cloned().collect(), settings)?)
}

pub(super) fn epoch() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", since.as_millis())
}

