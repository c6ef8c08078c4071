//! What the gateway is put together from, made from its configuration.

use super::{Addresses, StartError};
use crate::admin::{Api, Streams};
use crate::audit::{Audit, Durability, Outcome, Verdict};
use crate::config::{self, Config};
use crate::hold::HoldTable;
use crate::hosts::Hosts;
use crate::identity::{
    AdminEntry, Loopback, Role, Source, Token, TokenEntry, TokenHash, Tokens, quickstart_tokens,
};
use crate::observe::Observe;
use crate::parked::{Clock, ParkedSettings, Witness};
use crate::runner;
use crate::runs::{Credentials, RunSettings, configured};
use crate::seal::{KeyFileError, Seal};
use crate::shared::{Limits, Shared};
use crate::store::Place;
use crate::telemetry::Metrics;
use crate::upstream::{UpstreamSettings, Upstreams};
use crate::views::views;
use portcullis_policy::catalogue::Status;
use portcullis_policy::definition::Definition;
use portcullis_policy::diagnostic::{Diagnostic, Severity};
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::{Card, State};
use portcullis_policy::name::AgentName;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

/// The three sockets.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) addresses: Addresses,
    pub(super) agents: TcpListener,
    pub(super) admin: TcpListener,
    pub(super) observe: TcpListener,
}

impl Listeners {
    /// Binds all three or none.
    pub(super) async fn bind(config: &Config) -> Result<Self, StartError> {
        let agents = bind("agents", config.listen.agents).await?;
        let admin = bind("admin", config.listen.admin).await?;
        let observe = bind("observe", config.listen.observe).await?;
        let addresses = Addresses {
            agents: address("agents", &agents)?,
            admin: address("admin", &admin)?,
            observe: address("observe", &observe)?,
        };
        Ok(Self { addresses, agents, admin, observe })
    }
}

async fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { what, address, source })
}

fn address(what: &'static str, listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_addr().map_err(|source| StartError::Listen { what, address: unknown, source })
}

/// Puts findings into the log, each as loud as it is.
pub(super) fn report<'a>(findings: impl Iterator<Item = &'a Diagnostic>) {
    for finding in findings {
        match finding.severity {
            Severity::Note => tracing::info!(code = finding.code, "{finding}"),
            Severity::Warning => tracing::warn!(code = finding.code, "{finding}"),
            Severity::Error => tracing::error!(code = finding.code, "{finding}"),
        }
    }
}

/// How cards are kept. Decisions are timed; an end that no caller is there to record is recorded.
pub(super) fn parked_settings(
    config: &Config,
    metrics: &Arc<Metrics>,
    audit: &Arc<Audit>,
) -> ParkedSettings {
    let (metrics, audit) = (Arc::clone(metrics), Arc::clone(audit));
    ParkedSettings {
        result_keep: config.approval.result_keep,
        card_keep: config.store.retain.cards,
        event_keep: config.store.retain.events,
        clock: Clock::system(),
        witness: Witness::new(move |card| {
            let decided = card.decision().is_some_and(|d| d.at_ms == card.updated_ms());
            if decided || card.state() == State::Expired {
                let waited = card.updated_ms().saturating_sub(card.created_ms());
                metrics.park_waited(Duration::from_millis(waited));
            }
            if (card.unattended() || card.is_task()) && card.state().is_settled() {
                settled_alone(&audit, card);
            }
        }),
        ..ParkedSettings::default()
    }
}

fn settled_alone(audit: &Audit, card: &Card) {
    let outcome = Outcome {
        asked: runner::asked(card, 0, card.asked().generation),
        decision: Verdict::Park,
        reason: None,
        outcome: card.state().as_str(),
        duration: Duration::from_millis(card.updated_ms().saturating_sub(card.created_ms())),
    };
    if let Err(error) = audit.outcome(&outcome) {
        tracing::error!(%error, card = card.id(), "the end of a card could not be recorded");
    }
}

/// The admin API over what requests share.
pub(super) fn api(
    shared: &Arc<Shared>,
    config: &Config,
    (credentials, findings, seal): (Credentials, Vec<Diagnostic>, Seal),
    address: SocketAddr,
) -> Api {
    Api {
        parked: shared.parked.clone(),
        decisions: shared.decisions.clone(),
        runs: shared.runs.clone(),
        credentials,
        hosts: Hosts::new(address, &[&config.public_url.admin]),
        views: views(shared.scopes.clone(), findings),
        seal,
        store: shared.store.clone(),
        streams: Streams::default(),
        url: shared.admin_url.clone(),
        stop: shared.stop.clone(),
        epoch: epoch(),
    }
}

/// What the observe listener tells.
pub(super) fn observe(shared: &Arc<Shared>, address: SocketAddr) -> Observe {
    let asked = Arc::clone(shared);
    Observe {
        not_ready: Box::new(move || {
            let mut reasons = Vec::new();
            if *asked.stop.borrow() {
                reasons.push("the gateway is stopping".to_owned());
            }
            let catalogue = asked.upstreams.catalogue();
            let starting =
                catalogue.borrow().servers.values().any(|o| o.status == Status::Starting);
            if starting {
                reasons.push("a server has not answered yet".to_owned());
            }
            reasons
        }),
        metrics: Arc::clone(&shared.metrics),
        hosts: Hosts::of_scrapes(address),
    }
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
        let entries = configured(config::tokens(&config.auth.token_file)?);
        return Ok((Tokens::new(entries), BTreeMap::new()));
    }
    let made = quickstart_tokens(&config.state_dir, agents)?;
    let entries = made.iter().map(|(agent, token)| TokenEntry {
        agent: agent.clone(),
        hash: token.hash(),
        expires: None,
        source: Source::Configured,
    });
    Ok((Tokens::new(entries), made))
}

impl From<&config::StorePlace> for Place {
    fn from(place: &config::StorePlace) -> Self {
        match place {
            config::StorePlace::Sqlite(file) => Self::Sqlite(file.clone()),
            config::StorePlace::Postgres(url) => Self::Postgres(url.reveal().to_owned()),
        }
    }
}

/// The sealing keys. Those of several gateways are never made by one of them.
pub(super) fn seal(config: &Config) -> Result<Seal, KeyFileError> {
    match config.store.place {
        config::StorePlace::Sqlite(_) => Seal::from_file(&config.seal.key_file),
        config::StorePlace::Postgres(_) => Seal::from_existing(&config.seal.key_file),
    }
}

pub(super) fn principals(config: &Config) -> Vec<AdminEntry> {
    let entry = |principal: &config::Principal| AdminEntry {
        name: principal.name.clone(),
        role: match &principal.role {
            config::Role::Viewer => Role::Viewer,
            config::Role::Approver => Role::Approver,
            config::Role::Harness { agents, also_approver } => {
                Role::Harness { agents: agents.clone(), also_approver: *also_approver }
            }
            config::Role::Operator => Role::Operator,
        },
        hash: TokenHash::from(principal.sha256),
        expires: None,
    };
    config.principals.iter().map(entry).collect()
}

/// The way in without a token, where the operator opened it; said at each start.
pub(super) fn loopback(config: &Config) -> Option<Loopback> {
    if !config.auth.loopback_without_token {
        return None;
    }
    tracing::warn!(
        "`auth.loopbackWithoutToken` is set: everything on this machine may use every agent's \
         endpoint at /a/AGENT/mcp without a token; it may start no runs and decide nothing"
    );
    Some(Loopback::default())
}

/// How runs are made. Where nobody said how the gateway is reached, it is the address it got.
pub(super) fn run_settings(config: &Config, address: SocketAddr) -> RunSettings {
    let said = (&*config.public_url.agents, config.listen.agents);
    RunSettings { ttl: config.runs.ttl, ttl_max: config.runs.ttl_max, url: url(said, address) }
}

/// Where approvers find the admin listener.
pub(super) fn admin_url(config: &Config, address: SocketAddr) -> String {
    url((&config.public_url.admin, config.listen.admin), address)
}

// What the operator says, or else the address that was bound: its port may have been 0.
fn url((said, listen): (&str, SocketAddr), address: SocketAddr) -> String {
    let unsaid = said == format!("http://{listen}");
    if unsaid { format!("http://{address}") } else { said.to_owned() }
}

/// How long calls are held.
pub(super) fn hold(config: &Config) -> HoldTable {
    let approval = &config.approval;
    HoldTable::new(approval.hold, &approval.hold_clients, approval.legs)
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

fn epoch() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", since.as_millis())
}
