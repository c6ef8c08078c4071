//! Tokens: 256 random bits behind a readable prefix, kept as their SHA-256.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Characters after the prefix: 32 bytes in base64url.
const BODY_CHARS: usize = 43;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The endpoints of one agent.
    Agent,
    /// The same, for one of its runs.
    Run,
    /// The admin listener.
    Admin,
}

/// A token in the clear. It is shown once, to the person it is made for.
#[derive(Clone)]
pub struct Token(
    // INVARIANT: the prefix of its kind and 43 characters of base64url.
    String,
);

/// The SHA-256 of a token: what is kept.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl Kind {
    /// The first characters of a token of this kind.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "pcl_agent_",
            Self::Run => "pcl_run_",
            Self::Admin => "pcl_admin_",
        }
    }
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// If the operating system gives no random bits.
    pub fn generate(kind: Kind) -> std::io::Result<Self> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(bits))))
    }

    /// Reads a token of `kind`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str, kind: Kind) -> Option<Self> {
        let body = text.strip_prefix(kind.prefix())?;
        let shaped = body.len() == BODY_CHARS
            && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        shaped.then(|| Self(text.to_owned()))
    }

    /// The text, for the one place that shows or sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl TokenHash {
    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl Eq for TokenHash {}

impl From<[u8; 32]> for TokenHash {
    fn from(sha256: [u8; 32]) -> Self {
        Self(sha256)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// 26 characters of base32: 128 bits and two zero bits.
pub(super) fn base32(bits: u128) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    (0..26u32)
        .map(|at| {
            let group = if at < 25 { bits >> (123 - 5 * at) } else { bits << 2 };
            let index = usize::try_from(group & 31).unwrap_or_default();
            ALPHABET.get(index).copied().map_or('a', char::from)
        })
        .collect()
}
