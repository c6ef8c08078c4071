//! Soft state of sessions within its limits, and which sessions were ended.
//!
//! Dropping soft state ends nothing: the id makes it anew, with the usual log level and nothing
//! to cancel. What a request or a stream still holds goes last.

use super::{Ended, Session};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most sessions with soft state.
pub(super) const KNOWN_MAX: usize = 20_000;
/// Most sessions with soft state of one credential.
pub(super) const KNOWN_PER_CREDENTIAL_MAX: usize = 1_000;
/// Most ended sessions that are remembered.
pub(super) const ENDED_MAX: usize = 200_000;
/// How many make room at once, as a part of the limit: so seldom is it worth looking for the
/// least recently used among all.
const SHED_PART: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    // By credential, then by id.
    known: HashMap<String, HashMap<String, Arc<Session>>>,
    known_count: usize,
    // SHA-256 of the id, and until when it could be used.
    ended: HashMap<[u8; 32], u64>,
}

impl Table {
    pub(super) fn new(ended: impl IntoIterator<Item = ([u8; 32], u64)>) -> Self {
        Self { known: HashMap::new(), known_count: 0, ended: ended.into_iter().collect() }
    }

    pub(super) fn find(&self, credential: &str, id: &str) -> Option<Arc<Session>> {
        self.known.get(credential)?.get(id).map(Arc::clone)
    }

    /// Keeps the soft state of a session that opened, unless it has ended. If another request was
    /// faster, its soft state is the one.
    pub(super) fn insert(&mut self, session: Session, hash: [u8; 32]) -> Option<Arc<Session>> {
        if self.ended.contains_key(&hash) {
            return None;
        }
        if let Some(known) = self.find(&session.credential, &session.id) {
            return Some(known);
        }
        let own = self.known.get(&session.credential).map_or(0, HashMap::len);
        if own >= KNOWN_PER_CREDENTIAL_MAX {
            self.shed(Some(&session.credential), KNOWN_PER_CREDENTIAL_MAX / SHED_PART);
        }
        if self.known_count >= KNOWN_MAX {
            self.shed(None, KNOWN_MAX / SHED_PART);
        }
        let session = Arc::new(session);
        let own = self.known.entry(session.credential.clone()).or_default();
        own.insert(session.id.clone(), Arc::clone(&session));
        self.known_count += 1;
        Some(session)
    }

    /// Notes the end of a session; false if there is no room for that.
    pub(super) fn end(&mut self, session: &Session, ended: &Ended, now_ms: u64) -> bool {
        if self.ended.len() >= ENDED_MAX {
            self.ended.retain(|_, expires_ms| *expires_ms > now_ms);
        }
        if self.ended.len() >= ENDED_MAX {
            return false;
        }
        self.ended.insert(ended.hash, ended.expires_ms);
        self.drop_known(&session.credential, &session.id);
        true
    }

    /// Drops the least recently used soft state, of one credential or of all.
    fn shed(&mut self, credential: Option<&str>, count: usize) {
        let sessions = self.known.iter().filter(|(name, _)| credential.is_none_or(|c| c == *name));
        let mut order: Vec<(bool, u64, Arc<Session>)> = sessions
            .flat_map(|(_, own)| own.values())
            .map(|session| {
                let in_use = Arc::strong_count(session) > 1;
                (in_use, session.used.load(Ordering::Relaxed), Arc::clone(session))
            })
            .collect();
        order.sort_unstable_by_key(|(in_use, used, _)| (*in_use, *used));
        for (_, _, session) in order.iter().take(count.max(1)) {
            self.drop_known(&session.credential, &session.id);
        }
    }

    fn drop_known(&mut self, credential: &str, id: &str) {
        let Some(own) = self.known.get_mut(credential) else { return };
        if own.remove(id).is_some() {
            self.known_count -= 1;
        }
        if own.is_empty() {
            self.known.remove(credential);
        }
    }

    #[cfg(test)]
    pub(super) fn known_count(&self) -> usize {
        self.known_count
    }
}
