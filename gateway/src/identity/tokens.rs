//! The tokens of agents: from the token file and from the quickstart.

use super::token::TokenHash;
use super::{IdentityError, Kind, Principal, bearer};
use portcullis_policy::name::AgentName;
use std::collections::HashMap;
use std::time::SystemTime;

/// An agent's token, as it is kept.
#[derive(Debug, Clone)]
pub struct TokenEntry {
    /// The agent it stands for.
    pub agent: AgentName,
    /// SHA-256 of the token.
    pub hash: TokenHash,
    /// When it ends; `None` is never.
    pub expires: Option<SystemTime>,
}

/// Every token that is accepted. A value: a reload makes a new one.
#[derive(Debug, Default)]
pub struct Tokens {
    // Each entry with the principal it stands for, made once and not with each request.
    entries: HashMap<[u8; 8], Vec<(TokenEntry, Principal)>>,
}

impl Tokens {
    /// The table of `entries`.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = TokenEntry>) -> Self {
        let mut tokens = Self::default();
        for entry in entries {
            let principal = Principal::of(&entry.agent, &entry.hash);
            tokens.entries.entry(slot(&entry.hash)).or_default().push((entry, principal));
        }
        tokens
    }

    /// Whose token is in the value of an `Authorization` header.
    ///
    /// # Errors
    /// [`IdentityError`], which is for the log: the caller reads one text for all of them.
    pub fn identify(&self, header: Option<&str>) -> Result<Principal, IdentityError> {
        let hash = bearer(header, Kind::Agent)?.hash();
        // Found by a part of the hash, which tells nothing about a token; compared in whole in
        // constant time.
        let (entry, principal) = self
            .entries
            .get(&slot(&hash))
            .and_then(|entries| entries.iter().find(|(entry, _)| entry.hash.matches(&hash)))
            .ok_or(IdentityError::Unknown)?;
        if entry.expires.is_some_and(|expires| expires <= SystemTime::now()) {
            return Err(IdentityError::Expired);
        }
        Ok(principal.clone())
    }

    /// True if no token is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn slot(hash: &TokenHash) -> [u8; 8] {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}
