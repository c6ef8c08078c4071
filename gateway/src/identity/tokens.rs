//! The tokens of agents and runs that are accepted at this moment.
//!
//! A live table: what is revoked or expires leaves it and ends its lease, and with it everything
//! that is open on it.

use super::token::TokenHash;
use super::{IdentityError, Kind, Lease, Principal, Seat, bearer};
use parking_lot::RwLock;
use portcullis_policy::name::AgentName;
use std::collections::HashMap;
use std::time::SystemTime;

/// A token as it is kept.
#[derive(Debug, Clone)]
pub struct TokenEntry {
    /// The agent it stands for.
    pub agent: AgentName,
    /// SHA-256 of the token.
    pub hash: TokenHash,
    /// When it ends; `None` is never.
    pub expires: Option<SystemTime>,
    /// Where it comes from, and for which run.
    pub source: Source,
}

/// Where a token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file of the operator.
    Configured,
    /// Made by the gateway for an operator.
    Minted {
        /// The token's own id.
        id: String,
        /// The unnamed run, kept when a token replaces another one.
        run: Option<String>,
    },
    /// Made by the gateway for one run.
    Run {
        /// The run.
        id: String,
        /// The time of the run.
        lease: Lease,
    },
}

/// Every token that is accepted.
#[derive(Debug, Default)]
pub struct Tokens {
    // Found by a part of the hash, which tells nothing about a token.
    table: RwLock<HashMap<[u8; 8], Vec<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    token: TokenEntry,
    // Made once and not with each request.
    principal: Principal,
}

impl Entry {
    fn new(token: TokenEntry) -> Self {
        Self { principal: Principal::of(&token), token }
    }

    fn is_over(&self, now: SystemTime) -> bool {
        self.token.expires.is_some_and(|expires| expires <= now)
    }
}

impl Tokens {
    /// The table of `entries`.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = TokenEntry>) -> Self {
        let tokens = Self::default();
        for entry in entries {
            tokens.add(entry);
        }
        tokens
    }

    /// Accepts one more token.
    pub fn add(&self, token: TokenEntry) {
        self.table.write().entry(slot(&token.hash)).or_default().push(Entry::new(token));
    }

    /// Takes over what the operator's files say now: what they no longer name ends, what they
    /// still name goes on with its lease. Returns who came and who went.
    pub fn configure(&self, entries: Vec<TokenEntry>) -> Turnover {
        let mut named: HashMap<[u8; 32], TokenEntry> =
            entries.into_iter().map(|entry| (*entry.hash.as_bytes(), entry)).collect();
        let mut turnover = Turnover::default();
        let mut table = self.table.write();
        for known in table.values_mut() {
            known.retain_mut(|entry| stays(entry, &mut named, &mut turnover));
        }
        for token in named.into_values() {
            let entry = Entry::new(token);
            turnover.came.push(entry.principal.clone());
            table.entry(slot(&entry.token.hash)).or_default().push(entry);
        }
        turnover
    }

    /// No longer accepts a token; returns whose it was. Its lease is the caller's to end.
    pub fn remove(&self, hash: &TokenHash) -> Option<Principal> {
        let mut table = self.table.write();
        let known = table.get_mut(&slot(hash))?;
        let at = known.iter().position(|entry| entry.token.hash.matches(hash))?;
        Some(known.swap_remove(at).principal)
    }

    /// Whose token that is.
    pub fn of(&self, hash: &TokenHash) -> Option<Principal> {
        let table = self.table.read();
        let known = table.get(&slot(hash))?;
        let entry = known.iter().find(|entry| entry.token.hash.matches(hash))?;
        Some(entry.principal.clone())
    }

    /// Ends a token at `expires` if it would live longer.
    pub fn limit(&self, hash: &TokenHash, expires: SystemTime) {
        let mut table = self.table.write();
        let known = table.get_mut(&slot(hash)).into_iter().flatten();
        for entry in known.filter(|entry| entry.token.hash.matches(hash)) {
            let sooner = entry.token.expires.map_or(expires, |known| known.min(expires));
            entry.token.expires = Some(sooner);
        }
    }

    /// Whose tokens ended by `now` and still have what is open on them. The tokens stay in the
    /// table, so that a log can tell an expired token from an unknown one.
    pub fn expired(&self, now: SystemTime) -> Vec<Principal> {
        let table = self.table.read();
        let over = table.values().flatten().filter(|entry| entry.is_over(now));
        over.map(|entry| &entry.principal).filter(|p| !p.lease.is_closed()).cloned().collect()
    }

    /// Everyone who is accepted at `now`, runs left aside.
    pub fn agents(&self, now: SystemTime) -> Vec<Principal> {
        let table = self.table.read();
        let live = table.values().flatten().filter(|entry| !entry.is_over(now));
        live.map(|entry| &entry.principal)
            .filter(|p| p.seat == Seat::Unnamed && !p.lease.is_closed())
            .cloned()
            .collect()
    }

    /// The unnamed run of an agent whose credentials all share one; else `None`.
    #[must_use]
    pub fn unnamed_run(&self, agent: &AgentName) -> Option<String> {
        let mut runs = self.agents(SystemTime::now());
        runs.retain(|principal| principal.agent == *agent);
        let run = runs.first()?.run.clone();
        runs.iter().all(|principal| principal.run == run).then_some(run)
    }

    /// Whose token is in the value of an `Authorization` header.
    ///
    /// # Errors
    /// [`IdentityError`], which is for the log: the caller reads one text for all of them.
    pub fn identify(&self, header: Option<&str>) -> Result<Principal, IdentityError> {
        let hash = bearer(header, &[Kind::Agent, Kind::Run])?.hash();
        let table = self.table.read();
        // Compared in whole in constant time.
        let entry = table
            .get(&slot(&hash))
            .and_then(|known| known.iter().find(|entry| entry.token.hash.matches(&hash)))
            .ok_or(IdentityError::Unknown)?;
        if entry.is_over(SystemTime::now()) || entry.principal.lease.is_closed() {
            return Err(IdentityError::Expired);
        }
        Ok(entry.principal.clone())
    }
}

// True if an entry of the files goes on: what is left in `named` comes.
fn stays(
    entry: &mut Entry,
    named: &mut HashMap<[u8; 32], TokenEntry>,
    turnover: &mut Turnover,
) -> bool {
    if entry.token.source != Source::Configured {
        return true;
    }
    let hash = *entry.token.hash.as_bytes();
    let Some(same) = named.get(&hash).filter(|named| named.agent == entry.token.agent) else {
        turnover.went.push(entry.principal.clone());
        return false;
    };
    // One that had ended comes anew if the file lets it live longer now.
    if entry.principal.lease.is_closed() {
        return false;
    }
    entry.token.expires = same.expires;
    named.remove(&hash);
    true
}

/// What a change of the operator's files did.
#[derive(Debug, Default)]
pub struct Turnover {
    /// Who is accepted now and was not before.
    pub came: Vec<Principal>,
    /// Who was accepted before and is not now. Their leases are the caller's to end.
    pub went: Vec<Principal>,
}

fn slot(hash: &TokenHash) -> [u8; 8] {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}
