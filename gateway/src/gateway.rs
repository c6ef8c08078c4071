//! Puts the gateway together and runs it until it is told to stop.

mod parts;

use crate::admin::{self, Api, Hosts as AdminHosts};
use crate::audit::{Audit, AuditError, Durability};
use crate::config::{self, Config, ConfigError};
use crate::door::Hosts;
use crate::hold::HoldTable;
use crate::identity::{
    AdminEntry, Admins, PrivateFileError, QuickstartError, Role, Token, TokenEntry, TokenHash,
    Tokens, quickstart_tokens,
};
use crate::listener;
use crate::observe::{self, Observe};
use crate::parked::{Clock, Parked, ParkedSettings};
use crate::runner::runner;
use crate::scopes::{self, Scopes};
use crate::sessions::Sessions;
use crate::shared::{Limits, Shared};
use crate::store::{Store, StoreFault, StoreSettings};
use crate::telemetry::{Metrics, Reachable};
use crate::upstream::{UpstreamError, UpstreamSettings, Upstreams};
use crate::usage::Counters;
use crate::views::views;
use portcullis_policy::definition::Definition;
use portcullis_policy::diagnostic::{Diagnostic, Severity};
use portcullis_policy::json::JsonLimits;
use portcullis_policy::name::AgentName;
use portcullis_policy::source::{SourceFile, read};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the first list waits for upstreams that have not answered yet.
const SETTLE: Duration = Duration::from_secs(2);
/// How long requests in flight may take to end when the gateway stops.
const DRAIN: Duration = Duration::from_secs(30);
/// How often the gauges of upstreams and parked calls are set.
const GAUGES_EVERY: Duration = Duration::from_secs(1);

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `gateway.yaml`, its environment or a file it names.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy has errors; the gateway never starts on half a policy.
    #[error("the policy has errors, so the gateway did not start")]
    Policy(Vec<Diagnostic>),
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {address} for {what}: {source}; stop what uses it or set `listen.{what}`"
    )]
    Listen {
        /// Which listener.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The audit trail cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A token file cannot be made, read or trusted.
    #[error(transparent)]
    Private(#[from] PrivateFileError),
    /// The tokens made at the first start cannot be read or made.
    #[error(transparent)]
    Tokens(#[from] QuickstartError),
    /// A server's definition cannot be used.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The state folder cannot be made.
    #[error(
        "the state folder {path} cannot be used: {source}; set `stateDir` to a folder that can be written"
    )]
    State {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Where the gateway listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// Agents.
    pub agents: SocketAddr,
    /// Approvers and operators.
    pub admin: SocketAddr,
    /// Health and metrics.
    pub observe: SocketAddr,
}

/// A gateway that listens but does not serve yet.
#[derive(Debug)]
pub struct Gateway {
    addresses: Addresses,
    agents: TcpListener,
    admin: TcpListener,
    observe: TcpListener,
    shared: Arc<Shared>,
    api: Api,
    observe_state: Observe,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    /// The tokens made at the first start, for agents that no token file names.
    pub tokens: BTreeMap<AgentName, Token>,
}

/// Reads the policy that `config` names.
///
/// # Errors
/// [`StartError::Config`] if a file cannot be read, [`StartError::Policy`] with every finding if
/// one of them is an error.
pub fn read_policy(config: &Config) -> Result<(Definition, Vec<Diagnostic>), StartError> {
    let files = config::policy_files(&config.policy.dirs)?;
    let sources: Vec<SourceFile<'_>> = files
        .files
        .iter()
        .map(|(name, text)| SourceFile { name: Arc::clone(name), text })
        .collect();
    let (definition, mut findings) = read(&sources);
    findings.extend(files.warnings);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(StartError::Policy(findings));
    }
    Ok((definition, findings))
}

impl Gateway {
    /// Reads the policy, opens store and audit, starts the upstreams and binds the listeners.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let executable = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("portcullis"));
        Self::bind_as(config, executable).await
    }

    /// The same for a process that is not the gateway's own: `executable` is the gateway's, which
    /// starts and watches the child processes.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn bind_as(config: Config, executable: PathBuf) -> Result<Self, StartError> {
        let (definition, findings) = read_policy(&config)?;
        for finding in config.warnings.iter().chain(&findings) {
            tracing::warn!(code = finding.code, "{finding}");
        }
        parts::state_dir(&config)?;
        let agents = parts::bind("agents", config.listen.agents).await?;
        let admin = parts::bind("admin", config.listen.admin).await?;
        let observe = parts::bind("observe", config.listen.observe).await?;
        let addresses = Addresses {
            agents: parts::address("agents", &agents)?,
            admin: parts::address("admin", &admin)?,
            observe: parts::address("observe", &observe)?,
        };
        let names: Vec<AgentName> = definition.agents.keys().cloned().collect();
        let (tokens, made) = parts::agent_tokens(&config, &names)?;
        let admins = Admins::open(&config.state_dir, parts::principals(&config))?;
        let audit = Arc::new(Audit::open(&config.audit.dir, parts::durability(&config))?);
        let store = Store::open(&StoreSettings::new(config.store.sqlite.clone())).await?;
        let metrics = Arc::new(Metrics::new());
        let upstreams = parts::upstreams(&definition, &config, executable)?;
        upstreams.settle(SETTLE).await;
        let definition = Arc::new(definition);
        let (scopes, follow) =
            scopes::follow_catalogue(Arc::clone(&definition), upstreams.catalogue());
        let settings = ParkedSettings {
            result_keep: config.approval.result_keep,
            clock: Clock::system(),
            ..ParkedSettings::default()
        };
        let requests = Arc::new(AtomicU64::new(0));
        let runner =
            runner(scopes.clone(), upstreams.clone(), Arc::clone(&audit), Arc::clone(&requests));
        let parked = Parked::open(store, settings, runner).await?;
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::new(Shared {
            scopes: scopes.clone(),
            sessions: Sessions::default(),
            upstreams: upstreams.clone(),
            parked: parked.clone(),
            audit: Arc::clone(&audit),
            metrics: Arc::clone(&metrics),
            tokens,
            limits: parts::limits(&config),
            hosts: Hosts::new(&[addresses.agents], &[&config.public_url.agents]),
            hold: HoldTable::new(config.approval.hold, &config.approval.hold_clients),
            counters: Counters::default(),
            stop: stopping.clone(),
            requests,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(follow);
        tasks.spawn(gauges(Arc::clone(&shared)));
        let api = Api {
            parked,
            audit,
            metrics: Arc::clone(&metrics),
            admins,
            hosts: AdminHosts::new(addresses.admin, &[&config.public_url.admin]),
            views: views(scopes.clone(), findings),
            stop: stopping.clone(),
            epoch: parts::epoch(),
        };
        let observe_state = Observe {
            not_ready: Box::new(move || {
                let draining = "the gateway is stopping".to_owned();
                if *stopping.borrow() { vec![draining] } else { Vec::new() }
            }),
            metrics,
            hosts: AdminHosts::of_scrapes(addresses.observe),
        };
        Ok(Self {
            addresses,
            agents,
            admin,
            observe,
            shared,
            api,
            observe_state,
            stop,
            tasks,
            tokens: made,
        })
    }

    /// Where it listens; ports are known even where the configuration says 0.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `until` resolves, then drains: held calls settle at once, their cards stay,
    /// running calls may end.
    pub async fn serve(self, until: impl Future<Output = ()> + Send) {
        let Self { agents, admin, observe, shared, api, observe_state, stop, mut tasks, .. } = self;
        let stopping = stop.subscribe();
        let serving = tokio::spawn(listener::serve_agents(
            agents,
            Arc::clone(&shared),
            stopping.clone(),
            DRAIN,
        ));
        tasks.spawn(serve_axum("admin", admin, admin::router(api), stopping.clone()));
        let mut observing = JoinSet::new();
        observing.spawn(serve_axum("observe", observe, observe::router(observe_state), stopping));
        until.await;
        tracing::info!("stopping: no new connections, calls in flight may end");
        stop.send_replace(true);
        if let Err(error) = serving.await {
            tracing::error!(%error, "the agents' listener ended abnormally");
        }
        shared.parked.shutdown().await;
        shared.upstreams.shutdown().await;
        tasks.shutdown().await;
        observing.shutdown().await;
        tracing::info!("stopped");
    }
}

async fn serve_axum(
    what: &'static str,
    listener: TcpListener,
    router: axum::Router,
    mut stop: watch::Receiver<bool>,
) {
    let until = async move {
        // The sender is gone only when the gateway is.
        let _ = stop.wait_for(|stopped| *stopped).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
        tracing::error!(%error, listener = what, "a listener ended");
    }
}

// Gauges and label names follow the state; nothing waits for them.
async fn gauges(shared: Arc<Shared>) {
    let mut tick = tokio::time::interval(GAUGES_EVERY);
    let mut restarts: BTreeMap<_, u64> = BTreeMap::new();
    loop {
        tick.tick().await;
        declare(&shared.scopes, &shared.metrics);
        let generation = shared.scopes.snapshot();
        let parked: u32 =
            generation.scopes.keys().map(|agent| shared.parked.parked_count(agent)).sum();
        shared.metrics.parked(parked as usize);
        for state in shared.upstreams.states() {
            let reachable = if state.up.is_some() { Reachable::Up } else { Reachable::Down };
            shared.metrics.upstream(&state.name, reachable);
            let known = restarts.entry(state.name.clone()).or_default();
            for _ in *known..state.restarts {
                shared.metrics.upstream_restarted(&state.name);
            }
            *known = state.restarts;
        }
    }
}

fn declare(scopes: &Scopes, metrics: &Metrics) {
    let generation = scopes.snapshot();
    let tools = generation.scopes.values().flat_map(|scope| scope.tools());
    let servers = generation.scopes.values().flat_map(|scope| &scope.all.declared);
    metrics.declare(
        generation.scopes.keys(),
        servers,
        tools.map(|tool| (&tool.server, tool.name.as_str())),
    );
}
