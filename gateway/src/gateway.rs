//! Puts the gateway together and runs it until it is told to stop.

mod parts;
mod running;
mod state;

use crate::admin::{self, Api};
use crate::audit::AuditError;
use crate::config::{self, Config, ConfigError};
use crate::decisions::Decisions;
use crate::hosts::Hosts;
use crate::identity::{PrivateFileError, QuickstartError, Token};
use crate::listener;
use crate::observe::{self, Observe};
use crate::scopes::{self, Scopes};
use crate::seal::KeyFileError;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::store::StoreFault;
use crate::telemetry::{Metrics, Reachable};
use crate::upstream::UpstreamError;
use crate::views::schemas;
use parking_lot::Mutex;
use parts::Listeners;
use portcullis_policy::definition::Definition;
use portcullis_policy::diagnostic::{Diagnostic, Severity};
use portcullis_policy::name::AgentName;
use portcullis_policy::source::{SourceFile, read};
use running::Running;
use state::State;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
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
    /// The sealing keys cannot be made, read or trusted.
    #[error(transparent)]
    Seal(#[from] KeyFileError),
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
    listeners: Listeners,
    shared: Arc<Shared>,
    api: Arc<Api>,
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
/// one of them is an error, or a warning where `policy.strict` is set.
pub fn read_policy(config: &Config) -> Result<(Definition, Vec<Diagnostic>), StartError> {
    let files = config::policy_files(&config.policy.dirs)?;
    let sources: Vec<SourceFile<'_>> = files
        .files
        .iter()
        .map(|(name, text)| SourceFile { name: Arc::clone(name), text })
        .collect();
    let (definition, mut findings) = read(&sources);
    findings.extend(files.warnings);
    let worst = if config.policy.strict { Severity::Warning } else { Severity::Error };
    if findings.iter().any(|finding| finding.severity >= worst) {
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
        parts::report(config.warnings.iter().chain(&findings));
        parts::state_dir(&config)?;
        let listeners = Listeners::bind(&config).await?;
        let names: Vec<AgentName> = definition.agents.keys().cloned().collect();
        let state = State::open(&config, &names).await?;
        let upstreams = parts::upstreams(&definition, &config, executable)?;
        upstreams.settle(SETTLE).await;
        let (scopes, follow) =
            scopes::follow_catalogue(Arc::new(definition), upstreams.catalogue());
        let address = listeners.addresses.agents;
        let running = Running::begin(&config, &state, (&scopes, &upstreams), address).await?;
        let Running { table, requests, counters, parked, runs, credentials, clock } = running;
        let State { tokens, made, audit, store, seal, metrics, .. } = state;
        let ended = store.ended_sessions(clock.wall_ms()).await?;
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::new(Shared {
            decisions: Decisions::new(
                parked.clone(),
                Arc::clone(&audit),
                Arc::clone(&metrics),
                schemas(scopes.clone()),
            ),
            scopes,
            sessions: Sessions::new(seal.clone(), ended, clock.clone()),
            store,
            upstreams,
            parked,
            audit,
            metrics,
            tokens,
            loopback: parts::loopback(&config),
            table,
            runs,
            limits: parts::limits(&config),
            hosts: Hosts::new(address, &[&config.public_url.agents]),
            hold: parts::hold(&config),
            seal: seal.clone(),
            clock,
            admin_url: parts::admin_url(&config, listeners.addresses.admin),
            result_keep: config.approval.result_keep,
            counters,
            left: Mutex::new(JoinSet::new()),
            stop: stopping,
            requests,
        });
        // Runs and credentials are there, so approved tasks of before can be judged.
        shared.parked.begin();
        let mut tasks = JoinSet::new();
        tasks.spawn(shared.runs.clone().keep_time());
        tasks.spawn(credentials.clone().keep_time());
        tasks.spawn(follow);
        tasks.spawn(gauges(Arc::clone(&shared)));
        tasks.spawn(seal.follow(&config.seal.key_file));
        let admin = listeners.addresses.admin;
        let api = Arc::new(parts::api(&shared, &config, (credentials, findings, seal), admin));
        for webhook in &config.webhooks {
            let (api, metrics) = (Arc::clone(&api), Arc::clone(&shared.metrics));
            tasks.spawn(admin::tell(api, metrics, webhook.clone()));
        }
        let observe_state = parts::observe(&shared, listeners.addresses.observe);
        Ok(Self { listeners, shared, api, observe_state, stop, tasks, tokens: made })
    }

    /// Where it listens; ports are known even where the configuration says 0.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.listeners.addresses
    }

    /// Serves until `until` resolves, then drains: held calls settle at once, their cards stay,
    /// running calls may end.
    pub async fn serve(self, until: impl Future<Output = ()> + Send) {
        let Self { listeners, shared, api, observe_state, stop, mut tasks, .. } = self;
        let Listeners { agents, admin, observe, .. } = listeners;
        let stopping = stop.subscribe();
        let serving = tokio::spawn(listener::serve_agents(
            agents,
            Arc::clone(&shared),
            stopping.clone(),
            DRAIN,
        ));
        tasks.spawn(serve_axum("admin", admin, admin::router(&api), stopping.clone()));
        let mut observing = JoinSet::new();
        observing.spawn(serve_axum("observe", observe, observe::router(observe_state), stopping));
        until.await;
        tracing::info!("stopping: no new connections, calls in flight may end");
        stop.send_replace(true);
        if let Err(error) = serving.await {
            tracing::error!(%error, "the agents' listener ended abnormally");
        }
        let mut left = std::mem::take(&mut *shared.left.lock());
        let ended = async { while left.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, ended).await.is_err() {
            tracing::warn!("calls whose agents had left were cut; their outcome is unknown");
        }
        shared.parked.shutdown().await;
        shared.upstreams.shutdown().await;
        tasks.shutdown().await;
        observing.shutdown().await;
        shared.store.close().await;
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
        shared.metrics.runs(shared.table.count());
        for (kind, rows) in shared.parked.pruned().kinds() {
            shared.metrics.pruned(kind, rows);
        }
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
