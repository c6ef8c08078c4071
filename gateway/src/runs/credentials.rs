//! Tokens that come and go while the gateway runs: made for an operator, replaced, revoked,
//! expired, or changed in the operator's file.
//!
//! Whatever ends a credential ends what is open on it within a second: its streams, its calls, and
//! its run with everything below, unless another credential has the same run. Cards belong to
//! their run.

use super::token_file::Followed;
use super::{CLOSING, Runs, start};
use crate::audit::{AuditError, TokenChange};
use crate::identity::{
    AdminEntry, Admins, Kind, Principal, Role, Seat, Source, Token, TokenEntry, TokenHash,
    random_id, unnamed_run,
};
use crate::parked::StopError;
use crate::store::{Holder, StoreFault, TokenRow};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

/// Most live tokens that the gateway made.
pub const MINTED_MAX: usize = 10_000;

/// The credentials of agents and admins. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub(super) runs: Runs,
    pub(super) admins: Arc<Admins>,
    // `None`: tokens were made at the first start, and there is no file to follow.
    pub(super) file: Option<Followed>,
    // Making, replacing and revoking are one at a time: each looks before it writes.
    lane: Arc<Mutex<()>>,
}

/// A token to make.
#[derive(Debug)]
pub struct NewToken {
    /// Whose it is.
    pub holder: Holder,
    /// When it ends; `None` is never.
    pub expires: Option<SystemTime>,
    /// What it is for, in the operator's words.
    pub note: String,
    /// A token that it replaces, and how long the old one still counts.
    pub replaces: Option<(String, Duration)>,
    /// Who makes it, for records.
    pub by: String,
}

/// Why a token was not made or revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// No token has that id.
    #[error("there is no token `{0}`; `portcullis token list` shows them")]
    Unknown(String),
    /// The old token belongs to somebody else.
    #[error("token `{0}` belongs to another holder, so it cannot be replaced by this one")]
    Foreign(String),
    /// The old token does not count any more.
    #[error("token `{0}` has ended already; make a new one without `replaces`")]
    Over(String),
    /// An admin principal of that name comes from a file.
    #[error("an admin principal `{0}` exists already; choose another name")]
    Name(String),
    /// Too many tokens.
    #[error("the gateway has {MINTED_MAX} live tokens, the most there may be; revoke some")]
    Full,
    /// No such role.
    #[error("`{0}` is none of `viewer`, `approver`, `harness`, `harness+approver`, `operator`")]
    Role(String),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The token does not count any more, and its run could not be ended yet; that is tried again.
    #[error(
        "the token does not count any more, but its run could not be ended yet: {0}; ask again"
    )]
    Stop(#[from] StopError),
    /// It cannot be put on record.
    #[error("it cannot be put on record, so nothing was changed: {0}")]
    Audit(#[from] AuditError),
    /// No random bits.
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] std::io::Error),
}

impl Credentials {
    /// Takes up the tokens of the store. `file` is the operator's token file, if there is
    /// one, and `loopback` are the runs of callers that need no token.
    ///
    /// # Errors
    /// [`StoreFault`] if the store cannot be read or written.
    pub(crate) async fn open(
        runs: Runs,
        admins: Arc<Admins>,
        file: Option<Followed>,
        loopback: Vec<String>,
    ) -> Result<Self, StoreFault> {
        let credentials = Self { runs, admins, file, lane: Arc::default() };
        let now_ms = credentials.runs.inner.clock.wall_ms();
        for row in credentials.runs.inner.store.tokens().await? {
            let over = row.expires_ms.is_some_and(|expires| expires <= now_ms);
            if row.revoked_ms.is_none() && !over {
                credentials.accept(&row);
            }
        }
        // An unnamed run lives as long as a credential has it: what ended with its credential is
        // back with it, and what lost it while no gateway was there ends now.
        let agents = credentials.runs.inner.tokens.agents(SystemTime::now());
        let mut runs: Vec<String> = agents.into_iter().map(|principal| principal.run).collect();
        runs.extend(loopback);
        credentials.runs.inner.store.revive_runs(&runs).await?;
        for run in credentials.runs.inner.table.unnamed() {
            if !runs.contains(&run) {
                credentials.runs.end_soon(run, "its credential ended", "the gateway");
            }
        }
        Ok(credentials)
    }

    /// Who may use the admin listener.
    #[must_use]
    pub fn admins(&self) -> &Admins {
        &self.admins
    }

    /// Makes a token. It is shown once; what is kept is its hash.
    ///
    /// # Errors
    /// [`TokenError`]; then nothing was made.
    pub async fn create(&self, new: NewToken) -> Result<(TokenRow, Token), TokenError> {
        let inner = &self.runs.inner;
        let _lane = self.lane.lock().await;
        let rows = inner.store.tokens().await?;
        let now_ms = inner.clock.wall_ms();
        let live = |row: &&TokenRow| {
            row.revoked_ms.is_none() && row.expires_ms.is_none_or(|expires| expires > now_ms)
        };
        if rows.iter().filter(live).count() >= MINTED_MAX {
            return Err(TokenError::Full);
        }
        let old = match &new.replaces {
            None => None,
            Some((id, overlap)) => Some((self.replaced(&rows, id, &new.holder)?, *overlap)),
        };
        let kind = match &new.holder {
            Holder::Agent(_) => Kind::Agent,
            Holder::Admin { name, role, .. } => {
                if role_of(&new.holder).is_none() {
                    return Err(TokenError::Role(role.clone()));
                }
                if old.is_none() && self.admins.has(name) {
                    return Err(TokenError::Name(name.clone()));
                }
                Kind::Admin
            }
        };
        let token = Token::generate(kind)?;
        let run = old.as_ref().and_then(|(old, _)| {
            let Holder::Agent(agent) = &old.holder else { return None };
            let own = || unnamed_run(agent, &TokenHash::from(old.hash));
            Some(old.run.clone().unwrap_or_else(own))
        });
        let row = TokenRow {
            id: random_id("tok_")?,
            holder: new.holder,
            hash: *token.hash().as_bytes(),
            run,
            note: new.note,
            created_ms: inner.clock.wall_ms(),
            created_by: new.by,
            expires_ms: new.expires.map(ms),
            revoked_ms: None,
        };
        self.record(Noted::of(&row), "created", &row.created_by).await?;
        let limits = old.map(|(old, overlap)| {
            let until_ms = inner.clock.wall_ms().saturating_add(start::ms(overlap));
            (old, until_ms)
        });
        let limit = limits.as_ref().map(|(old, until_ms)| (old.id.as_str(), *until_ms));
        if let Err(fault) = inner.store.insert_token(&row, limit).await {
            self.record(Noted::of(&row), "not created after all", &row.created_by).await?;
            return Err(fault.into());
        }
        self.accept(&row);
        if let Some((old, until_ms)) = limits {
            self.limit(&old, until_ms);
        }
        Ok((row, token))
    }

    fn replaced(
        &self,
        rows: &[TokenRow],
        id: &str,
        holder: &Holder,
    ) -> Result<TokenRow, TokenError> {
        let old = rows.iter().find(|row| row.id == id);
        let old = old.ok_or_else(|| TokenError::Unknown(id.to_owned()))?;
        let now_ms = self.runs.inner.clock.wall_ms();
        if !same_holder(&old.holder, holder) {
            return Err(TokenError::Foreign(id.to_owned()));
        }
        if old.revoked_ms.is_some() || old.expires_ms.is_some_and(|expires| expires <= now_ms) {
            return Err(TokenError::Over(id.to_owned()));
        }
        Ok(old.clone())
    }

    /// The tokens that the gateway made, the oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(&self) -> Result<Vec<TokenRow>, StoreFault> {
        self.runs.inner.store.tokens().await
    }

    /// Revokes a token; when it returns, nothing is open on it any more. Goes on to its end even
    /// if its caller does not wait, and may be asked for again.
    ///
    /// # Errors
    /// [`TokenError`]; then it may still count, or something may still be open on it.
    pub async fn revoke(&self, id: &str, by: &str) -> Result<TokenRow, TokenError> {
        let (credentials, id, by) = (self.clone(), id.to_owned(), by.to_owned());
        let revoking = tokio::spawn(async move { credentials.revoked(&id, &by).await });
        revoking.await.unwrap_or(Err(TokenError::Stop(StopError::Stopping)))
    }

    async fn revoked(&self, id: &str, by: &str) -> Result<TokenRow, TokenError> {
        let inner = &self.runs.inner;
        let _lane = self.lane.lock().await;
        let rows = inner.store.tokens().await?;
        let row = rows.into_iter().find(|row| row.id == id);
        let mut row = row.ok_or_else(|| TokenError::Unknown(id.to_owned()))?;
        let now_ms = inner.clock.wall_ms();
        if row.revoked_ms.is_none() {
            self.record(Noted::of(&row), "revoked", by).await?;
            inner.store.revoke_token(id, now_ms).await?;
            row.revoked_ms = Some(now_ms);
        }
        let hash = TokenHash::from(row.hash);
        match row.holder {
            Holder::Agent(_) => {
                // It stays in the table until all is closed, so that a repeat closes the rest.
                if let Some(principal) = inner.tokens.of(&hash) {
                    self.close(&principal, "its credential was revoked", by).await?;
                    inner.tokens.remove(&hash);
                }
            }
            Holder::Admin { .. } => {
                self.admins.remove(&hash);
            }
        }
        Ok(row)
    }

    // Ends what is open on a credential that does not count any more. Its run goes too, unless
    // another credential has the same one, as after a replacement.
    async fn close(&self, principal: &Principal, why: &str, by: &str) -> Result<(), StopError> {
        principal.lease.close();
        let shares = |other: &Principal| other.run == principal.run;
        let last = !self.runs.inner.tokens.agents(SystemTime::now()).iter().any(shares);
        let ended = if principal.seat == Seat::Unnamed && last {
            self.runs.end(&principal.run, why, by).await.map(drop)
        } else {
            Ok(())
        };
        // Whatever the store did: what is open is dropped.
        principal.lease.end();
        if !principal.lease.vacant(CLOSING).await {
            tracing::warn!(
                credential = principal.credential,
                "something is still open on a credential that has ended"
            );
        }
        ended
    }

    // Without waiting: one credential that is slow to close keeps no other one open. The run is
    // ended by the runs' own retries if the store does not take its end now.
    pub(super) fn close_soon(&self, principal: Principal, why: &'static str, by: &'static str) {
        principal.lease.close();
        let credentials = self.clone();
        tokio::spawn(async move {
            let noted = Noted::credential(&principal);
            if let Err(error) = credentials.record(noted, why, by).await {
                tracing::error!(%error, "the end of a credential could not be recorded");
            }
            if let Err(error) = credentials.close(&principal, why, by).await {
                tracing::error!(%error, run = principal.run, "the run of a credential could not be ended; it is tried again");
            }
        });
    }

    fn accept(&self, row: &TokenRow) {
        let hash = TokenHash::from(row.hash);
        let expires = row.expires_ms.and_then(time);
        match &row.holder {
            Holder::Agent(agent) => self.runs.inner.tokens.add(TokenEntry {
                agent: agent.clone(),
                hash,
                expires,
                source: Source::Minted { id: row.id.clone(), run: row.run.clone() },
            }),
            Holder::Admin { name, .. } => match role_of(&row.holder) {
                Some(role) => {
                    self.admins.add(AdminEntry { name: name.clone(), role, hash, expires });
                }
                None => tracing::error!(token = row.id, "a token has a role that is not known"),
            },
        }
    }

    fn limit(&self, row: &TokenRow, until_ms: u64) {
        let Some(until) = time(until_ms) else { return };
        let hash = TokenHash::from(row.hash);
        match row.holder {
            Holder::Agent(_) => self.runs.inner.tokens.limit(&hash, until),
            Holder::Admin { .. } => self.admins.limit(&hash, until),
        }
    }

    pub(super) async fn record(
        &self,
        noted: Noted,
        change: &'static str,
        by: &str,
    ) -> Result<(), AuditError> {
        let (audit, by) = (Arc::clone(&self.runs.inner.audit), by.to_owned());
        let written = tokio::task::spawn_blocking(move || {
            let Noted { token, holder, role } = &noted;
            audit.token(&TokenChange { token, change, holder, role, by: &by })
        });
        written.await.map_err(|error| AuditError::Write(std::io::Error::other(error)))?
    }
}

/// A credential as records name it.
pub(super) struct Noted {
    token: String,
    holder: String,
    role: String,
}

impl Noted {
    fn of(row: &TokenRow) -> Self {
        let (holder, role) = match &row.holder {
            Holder::Agent(agent) => (agent.to_string(), "agent".to_owned()),
            Holder::Admin { name, role, .. } => (name.clone(), role.clone()),
        };
        Self { token: row.id.clone(), holder, role }
    }

    pub(super) fn credential(principal: &Principal) -> Self {
        Self {
            token: principal.credential.clone(),
            holder: principal.agent.to_string(),
            role: "agent".to_owned(),
        }
    }
}

fn same_holder(a: &Holder, b: &Holder) -> bool {
    match (a, b) {
        (Holder::Agent(a), Holder::Agent(b)) => a == b,
        (Holder::Admin { name: a, .. }, Holder::Admin { name: b, .. }) => a == b,
        (Holder::Agent(_), Holder::Admin { .. }) | (Holder::Admin { .. }, Holder::Agent(_)) => {
            false
        }
    }
}

fn role_of(holder: &Holder) -> Option<Role> {
    let Holder::Admin { role, agents, .. } = holder else { return None };
    let harness = |also_approver| Role::Harness { agents: agents.clone(), also_approver };
    match role.as_str() {
        "viewer" => Some(Role::Viewer),
        "approver" => Some(Role::Approver),
        "harness" => Some(harness(false)),
        "harness+approver" => Some(harness(true)),
        "operator" => Some(Role::Operator),
        _ => None,
    }
}

pub(super) fn time(ms: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

fn ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    start::ms(since)
}
