//! Sessions of revisions up to 2025-11-25: what a handshake agreed on.
//!
//! A session belongs to the credential that opened it; for any other it does not exist. It is
//! never a run and never part of a card.

use crate::mcp::envelope::Raw;
use dashmap::DashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Most sessions at one time.
const SESSIONS_MAX: usize = 20_000;
/// Most sessions of one credential; a further one ends its oldest.
const SESSIONS_PER_CREDENTIAL_MAX: usize = 1_000;
/// A session that is not used for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Most requests in flight that one session can cancel by id.
const IN_FLIGHT_MAX: usize = 1_024;

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: DashMap<String, Arc<Session>>,
    // Ids by credential, oldest first.
    by_credential: DashMap<String, VecDeque<String>>,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its id, as the agent sends it.
    pub(crate) id: String,
    /// The credential it belongs to.
    pub(crate) credential: String,
    /// The endpoint it was opened on.
    pub(crate) path: String,
    /// The revision that was agreed on.
    pub(crate) version: &'static str,
    /// `clientInfo.name`.
    pub(crate) client: String,
    /// The lowest level of log messages the agent wants.
    pub(crate) log_level: Mutex<String>,
    ended: Notify,
    opened: Instant,
    used_s: AtomicU64,
    in_flight: Mutex<Vec<(Raw, Arc<Notify>)>>,
}

/// A session that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// No more sessions can be opened.
    #[error("the gateway has {SESSIONS_MAX} open sessions; end some or try again later")]
    Full,
    /// The operating system gave no random bits.
    #[error("the gateway has no random bits for a session id; try again later")]
    Random,
}

/// What a new session is opened with.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The credential.
    pub(crate) credential: String,
    /// The endpoint.
    pub(crate) path: String,
    /// The revision agreed on.
    pub(crate) version: &'static str,
    /// `clientInfo.name`.
    pub(crate) client: String,
}

impl Sessions {
    /// Opens a session under an id of 128 random bits.
    pub(crate) fn open(&self, opening: Opening) -> Result<Arc<Session>, SessionError> {
        if self.open.len() >= SESSIONS_MAX {
            self.open.retain(|_, session| !session.is_idle());
        }
        if self.open.len() >= SESSIONS_MAX {
            return Err(SessionError::Full);
        }
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| SessionError::Random)?;
        let id = format!("ses_{:032x}", u128::from_be_bytes(bits));
        let session = Arc::new(Session {
            id: id.clone(),
            credential: opening.credential,
            path: opening.path,
            version: opening.version,
            client: opening.client,
            log_level: Mutex::new("debug".to_owned()),
            ended: Notify::new(),
            opened: Instant::now(),
            used_s: AtomicU64::new(0),
            in_flight: Mutex::new(Vec::new()),
        });
        self.open.insert(id.clone(), Arc::clone(&session));
        if let Some(oldest) = self.remember(&session.credential, id)
            && let Some((_, oldest)) = self.open.remove(&oldest)
        {
            oldest.ended.notify_waiters();
        }
        Ok(session)
    }

    // Notes an id; returns the one that has to make room.
    fn remember(&self, credential: &str, id: String) -> Option<String> {
        let mut ids = self.by_credential.entry(credential.to_owned()).or_default();
        ids.push_back(id);
        (ids.len() > SESSIONS_PER_CREDENTIAL_MAX).then(|| ids.pop_front()).flatten()
    }

    /// The session of that id, if `credential` opened it on `path`.
    pub(crate) fn find(&self, id: &str, credential: &str, path: &str) -> Option<Arc<Session>> {
        let session = Arc::clone(self.open.get(id)?.value());
        let own = session.credential == credential && session.path == path && !session.is_idle();
        own.then(|| {
            session.used_s.store(session.opened.elapsed().as_secs(), Ordering::Relaxed);
            session
        })
    }

    /// Ends a session; its streams close.
    pub(crate) fn end(&self, session: &Session) {
        self.open.remove(&session.id);
        if let Some(mut ids) = self.by_credential.get_mut(&session.credential) {
            ids.retain(|id| *id != session.id);
        }
        session.ended.notify_waiters();
    }
}

impl Session {
    /// Resolves when the session ends.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Notes a request that may be cancelled; the guard forgets it.
    pub(crate) fn enter(self: &Arc<Self>, id: &Raw) -> InFlight {
        let cancelled = Arc::new(Notify::new());
        let mut in_flight = self.in_flight.lock();
        if in_flight.len() < IN_FLIGHT_MAX {
            in_flight.push((id.clone(), Arc::clone(&cancelled)));
        }
        InFlight { session: Arc::clone(self), cancelled }
    }

    /// Cancels the request of that id. Some clients use one id for several requests in flight:
    /// then none is cancelled, since which one is meant cannot be told.
    pub(crate) fn cancel(&self, id: &Raw) {
        let in_flight = self.in_flight.lock();
        let mut named = in_flight.iter().filter(|(known, _)| known == id);
        if let (Some((_, cancelled)), None) = (named.next(), named.next()) {
            cancelled.notify_one();
        }
    }

    fn is_idle(&self) -> bool {
        let idle =
            self.opened.elapsed().as_secs().saturating_sub(self.used_s.load(Ordering::Relaxed));
        idle > IDLE_MAX.as_secs()
    }
}

/// A request in flight in a session.
#[derive(Debug)]
pub(crate) struct InFlight {
    session: Arc<Session>,
    cancelled: Arc<Notify>,
}

impl InFlight {
    /// Resolves when the agent cancels the request.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.session.in_flight.lock().retain(|(_, known)| !Arc::ptr_eq(known, &self.cancelled));
    }
}
