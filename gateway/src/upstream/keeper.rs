//! One task a server: connects, reads its lists, notices changes and death, connects again.
//!
//! A slow or dead server holds up nobody but itself. Its last offer stays in the catalogue, as
//! stale, while it is away.

use crate::upstream::counters::{Counters, count};
use crate::upstream::gate::{CALLS_MAX, Gate};
use crate::upstream::handshake::Greeter;
use crate::upstream::http::{Endpoint, Errand};
use crate::upstream::link::{Fault, Link, Wire};
use crate::upstream::lists;
use crate::upstream::pipe::{Hears, Pipe};
use crate::upstream::process::{LastWords, Launch, relay_stderr};
use crate::upstream::session::Era;
use portcullis_policy::catalogue::{Catalogue, Offer, Status};
use portcullis_policy::definition::{EraPin, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// First pause before connecting again.
const BACKOFF_FIRST: Duration = Duration::from_millis(250);
/// Longest pause before connecting again.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A server that was up for so long starts with the first pause again.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Changes a server tells within this time are one change.
const CHANGES_WITHIN: Duration = Duration::from_millis(100);
/// Sessions are opened again at most once in this time.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Idle HTTP connections are looked through this often.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long the output of a process that exited is still read, and the other way round.
const LAST_OUTPUT: Duration = Duration::from_millis(250);
/// A legacy verdict is doubted after this time: a server that was updated would still answer.
const LEGACY_VERDICT_FOR: Duration = Duration::from_secs(600);

/// What callers and the keeper of one server share.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Its definition.
    pub(crate) server: Server,
    /// How many calls it gets at one time.
    pub(crate) gate: Gate,
    /// Whether it can be asked.
    pub(crate) standing: watch::Sender<Standing>,
    /// What is counted.
    pub(crate) counters: Arc<Counters>,
    /// Wakes the keeper: lists changed, or a call met trouble.
    pub(crate) changed: Arc<Notify>,
    /// The newest agreement that the server was found to have forgotten.
    pub(crate) forgotten: AtomicU64,
}

/// Whether a server can be asked.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// Not connected yet.
    Starting,
    /// Connected.
    Up(Link),
    /// Not connected, for this reason.
    Down(String),
}

impl Upstream {
    /// A server nobody has connected to.
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            gate: Gate::new(CALLS_MAX),
            standing: watch::Sender::new(Standing::Starting),
            counters: Arc::default(),
            changed: Arc::default(),
            forgotten: AtomicU64::new(0),
        }
    }
}

/// How a server is reached.
#[derive(Debug)]
pub(crate) enum Way {
    /// By a child process.
    Stdio(Launch),
    /// By HTTP.
    Http(Arc<Endpoint>, mpsc::Receiver<Errand>),
}

/// The task that keeps one server connected. It ends when `stop` turns true or is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// The server.
    pub(crate) upstream: Arc<Upstream>,
    /// Who greets it.
    pub(crate) greeter: Greeter,
    /// Where its offers go.
    pub(crate) catalogue: Arc<watch::Sender<Arc<Catalogue>>>,
    /// Most tools.
    pub(crate) tools_max: usize,
    /// Longest line of a stdio server, in bytes.
    pub(crate) line_bytes_max: usize,
    /// Turns true when the gateway stops.
    pub(crate) stop: watch::Receiver<bool>,
}

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The gateway stops.
    Stop,
    /// The server forgot the session: agree again at once.
    Renew,
    /// Start again at once, the legacy way: the server exited at the probe.
    Again,
    /// Anything else.
    Lost(String),
}

/// What the keeper learned about its server.
#[derive(Debug, Default)]
struct Known {
    era: Option<(Era, Instant)>,
    // True while the era is being found out.
    probing: bool,
    agreements: u64,
    up_since: Option<Instant>,
    failures: u32,
}

impl Known {
    // Failures in a row, with this one; a server that was stable starts anew.
    fn fail(&mut self) -> u32 {
        let stable = self.up_since.is_some_and(|since| since.elapsed() >= STABLE_AFTER);
        self.failures = if stable { 0 } else { self.failures.saturating_add(1) };
        // A verdict that led nowhere is doubted.
        self.era = self.era.filter(|_| self.up_since.is_some());
        self.failures
    }
}

impl Keeper {
    /// Runs until the gateway stops.
    pub(crate) async fn run(mut self, mut way: Way) {
        let mut known = Known::default();
        loop {
            known.up_since = None;
            let end = match &mut way {
                Way::Stdio(launch) => self.keep_process(launch, &mut known).await,
                Way::Http(endpoint, errands) => {
                    self.keep_endpoint((endpoint, errands), &mut known).await
                }
            };
            let pause = match end {
                End::Stop => return,
                End::Again => Duration::ZERO,
                End::Renew => RENEW_EVERY.saturating_sub(up_for(&known)),
                End::Lost(reason) => {
                    self.lost(reason);
                    backoff(known.fail())
                }
            };
            count(&self.upstream.counters.restarts);
            // Both arms may be dropped at any point.
            tokio::select! {
                () = stopped(&mut self.stop) => return,
                () = sleep(pause) => {}
            }
        }
    }

    async fn keep_process(&self, launch: &Launch, known: &mut Known) -> End {
        let (mut process, streams) = match launch.start() {
            Ok(started) => started,
            Err(reason) => return End::Lost(reason),
        };
        let mut tasks = JoinSet::new();
        let last_words = LastWords::default();
        let (streams, stderr) = (streams.pipes, streams.stderr);
        let name = self.upstream.server.name.clone();
        tasks.spawn(relay_stderr(name, stderr, last_words.clone()));
        let hears = Hears {
            counters: Arc::clone(&self.upstream.counters),
            changed: Arc::clone(&self.upstream.changed),
            line_bytes_max: self.line_bytes_max,
        };
        let pipe = Pipe::connect(streams, hears, &mut tasks);
        let mut stop = self.stop.clone();
        // Dropping the losing arms cancels requests for lists, nothing else.
        let end = tokio::select! {
            () = stopped(&mut stop) => End::Stop,
            reason = process.ended() => {
                // What it wrote before it exited still counts.
                let _ = timeout(LAST_OUTPUT, pipe.ended()).await;
                End::Lost(reason)
            }
            end = self.serve(Wire::Stdio(Arc::clone(&pipe)), known) => end,
        };
        let end = match end {
            End::Lost(reason) => {
                let died = timeout(LAST_OUTPUT, process.ended()).await;
                let exited = died.is_ok();
                if exited && std::mem::take(&mut known.probing) {
                    known.era = Some((Era::Legacy, Instant::now()));
                    End::Again
                } else {
                    End::Lost(last_words.after(&died.unwrap_or(reason)))
                }
            }
            End::Stop => End::Stop,
            End::Renew => End::Renew,
            End::Again => End::Again,
        };
        pipe.end(match &end {
            End::Lost(reason) => reason,
            End::Stop | End::Renew | End::Again => "the gateway closed the connection",
        });
        // Drops the child's input, which asks it to end.
        tasks.shutdown().await;
        process.stop().await;
        end
    }

    async fn keep_endpoint(
        &self,
        (endpoint, errands): (&Arc<Endpoint>, &mut mpsc::Receiver<Errand>),
        known: &mut Known,
    ) -> End {
        let mut stop = self.stop.clone();
        // Dropping the losing arms gives up requests for lists and at most one cancellation.
        let end = tokio::select! {
            () = stopped(&mut stop) => End::Stop,
            end = self.serve(Wire::Http(Arc::clone(endpoint)), known) => end,
            () = endpoint.run(errands) => End::Stop,
        };
        let standing = self.upstream.standing.borrow().clone();
        if let (End::Stop, Standing::Up(link)) = (&end, standing) {
            endpoint.end_session(&link.session).await;
        }
        end
    }

    // Agrees with the server and keeps its lists fresh until the connection ends.
    async fn serve(&self, wire: Wire, known: &mut Known) -> End {
        let pin = self.pin(known);
        known.probing = pin == EraPin::Auto;
        let session = match self.greeter.agree(&wire, pin).await {
            Ok(session) => session,
            Err(reason) => return End::Lost(reason),
        };
        known.probing = false;
        if known.era.is_none_or(|(era, _)| era != session.era) {
            known.era = Some((session.era, Instant::now()));
        }
        if let Wire::Stdio(pipe) = &wire {
            pipe.agree(session.era);
        }
        known.agreements += 1;
        let voice = self.greeter.voice.of(session.era);
        let link = Link { wire, session: Arc::new(session), voice, number: known.agreements };
        loop {
            let before = self.offer();
            let listing = match lists::read(&link, &before, self.tools_max).await {
                Ok(listing) => listing,
                Err(Fault::SessionGone) if known.up_since.is_some() => return End::Renew,
                Err(fault) => return End::Lost(fault.into_failure().to_string()),
            };
            known.up_since.get_or_insert_with(Instant::now);
            self.upstream.standing.send_replace(Standing::Up(link.clone()));
            self.publish(listing.offer);
            if let Some(end) = self.wait(&link, listing.fresh_for).await {
                return end;
            }
        }
    }

    // Until the lists must be read again (`None`) or the connection ended.
    async fn wait(&self, link: &Link, fresh_for: Duration) -> Option<End> {
        let forgotten = || self.upstream.forgotten.load(Ordering::Acquire) >= link.number;
        match &link.wire {
            // A notification may be lost in no arm: `Notify` keeps one for the next turn.
            Wire::Stdio(pipe) => tokio::select! {
                reason = pipe.ended() => return Some(End::Lost(reason)),
                () = self.upstream.changed.notified() => {}
                () = sleep(fresh_for), if link.session.era == Era::Modern => {}
            },
            Wire::Http(endpoint) => {
                let again = Instant::now() + fresh_for;
                while Instant::now() < again {
                    tokio::select! {
                        () = self.upstream.changed.notified() => break,
                        () = sleep_until(again.min(Instant::now() + SWEEP_EVERY)) => {
                            endpoint.sweep();
                        }
                    }
                }
            }
        }
        if forgotten() {
            return Some(End::Renew);
        }
        sleep(CHANGES_WITHIN).await;
        None
    }

    fn pin(&self, known: &Known) -> EraPin {
        match (self.upstream.server.era, known.era) {
            (EraPin::Auto, Some((Era::Modern, _))) => EraPin::Modern,
            (EraPin::Auto, Some((Era::Legacy, at))) if at.elapsed() < LEGACY_VERDICT_FOR => {
                EraPin::Legacy
            }
            (pin, _) => pin,
        }
    }

    fn offer(&self) -> Arc<Offer> {
        let catalogue = self.catalogue.borrow();
        catalogue.servers.get(&self.upstream.server.name).cloned().unwrap_or_default()
    }

    fn publish(&self, offer: Offer) {
        if lists::same(&self.offer(), &offer) {
            return;
        }
        let name = &self.upstream.server.name;
        for problem in &offer.problems {
            tracing::warn!(target: "upstream", server = %name, "{problem}");
        }
        self.replace(offer);
    }

    fn replace(&self, offer: Offer) {
        let offer = Arc::new(offer);
        self.catalogue.send_modify(|catalogue| {
            let mut next = Catalogue::clone(catalogue);
            next.servers.insert(self.upstream.server.name.clone(), offer);
            *catalogue = Arc::new(next);
        });
    }

    fn lost(&self, reason: String) {
        tracing::warn!(target: "upstream", server = %self.upstream.server.name, "unreachable: {reason}");
        self.upstream.standing.send_replace(Standing::Down(reason.clone()));
        let before = self.offer();
        let since_ms = match &before.status {
            Status::Unreachable { since_ms, .. } => *since_ms,
            Status::Starting | Status::Ready | Status::Disabled => now_ms(),
        };
        let status = Status::Unreachable { since_ms, reason };
        if before.status != status {
            self.replace(Offer { status, ..Offer::clone(&before) });
        }
    }
}

fn up_for(known: &Known) -> Duration {
    known.up_since.map(|since| since.elapsed()).unwrap_or_default()
}

/// Waits until `stop` is true or nobody is left to turn it.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the owner is gone, which stops too.
    let _ = stop.wait_for(|stop| *stop).await;
}

// Doubles with every failure in a row; between half and the whole of it, so that servers that
// fell together do not rise together.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let whole = BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    let part = getrandom::u32().unwrap_or(u32::MAX);
    whole / 2 + whole.mul_f64(f64::from(part) / f64::from(u32::MAX) / 2.0)
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_cap_and_are_never_equal_for_all() {
        for failures in 1..40 {
            let pause = backoff(failures);
            assert!(pause >= BACKOFF_FIRST / 2 && pause <= BACKOFF_MAX, "{failures}: {pause:?}");
        }
        assert!(backoff(30) >= BACKOFF_MAX / 2);
    }
}
