//! Who is asking: a credential becomes a principal, or nobody.
//!
//! The credential is the only source of identity. There is no default, anonymous or first
//! principal, and why a credential failed is for the log: the caller reads one text.

mod admins;
pub(crate) mod private_file;
mod quickstart;
mod token;
mod tokens;

use portcullis_policy::canonical::Digest;
use portcullis_policy::name::AgentName;

pub use admins::{
    Admin, AdminEntry, AdminFailure, Admins, FAILURES_PER_MINUTE_MAX, OPERATOR_TOKEN_FILE, Role,
    read_operator_token,
};
pub use private_file::PrivateFileError;
pub use quickstart::{QUICKSTART_TOKENS_FILE, QuickstartError, quickstart_tokens};
pub use token::{Kind, Token, TokenHash};
pub use tokens::{TokenEntry, Tokens};

/// What anyone reads whose credential is not accepted, whatever the reason.
pub const UNAUTHORIZED_TEXT: &str =
    "a valid credential is required: send `Authorization: Bearer` with the token of an agent";

/// Why a credential names nobody. For logs and metrics; the caller reads [`UNAUTHORIZED_TEXT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// There is no `Authorization` header.
    #[error("no credential was sent")]
    Missing,
    /// The header does not hold a token of the right kind.
    #[error("the credential is not a token of this kind")]
    Malformed,
    /// No such token.
    #[error("the token is not known")]
    Unknown,
    /// The token's time is over.
    #[error("the token has expired")]
    Expired,
}

impl IdentityError {
    /// The word in logs and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missing => "credential_missing",
            Self::Malformed => "credential_malformed",
            Self::Unknown => "credential_unknown",
            Self::Expired => "credential_expired",
        }
    }
}

/// An agent that proved who it is.
///
/// INVARIANT: made in this module from an accepted credential alone, so holding one proves the
/// check; no other code writes one out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Principal {
    /// The agent.
    pub agent: AgentName,
    /// A short name of the credential for logs; the token cannot be told from it.
    pub credential: String,
    /// The agent's unnamed run: one for each credential.
    pub run: String,
}

impl Principal {
    fn of(agent: &AgentName, hash: &TokenHash) -> Self {
        let credential = Digest::of_parts(&[b"credential", hash.as_bytes()]).short(12);
        let run = Digest::of_parts(&[b"unnamed run", hash.as_bytes()]).short(32);
        let run = u128::from_str_radix(&run, 16).unwrap_or_default();
        Self { agent: agent.clone(), credential, run: format!("run_{}", token::base32(run)) }
    }
}

/// The token in the value of an `Authorization` header.
///
/// # Errors
/// [`IdentityError::Missing`] without a header, [`IdentityError::Malformed`] for anything but
/// one bearer token of `kind`.
pub fn bearer(header: Option<&str>, kind: Kind) -> Result<Token, IdentityError> {
    let header = header.ok_or(IdentityError::Missing)?;
    let (scheme, token) = header.split_once(' ').ok_or(IdentityError::Malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(IdentityError::Malformed);
    }
    Token::parse(token.trim_matches(' '), kind).ok_or(IdentityError::Malformed)
}

/// `prefix` and 26 random characters: 128 bits that nobody guesses.
///
/// # Errors
/// If the operating system gives no random bits.
pub fn random_id(prefix: &str) -> std::io::Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(format!("{prefix}{}", token::base32(u128::from_be_bytes(bits))))
}

#[cfg(test)]
mod tests;
