//! The servers behind the gateway: connected in the background, asked only with a permit.
//!
//! Each server has one keeper task and is reached by one transport. What all of them offer is
//! one [`Catalogue`], swapped whole. A request is sent at most once: it is repeated only when it
//! provably did not leave or the server turned it away for an ended session.

mod counters;
mod frame;
mod gate;
mod handshake;
mod http;
mod keeper;
mod lines;
mod link;
mod lists;
mod message;
mod mirror;
mod pipe;
mod process;
mod session;
mod settings;

#[cfg(test)]
mod tests;

use crate::upstream::gate::CALLS_MAX;
use crate::upstream::handshake::Greeter;
use crate::upstream::http::{Address, Endpoint};
use crate::upstream::keeper::{Keeper, Standing, Upstream, Way};
use crate::upstream::link::{Fault, Link};
use crate::upstream::message::{Outgoing, Voice};
use crate::upstream::process::Launch;
use parking_lot::Mutex;
use portcullis_policy::catalogue::{Catalogue, Offer, Status};
use portcullis_policy::decide::Permit;
use portcullis_policy::definition::{Server, Transport};
use portcullis_policy::name::ServerName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

pub use message::{Failure, Forward, Log, Reply};
pub use session::Era;
pub use settings::{RESULT_BYTES_MAX, TOOLS_MAX, UpstreamError, UpstreamSettings};

/// Room for the envelope around a result, in bytes.
const ENVELOPE_BYTES_MAX: usize = 64 * 1024;
/// How long all servers together may take to end.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// All upstream servers. Clones are the same servers; they end with [`Upstreams::shutdown`], or
/// when the last clone is gone.
#[derive(Debug, Clone)]
pub struct Upstreams {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    servers: BTreeMap<ServerName, Arc<Upstream>>,
    catalogue: Arc<watch::Sender<Arc<Catalogue>>>,
    stop: watch::Sender<bool>,
    // The keepers, until shutdown takes them.
    tasks: Mutex<JoinSet<()>>,
}

/// How one server is doing, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// The server.
    pub name: ServerName,
    /// The era it speaks, while it is connected; `None` while it is not.
    pub up: Option<Era>,
    /// Times it was connected again after the connection was lost.
    pub restarts: u64,
    /// Messages of it that were dropped.
    pub dropped_frames: u64,
    /// Progress and log messages of it that nobody took in time.
    pub dropped_notices: u64,
    /// Calls under way.
    pub in_flight: usize,
}

impl Upstreams {
    /// Starts to connect to `servers` in the background and returns at once. Must be called on a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`UpstreamError`] if a value or an address of a server cannot be used.
    pub fn start(servers: Vec<Server>, settings: UpstreamSettings) -> Result<Self, UpstreamError> {
        let settings = Arc::new(settings);
        let mut offers = Catalogue::default();
        let mut upstreams = BTreeMap::new();
        let mut ways = Vec::new();
        let mut tls = None;
        for server in servers {
            let status = if server.enabled { Status::Starting } else { Status::Disabled };
            offers
                .servers
                .insert(server.name.clone(), Arc::new(Offer { status, ..Offer::default() }));
            let upstream = Arc::new(Upstream::new(server));
            let name = upstream.server.name.clone();
            if upstream.server.enabled {
                let way = way(&upstream, &settings, &mut tls)?;
                ways.push((Arc::clone(&upstream), way));
            } else {
                let reason = "the operator switched the server off".to_owned();
                upstream.standing.send_replace(Standing::Down(reason));
            }
            if upstreams.insert(name.clone(), upstream).is_some() {
                return Err(UpstreamError::Twice(name));
            }
        }
        let catalogue = Arc::new(watch::Sender::new(Arc::new(offers)));
        let (stop, stopping) = watch::channel(false);
        let greeter = Greeter {
            voice: Voice::new(&settings.version),
            version: settings.version.as_str().into(),
        };
        let mut tasks = JoinSet::new();
        for (upstream, way) in ways {
            let keeper = Keeper {
                upstream,
                greeter: greeter.clone(),
                catalogue: Arc::clone(&catalogue),
                tools_max: settings.tools_max,
                line_bytes_max: settings.result_bytes_max + ENVELOPE_BYTES_MAX,
                stop: stopping.clone(),
            };
            tasks.spawn(keeper.run(way));
        }
        let tasks = Mutex::new(tasks);
        Ok(Self { inner: Arc::new(Inner { servers: upstreams, catalogue, stop, tasks }) })
    }

    /// What all servers offer, now and whenever it changes.
    #[must_use]
    pub fn catalogue(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.inner.catalogue.subscribe()
    }

    /// Waits until every server is ready or has failed once, but not longer than `at_most`.
    pub async fn settle(&self, at_most: Duration) {
        let mut catalogue = self.catalogue();
        let settled = catalogue.wait_for(|catalogue| {
            catalogue.servers.values().all(|offer| offer.status != Status::Starting)
        });
        // Being late is no failure: the catalogue says who is still starting.
        let _ = timeout(at_most, settled).await;
    }

    /// Sends the one request that `permit` opens the way for and waits for the answer. Dropping
    /// the future cancels the request at the server.
    ///
    /// # Errors
    /// [`Failure`], which says whether the request may have been carried out.
    pub async fn call(&self, permit: Permit, forward: Forward) -> Result<Reply, Failure> {
        let Some(upstream) = self.inner.servers.get(permit.target().server()) else {
            return Err(Failure::NotSent("no such server is configured".to_owned()));
        };
        let outgoing = Outgoing::permitted(permit, forward)?;
        upstream.carry(&outgoing).await
    }

    /// How the servers are doing, in the order of their names.
    #[must_use]
    pub fn states(&self) -> Vec<ServerState> {
        let state = |upstream: &Arc<Upstream>| ServerState {
            name: upstream.server.name.clone(),
            up: match &*upstream.standing.borrow() {
                Standing::Up(link) => Some(link.session.era),
                Standing::Starting | Standing::Down(_) => None,
            },
            restarts: counters::read(&upstream.counters.restarts),
            dropped_frames: counters::read(&upstream.counters.dropped_frames),
            dropped_notices: counters::read(&upstream.counters.dropped_notices),
            in_flight: upstream.gate.in_flight(CALLS_MAX),
        };
        self.inner.servers.values().map(state).collect()
    }

    /// Ends all sessions and all child processes, and waits for that.
    pub async fn shutdown(&self) {
        self.inner.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock());
        let all = async { while tasks.join_next().await.is_some() {} };
        // What is left after the time is aborted with the set; process groups die with it.
        let _ = timeout(SHUTDOWN_WITHIN, all).await;
    }
}

fn way(
    upstream: &Upstream,
    settings: &UpstreamSettings,
    tls: &mut Option<TlsConnector>,
) -> Result<Way, UpstreamError> {
    let server = &upstream.server;
    match &server.transport {
        Transport::Stdio { command, args, env, cwd } => {
            let own = settings::resolve(server, env)?;
            Ok(Way::Stdio(Launch {
                executable: settings.executable.clone(),
                command: command.clone(),
                args: args.clone(),
                env: process::environment(&settings.inherit, &own),
                cwd: cwd.clone(),
            }))
        }
        Transport::Http { url, headers } => {
            let headers = settings::resolve(server, headers)?;
            let address = Address { url, headers: &headers };
            let (endpoint, errands) = Endpoint::new(upstream, address, settings, tls)?;
            Ok(Way::Http(endpoint, errands))
        }
    }
}

impl Upstream {
    async fn carry(&self, outgoing: &Outgoing) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.server.call_timeout;
        let _slot = self.gate.enter(deadline).await?;
        let link = self.link()?;
        let first = link.ask(outgoing, deadline).await;
        let ending = match first {
            Err(Fault::SessionGone) => {
                self.renewed(link.number, deadline).await?.ask(outgoing, deadline).await
            }
            ending => ending,
        };
        let ending = ending.map_err(Fault::into_failure);
        if matches!(ending, Err(Failure::NotSent(_) | Failure::Unknown(_) | Failure::Refused(_))) {
            // The keeper looks whether the server is still there.
            self.changed.notify_one();
        }
        ending
    }

    fn link(&self) -> Result<Link, Failure> {
        match &*self.standing.borrow() {
            Standing::Up(link) => Ok(link.clone()),
            Standing::Starting => Err(Failure::Starting),
            Standing::Down(reason) => Err(Failure::NotSent(reason.clone())),
        }
    }

    // Waits for an agreement newer than `number`. The keeper makes one for all who wait.
    async fn renewed(&self, number: u64, deadline: Instant) -> Result<Link, Failure> {
        self.forgotten.fetch_max(number, Ordering::AcqRel);
        self.changed.notify_one();
        let mut standing = self.standing.subscribe();
        let newer = standing.wait_for(|standing| match standing {
            Standing::Up(link) => link.number > number,
            Standing::Down(_) => true,
            Standing::Starting => false,
        });
        let late = || Failure::NotSent("the session could not be opened again in time".to_owned());
        match timeout_at(deadline, newer).await {
            Ok(Ok(standing)) => match &*standing {
                Standing::Up(link) => Ok(link.clone()),
                Standing::Down(reason) => Err(Failure::NotSent(reason.clone())),
                Standing::Starting => Err(late()),
            },
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }
}
