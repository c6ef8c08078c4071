//! The tokens of agents: from `tokens.yaml` and from the quickstart.

use super::token::TokenHash;
use super::{IdentityError, Kind, Principal, bearer, private_file};
use crate::audit::time::parse_rfc3339;
use portcullis_policy::name::AgentName;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
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
    entries: HashMap<[u8; 8], Vec<TokenEntry>>,
}

/// Why a token file is not used.
#[derive(Debug, thiserror::Error)]
pub enum TokensFileError {
    /// It cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] private_file::PrivateFileError),
    /// It is not the YAML it should be.
    #[error("the token file cannot be read: {0}")]
    Yaml(String),
    /// An entry is wrong.
    #[error("token {position} of the token file: {fault}")]
    Entry {
        /// Its place in the list, from 1.
        position: usize,
        /// What is wrong.
        fault: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    tokens: Vec<WireToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireToken {
    agent: String,
    sha256: String,
    #[serde(default)]
    expires: Option<String>,
}

impl Tokens {
    /// The table of `entries`.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = TokenEntry>) -> Self {
        let mut tokens = Self::default();
        for entry in entries {
            tokens.entries.entry(slot(&entry.hash)).or_default().push(entry);
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
        let entry = self
            .entries
            .get(&slot(&hash))
            .and_then(|entries| entries.iter().find(|entry| entry.hash.matches(&hash)))
            .ok_or(IdentityError::Unknown)?;
        if entry.expires.is_some_and(|expires| expires <= SystemTime::now()) {
            return Err(IdentityError::Expired);
        }
        Ok(Principal::of(&entry.agent, &hash))
    }

    /// True if no token is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Reads `tokens.yaml`: `tokens: [{agent, sha256, expires?}]`.
///
/// # Errors
/// [`TokensFileError`] that names the entry.
pub fn read_tokens_file(path: &Path) -> Result<Vec<TokenEntry>, TokensFileError> {
    let text = private_file::read(path)?;
    let file: WireFile = serde_saphyr::from_str(&text)
        .map_err(|error| TokensFileError::Yaml(error.to_string().escape_debug().to_string()))?;
    let mut entries: Vec<TokenEntry> = Vec::with_capacity(file.tokens.len());
    for (at, token) in file.tokens.into_iter().enumerate() {
        let failed = |fault| TokensFileError::Entry { position: at + 1, fault };
        let entry = TokenEntry::try_from(token).map_err(failed)?;
        if entries.iter().any(|other| other.hash.matches(&entry.hash)) {
            return Err(failed("`sha256` is listed twice".to_owned()));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl TryFrom<WireToken> for TokenEntry {
    type Error = String;

    fn try_from(wire: WireToken) -> Result<Self, String> {
        let agent = AgentName::new(&wire.agent).map_err(|error| format!("`agent`: {error}"))?;
        let hash = TokenHash::parse(&wire.sha256)
            .ok_or("`sha256` is not 64 hex digits; it holds the SHA-256 of the token")?;
        let expires = match wire.expires {
            None => None,
            Some(text) => Some(parse_rfc3339(&text).ok_or_else(|| {
                format!(
                    "`expires` is not a time such as `2027-01-31T00:00:00Z`: `{}`",
                    text.escape_debug()
                )
            })?),
        };
        Ok(Self { agent, hash, expires })
    }
}

fn slot(hash: &TokenHash) -> [u8; 8] {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}
