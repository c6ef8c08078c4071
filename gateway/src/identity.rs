//! Who is asking: a credential becomes a principal, or nobody.
//!
//! The credential is the only source of identity. There is no default, anonymous or first
//! principal, and why a credential failed is for the log: the caller reads one text.

mod admins;
mod lease;
mod loopback;
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
pub use lease::{Lease, Pass, Stay};
pub use loopback::{Loopback, loopback_run};
pub use private_file::PrivateFileError;
pub use quickstart::{QUICKSTART_TOKENS_FILE, QuickstartError, quickstart_tokens};
pub use token::{Kind, Token, TokenHash};
pub use tokens::{Source, TokenEntry, Tokens, Turnover};

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
    /// The run the credential is for: its own unnamed run, or the one it was made for.
    pub run: String,
    /// Which of the two.
    pub seat: Seat,
    /// How long the credential counts.
    pub lease: Lease,
}

/// What a credential is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// An agent: the run is the one that nobody started.
    Unnamed,
    /// One run.
    Run,
    /// An agent that proved nothing but where it is.
    Loopback,
}

impl Principal {
    fn of(token: &TokenEntry) -> Self {
        let hash = &token.hash;
        let credential = Digest::of_parts(&[b"credential", hash.as_bytes()]).short(12);
        let (run, seat, lease) = match &token.source {
            Source::Configured | Source::Minted { run: None, .. } => {
                (unnamed_run(&token.agent, hash), Seat::Unnamed, Lease::new())
            }
            Source::Minted { run: Some(run), .. } => (run.clone(), Seat::Unnamed, Lease::new()),
            Source::Run { id, lease } => (id.clone(), Seat::Run, lease.clone()),
        };
        Self { agent: token.agent.clone(), credential, run, seat, lease }
    }
}

/// The id of the run of a credential that nobody started. A token that changes hands has another
/// one.
#[must_use]
pub fn unnamed_run(agent: &AgentName, hash: &TokenHash) -> String {
    let agent = agent.as_str().to_ascii_lowercase();
    let run = Digest::of_parts(&[b"unnamed run", agent.as_bytes(), hash.as_bytes()]).short(32);
    let run = u128::from_str_radix(&run, 16).unwrap_or_default();
    format!("run_{}", token::base32(run))
}

/// The token in the value of an `Authorization` header.
///
/// # Errors
/// [`IdentityError::Missing`] without a header, [`IdentityError::Malformed`] for anything but
/// one bearer token of one of `kinds`.
pub fn bearer(header: Option<&str>, kinds: &[Kind]) -> Result<Token, IdentityError> {
    let header = header.ok_or(IdentityError::Missing)?;
    let (scheme, token) = header.split_once(' ').ok_or(IdentityError::Malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(IdentityError::Malformed);
    }
    let token = token.trim_matches(' ');
    kinds.iter().find_map(|kind| Token::parse(token, *kind)).ok_or(IdentityError::Malformed)
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
