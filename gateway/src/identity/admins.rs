//! Who may use the admin listener.

use super::{IdentityError, Kind, Lease, PrivateFileError, Token, TokenHash, bearer, private_file};
use parking_lot::{Mutex, RwLock};
use portcullis_policy::name::AgentName;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The file in the state folder with the operator's token, in the clear.
pub const OPERATOR_TOKEN_FILE: &str = "admin.token";

/// Failed credentials a minute that are told they failed; more are told to wait.
pub const FAILURES_PER_MINUTE_MAX: u32 = 30;

const MINUTE: Duration = Duration::from_secs(60);

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
        /// True if it may decide their cards as well.
        also_approver: bool,
    },
    /// Everything.
    Operator,
}

/// An admin principal that is accepted.
#[derive(Debug, Clone)]
pub struct AdminEntry {
    /// Its name, as decisions are recorded.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// SHA-256 of its token.
    pub hash: TokenHash,
    /// When the token ends; `None` is never.
    pub expires: Option<SystemTime>,
}

/// Someone who proved to be an admin principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    // INVARIANT: made from an accepted credential alone.
    name: String,
    role: Role,
    lease: Lease,
    hash: TokenHash,
}

/// Why someone is no admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminFailure {
    /// The credential is not accepted.
    Unauthorized(IdentityError),
    /// It is not accepted, like too many before it.
    Wait(Duration),
}

/// The admin principals that are accepted at this moment.
#[derive(Debug)]
pub struct Admins {
    entries: RwLock<Vec<(AdminEntry, Lease)>>,
    failures: Mutex<Failures>,
}

#[derive(Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Role {
    /// The word in configuration and records.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Harness { .. } => "harness",
            Self::Operator => "operator",
        }
    }
}

impl Role {
    fn decides(&self) -> bool {
        match self {
            Self::Approver | Self::Operator | Self::Harness { also_approver: true, .. } => true,
            Self::Viewer | Self::Harness { also_approver: false, .. } => false,
        }
    }
}

impl AdminEntry {
    fn is_over(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Admin {
    /// The name, as decisions are recorded.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it may do.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// How long its credential counts.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// SHA-256 of its token: names the credential where the token must not be.
    #[must_use]
    pub fn credential(&self) -> &TokenHash {
        &self.hash
    }

    /// True if it may decide cards.
    #[must_use]
    pub fn may_decide(&self) -> bool {
        self.role.decides()
    }

    /// True if it may see what belongs to `agent`.
    #[must_use]
    pub fn may_see(&self, agent: &AgentName) -> bool {
        match &self.role {
            Role::Viewer | Role::Approver | Role::Operator => true,
            Role::Harness { agents, .. } => agents.contains(agent),
        }
    }

    /// Of the agents that a list is asked for, none meaning all, those that it may see; `None` if
    /// there is nothing to see. What others have is left out where a list is made, so that no
    /// page tells of it.
    #[must_use]
    pub fn sees_of(&self, asked: Vec<AgentName>) -> Option<Vec<AgentName>> {
        let Role::Harness { agents, .. } = &self.role else { return Some(asked) };
        let seen = match asked.is_empty() {
            true => agents.clone(),
            false => asked.into_iter().filter(|agent| agents.contains(agent)).collect(),
        };
        (!seen.is_empty()).then_some(seen)
    }

    /// True if it may see what belongs to no agent in particular.
    #[must_use]
    pub fn may_see_all(&self) -> bool {
        match self.role {
            Role::Viewer | Role::Approver | Role::Operator => true,
            Role::Harness { .. } => false,
        }
    }

    /// True if it may start and stop runs of `agent`.
    #[must_use]
    pub fn may_run(&self, agent: &AgentName) -> bool {
        match &self.role {
            Role::Operator => true,
            Role::Harness { agents, .. } => agents.contains(agent),
            Role::Viewer | Role::Approver => false,
        }
    }

    /// True if it may make and revoke tokens.
    #[must_use]
    pub fn may_mint(&self) -> bool {
        match self.role {
            Role::Operator => true,
            Role::Viewer | Role::Approver | Role::Harness { .. } => false,
        }
    }
}

impl Admins {
    /// The configured principals and the operator of `state_dir`, whose token is made at the
    /// first start.
    ///
    /// # Errors
    /// [`PrivateFileError`] if the operator's token cannot be made, read or trusted.
    pub fn open(state_dir: &Path, configured: Vec<AdminEntry>) -> Result<Self, PrivateFileError> {
        let path = state_dir.join(OPERATOR_TOKEN_FILE);
        let token = match read_operator_token(state_dir) {
            Err(PrivateFileError::Missing(_)) => {
                let token = Token::generate(Kind::Admin)
                    .map_err(|source| PrivateFileError::Io { path: path.clone(), source })?;
                private_file::write(&path, &format!("{}\n", token.reveal()))?;
                token
            }
            read => read?,
        };
        let operator = AdminEntry {
            name: "operator".to_owned(),
            role: Role::Operator,
            hash: token.hash(),
            expires: None,
        };
        let entries = configured.into_iter().chain([operator]);
        let entries = entries.map(|entry| (entry, Lease::new())).collect();
        let failures = Mutex::new(Failures { since: Instant::now(), count: 0 });
        Ok(Self { entries: RwLock::new(entries), failures })
    }

    /// Who sent the value of an `Authorization` header.
    ///
    /// A right credential is always accepted: guessing 256 bits needs no lock, and a lock would
    /// let anyone on the machine keep the operator out. The limit bounds what failures cost.
    ///
    /// # Errors
    /// [`AdminFailure`], of which the caller learns no more than to wait.
    pub fn identify(&self, header: Option<&str>) -> Result<Admin, AdminFailure> {
        match bearer(header, &[Kind::Admin]) {
            Ok(token) => self.of_credential(&token.hash()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Who has the token of that hash, by the same rules.
    ///
    /// # Errors
    /// [`AdminFailure`], of which the caller learns no more than to wait.
    pub fn of_credential(&self, hash: &TokenHash) -> Result<Admin, AdminFailure> {
        self.find(hash).map_err(|error| self.failed(error))
    }

    /// The same, without counting a failure: for what the gateway itself made of a credential.
    ///
    /// # Errors
    /// [`IdentityError`]
    pub fn find(&self, hash: &TokenHash) -> Result<Admin, IdentityError> {
        let entries = self.entries.read();
        // Every entry is compared, so that the time does not tell which one was near.
        let found = entries.iter().fold(None, |found, (entry, lease)| {
            if entry.hash.matches(hash) { Some((entry, lease)) } else { found }
        });
        let (entry, lease) = found.ok_or(IdentityError::Unknown)?;
        if lease.is_over() || entry.is_over(SystemTime::now()) {
            return Err(IdentityError::Expired);
        }
        let (name, role, lease) = (entry.name.clone(), entry.role.clone(), lease.clone());
        Ok(Admin { name, role, lease, hash: *hash })
    }

    /// True if a principal of that name may decide cards of `agent` at this moment.
    #[must_use]
    pub fn decides(&self, name: &str, agent: &AgentName) -> bool {
        let now = SystemTime::now();
        self.entries.read().iter().any(|(entry, lease)| {
            let sees = match &entry.role {
                Role::Harness { agents, .. } => agents.contains(agent),
                Role::Viewer | Role::Approver | Role::Operator => true,
            };
            let live = !lease.is_over() && !entry.is_over(now);
            entry.name == name && live && sees && entry.role.decides()
        })
    }

    /// Accepts one more principal.
    pub fn add(&self, entry: AdminEntry) {
        self.entries.write().push((entry, Lease::new()));
    }

    /// No longer accepts a token, and ends what is open on it. False if it was not accepted.
    pub fn remove(&self, hash: &TokenHash) -> bool {
        let mut entries = self.entries.write();
        let Some(at) = entries.iter().position(|(entry, _)| entry.hash.matches(hash)) else {
            return false;
        };
        entries.swap_remove(at).1.end();
        true
    }

    /// Ends a token at `expires` if it would live longer.
    pub fn limit(&self, hash: &TokenHash, expires: SystemTime) {
        let mut entries = self.entries.write();
        for (entry, _) in entries.iter_mut().filter(|(entry, _)| entry.hash.matches(hash)) {
            entry.expires = Some(entry.expires.map_or(expires, |known| known.min(expires)));
        }
    }

    /// Ends what is open on tokens that ended by `now`.
    pub fn expire(&self, now: SystemTime) {
        let entries = self.entries.read();
        for (_, lease) in entries.iter().filter(|(entry, _)| entry.is_over(now)) {
            lease.end();
        }
    }

    /// True if a principal that is accepted has that name.
    pub fn has(&self, name: &str) -> bool {
        let now = SystemTime::now();
        self.entries.read().iter().any(|(entry, _)| entry.name == name && !entry.is_over(now))
    }

    /// Counts a credential that was not accepted.
    pub(crate) fn failed(&self, error: IdentityError) -> AdminFailure {
        // Who sends nothing guesses nothing.
        if error == IdentityError::Missing {
            return AdminFailure::Unauthorized(error);
        }
        let mut failures = self.failures.lock();
        let age = failures.since.elapsed();
        if age >= MINUTE {
            *failures = Failures { since: Instant::now(), count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        if failures.count > FAILURES_PER_MINUTE_MAX {
            return AdminFailure::Wait(MINUTE.saturating_sub(age));
        }
        AdminFailure::Unauthorized(error)
    }
}

/// The operator's token of `state_dir`, for commands on the same machine.
///
/// # Errors
/// [`PrivateFileError`] if it is not there or others could have read it.
pub fn read_operator_token(state_dir: &Path) -> Result<Token, PrivateFileError> {
    let path = state_dir.join(OPERATOR_TOKEN_FILE);
    let text = private_file::read(&path)?;
    Token::parse(text.trim_end(), Kind::Admin).ok_or(PrivateFileError::Kind(path))
}
