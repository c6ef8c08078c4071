//! Sessions of revisions up to 2025-11-25: what a handshake agreed on.
//!
//! A session is its id: a sealed value that any gateway with the key understands, also after a
//! restart. It belongs to the credential and the endpoint that opened it; for any other it does
//! not exist. It is never a run and never part of a card. Memory holds soft state alone, made
//! when a session is first used and dropped without harm; and which sessions were ended.

mod table;

use crate::mcp::envelope::Raw;
use crate::mcp::era::LEGACY;
use crate::parked::Clock;
use crate::seal::{Bound, Purpose, Seal};
use parking_lot::{Mutex, RwLock};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use table::Table;
use tokio::sync::{Notify, watch};

/// How long a session may be used after it was opened.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Longest id that is looked into, in bytes.
const ID_BYTES_MAX: usize = 1_024;
/// Most requests in flight that one session can cancel by id.
const IN_FLIGHT_MAX: usize = 1_024;

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    seal: Seal,
    clock: Clock,
    table: RwLock<Table>,
    // Counts uses, so that the least recent one is known.
    uses: AtomicU64,
}

/// The soft state of one session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its id, as the agent sends it.
    id: String,
    /// The credential it belongs to.
    credential: String,
    /// The endpoint it was opened on.
    path: String,
    /// The revision that was agreed on.
    pub(crate) version: &'static str,
    /// `clientInfo.name`.
    pub(crate) client: String,
    /// Its client can have its user open a URL (MCP 2025-11-25, elicitation).
    pub(crate) opens_urls: bool,
    /// The lowest level of log messages the agent wants.
    pub(crate) log_level: Mutex<String>,
    expires_ms: u64,
    // Under which keys the id was opened last.
    epoch: AtomicU64,
    used: AtomicU64,
    ended: watch::Sender<bool>,
    in_flight: Mutex<Vec<(Raw, Arc<Notify>)>>,
}

/// Why a session is not opened or not ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The operating system gave no random bits.
    #[error("the gateway has no random bits for a session id; try again later")]
    Random,
    /// It could be used again later, so it is not said to have ended.
    #[error("the gateway remembers too many ended sessions; this one ends by itself within a week")]
    Full,
}

/// What a new session is opened with.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    /// The credential.
    pub(crate) credential: &'a str,
    /// The endpoint.
    pub(crate) path: &'a str,
    /// The revision agreed on.
    pub(crate) version: &'static str,
    /// `clientInfo.name`.
    pub(crate) client: &'a str,
    /// See [`Session::opens_urls`].
    pub(crate) opens_urls: bool,
}

/// A session that ended before its time. Whoever stores it keeps it ended after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// SHA-256 of its id.
    pub(crate) hash: [u8; 32],
    /// Until when it has to be remembered.
    pub(crate) expires_ms: u64,
}

impl Sessions {
    /// Sessions under the keys of `seal`, without those that `ended` before, by SHA-256 of their
    /// ids.
    pub(crate) fn new(seal: Seal, ended: impl IntoIterator<Item = [u8; 32]>, clock: Clock) -> Self {
        // No id that was made before now counts for longer.
        let until_ms = clock.wall_ms().saturating_add(life_ms());
        let table = RwLock::new(Table::new(ended.into_iter().map(|hash| (hash, until_ms))));
        Self { seal, clock, table, uses: AtomicU64::new(0) }
    }

    /// Opens a session; nothing is kept but its id, which goes to the agent.
    pub(crate) fn open(&self, opening: &Opening<'_>) -> Result<String, SessionError> {
        let now_ms = self.clock.wall_ms();
        let bound = Bound { principal: opening.credential, target: opening.path };
        let payload = Agreed {
            created_ms: now_ms,
            version: opening.version,
            opens_urls: opening.opens_urls,
            client: opening.client,
        };
        let expires_ms = now_ms.saturating_add(life_ms());
        let id = self.seal.seal(Purpose::Session, &bound, &payload.to_bytes(), expires_ms);
        if id.is_empty() { Err(SessionError::Random) } else { Ok(id) }
    }

    /// The session of that id, if `credential` opened it on `path`.
    pub(crate) fn find(&self, id: &str, credential: &str, path: &str) -> Option<Arc<Session>> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let now_ms = self.clock.wall_ms();
        // Before anything is opened: a change of keys meanwhile is seen at the next use.
        let epoch = self.seal.epoch();
        let known = self.table.read().find(credential, id);
        let session = match known {
            Some(session) if session.path != path || session.expires_ms <= now_ms => return None,
            Some(session) if session.epoch.load(Ordering::Relaxed) == epoch => session,
            Some(session) => {
                self.opened(id, credential, path, now_ms)?;
                session.epoch.store(epoch, Ordering::Relaxed);
                session
            }
            None => {
                let mut session = self.opened(id, credential, path, now_ms)?;
                *session.epoch.get_mut() = epoch;
                self.table.write().insert(session, hash(id))?
            }
        };
        session.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(session)
    }

    /// Ends a session; its streams close. The caller stores what it gets.
    pub(crate) fn end(&self, session: &Session) -> Result<Ended, SessionError> {
        let ended = Ended { hash: hash(&session.id), expires_ms: session.expires_ms };
        let now_ms = self.clock.wall_ms();
        if !self.table.write().end(session, &ended, now_ms) {
            return Err(SessionError::Full);
        }
        session.ended.send_replace(true);
        Ok(ended)
    }

    /// The soft state of an id that opens.
    fn opened(&self, id: &str, credential: &str, path: &str, now_ms: u64) -> Option<Session> {
        let bound = Bound { principal: credential, target: path };
        let payload = self.seal.open(Purpose::Session, &bound, id, now_ms)?;
        let agreed = Agreed::from_bytes(&payload)?;
        Some(Session {
            id: id.to_owned(),
            credential: credential.to_owned(),
            path: path.to_owned(),
            version: agreed.version,
            client: agreed.client.to_owned(),
            opens_urls: agreed.opens_urls,
            log_level: Mutex::new("debug".to_owned()),
            expires_ms: agreed.created_ms.saturating_add(life_ms()),
            epoch: AtomicU64::new(0),
            used: AtomicU64::new(0),
            ended: watch::Sender::new(false),
            in_flight: Mutex::new(Vec::new()),
        })
    }
}

fn life_ms() -> u64 {
    u64::try_from(SESSION_LIFE.as_millis()).unwrap_or(u64::MAX)
}

fn hash(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

const OPENS_URLS: u8 = 0x80;

/// What an id carries: when it was made, eight bytes; the revision, after its length, whose
/// highest bit says what the client can do; the client.
struct Agreed<'a> {
    created_ms: u64,
    version: &'static str,
    opens_urls: bool,
    client: &'a str,
}

impl<'a> Agreed<'a> {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.created_ms.to_be_bytes().to_vec();
        let length = u8::try_from(self.version.len()).unwrap_or(OPENS_URLS - 1);
        bytes.push(if self.opens_urls { length | OPENS_URLS } else { length });
        bytes.extend_from_slice(self.version.as_bytes());
        bytes.extend_from_slice(self.client.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (created, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first()?;
        let opens_urls = length & OPENS_URLS != 0;
        let (version, client) = rest.split_at_checked(usize::from(length & !OPENS_URLS))?;
        let version = LEGACY.iter().copied().find(|known| known.as_bytes() == version)?;
        let client = std::str::from_utf8(client).ok()?;
        let created_ms = u64::from_be_bytes(*created);
        Some(Self { created_ms, version, opens_urls, client })
    }
}

impl Session {
    /// Resolves when the session ends.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as this session.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
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

#[cfg(test)]
mod tests;
