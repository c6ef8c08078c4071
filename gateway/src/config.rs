//! `gateway.yaml` and its environment twins, read into an inert value.
//!
//! Nothing here opens a socket, makes a folder or changes a file. What is not understood is
//! refused with its place. Paths are resolved against the folder of the file.

mod admins;
mod effective;
mod fetched;
mod files;
mod load;
mod place;
mod postgres;
mod setting;
mod tokens;
mod webhooks;
mod wire;

pub use files::{FILES_MAX, PolicyFiles, SET_BYTES_MAX, policy_files};
pub use postgres::{PostgresUrl, UrlSource};
pub(crate) use tokens::rfc3339_ms;
pub use tokens::{TokenEntry, tokens};
pub use webhooks::{Secret, Webhook, WebhookFormat};

use portcullis_policy::diagnostic::{Diagnostic, Severity};
use portcullis_policy::name::AgentName;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything the gateway is told at start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens.
    pub listen: Listen,
    /// How others reach it.
    pub public_url: PublicUrl,
    /// Folder of everything the gateway writes.
    pub state_dir: PathBuf,
    /// Where policy files are.
    pub policy: Policy,
    /// Where cards and runs are kept.
    pub store: Store,
    /// Where the key is that seals what agents carry for the gateway.
    pub seal: Seal,
    /// Where the audit log goes.
    pub audit: Audit,
    /// How agents prove who they are.
    pub auth: Auth,
    /// Who may use the admin listener, besides the operator token in `state_dir`.
    pub principals: Vec<Principal>,
    /// Who is told of cards.
    pub webhooks: Vec<Webhook>,
    /// How parked calls are held.
    pub approval: Approval,
    /// How long runs live.
    pub runs: Runs,
    /// Limits of the process.
    pub limits: Limits,
    /// What is odd without being wrong; to be logged at each start.
    pub warnings: Vec<Diagnostic>,
}

/// Addresses of the three listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// For agents.
    pub agents: SocketAddr,
    /// For approvers, harnesses and operators.
    pub admin: SocketAddr,
    /// For health checks and metrics.
    pub observe: SocketAddr,
}

/// Origins such as `https://gateway.example`, without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    /// For run URLs, metadata and the check of `Host`.
    pub agents: String,
    /// For links to cards.
    pub admin: String,
}

/// Where policy files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Folders, each read as one part of the same set.
    pub dirs: Vec<PathBuf>,
    /// Refuse the set for a warning as well.
    pub strict: bool,
}

/// Where cards and runs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Which engine, and where.
    pub place: StorePlace,
    /// For how long.
    pub retain: Retain,
}

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// A database file of this gateway alone.
    Sqlite(PathBuf),
    /// A database that several gateways may share.
    Postgres(PostgresUrl),
}

/// How long the store keeps what is over. Results follow [`Approval::result_keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// Settled cards, and runs that ended.
    pub cards: Duration,
    /// Events.
    pub events: Duration,
}

/// Where the key is that seals sessions, cursors and the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The file; made at the first start if it is not there.
    pub key_file: PathBuf,
}

/// How long runs live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// When the starter does not say.
    pub ttl: Duration,
    /// At most, whatever the starter says.
    pub ttl_max: Duration,
}

/// Where the audit log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The folder.
    pub dir: PathBuf,
    /// How far a record must be before an effect leaves the gateway.
    pub durability: Durability,
}

/// How far a record must be before an effect leaves the gateway. Decisions always go to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Handed to the operating system: survives a crash of the gateway.
    Os,
    /// On disk: survives a loss of power.
    Disk,
}

/// How agents prove who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Let callers from this machine in without a token, as an agent that can decide nothing.
    pub loopback_without_token: bool,
    /// File with the hashes of agent tokens.
    pub token_file: PathBuf,
}

/// Someone who may use the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name in the audit log.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// SHA-256 of their token.
    pub sha256: [u8; 32],
}

/// What an admin principal may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Read.
    Viewer,
    /// Read and decide.
    Approver,
    /// Start and stop runs of these agents and read their cards.
    Harness {
        /// The agents.
        agents: Vec<AgentName>,
        /// Decide those cards as well.
        also_approver: bool,
    },
    /// Everything.
    Operator,
}

/// How parked calls are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// No person can be reached.
    pub unattended: bool,
    /// How long a call of a client that is not known is held on the wire.
    pub hold: Duration,
    /// The same for clients by their name.
    pub hold_clients: BTreeMap<String, Duration>,
    /// Modern clients with a timer are sent away at its end, to come back with a fresh one.
    pub legs: bool,
    /// How long a result that nobody took is kept.
    pub result_keep: Duration,
}

/// Limits of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body.
    pub request_bytes: u64,
    /// Largest answer of an upstream.
    pub result_bytes: u64,
    /// Deepest nesting of a request.
    pub json_depth: u32,
    /// Most messages in a batch.
    pub batch: u32,
    /// Most connections of agents.
    pub connections: u32,
    /// Most tools of one upstream.
    pub tools_per_server: u32,
}

/// Why a configuration is refused.
#[derive(Debug)]
pub enum ConfigError {
    /// A file or folder cannot be read.
    Unreadable {
        /// It.
        path: PathBuf,
        /// What to do about it.
        advice: String,
    },
    /// At least one of these findings is an error.
    Refused(Vec<Diagnostic>),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, advice } => write!(f, "{}: {advice}", path.display()),
            Self::Refused(findings) => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads `path`, or takes the defaults in the current folder; variables of `env` go first.
    ///
    /// # Errors
    /// [`ConfigError`] with every finding, if the file cannot be read or is not understood.
    pub fn load(path: Option<&Path>, env: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        load::load(path, env)
    }
}

/// Gives back `value` unless one of the findings is an error.
fn accept<T>(value: T, found: Vec<Diagnostic>) -> Result<(T, Vec<Diagnostic>), ConfigError> {
    if found.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(ConfigError::Refused(found));
    }
    Ok((value, found))
}

#[cfg(test)]
mod tests;
