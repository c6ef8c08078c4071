//! What happened, on record: one line of JSON per event in an append-only file.
//!
//! A sink with two doors. The intent is on record before anything leaves the gateway, and every
//! branch of a request returns an outcome. Decisions are on disk before they have effect. When a
//! record cannot be written the caller gets the error and refuses the call: nothing happens
//! that is not on record.

mod line;
mod records;
pub mod time;
mod trail;

use parking_lot::Mutex;
use portcullis_policy::ledger::{Card, Grant};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use line::Line;
pub use line::{TEXT_BYTES_MAX, is_hidden};
pub use records::{Asked, Choice, Decided, Intent, Outcome, RunChange, TokenChange, Verdict};
pub use trail::FILE_BYTES_MAX;
use trail::Trail;

/// The JSON-RPC error code of a call refused because its record could not be written.
pub const AUDIT_FAILED_CODE: i32 = 4602;

/// When a record counts as written. Decisions are always on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the operating system has it: survives the end of the gateway.
    Os,
    /// When the disk has it: survives the end of the machine.
    Disk,
}

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The folder or a file in it cannot be used.
    #[error("the audit file `{}` cannot be opened: {source}", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another gateway writes there.
    #[error("the audit file `{}` is in use by another gateway", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The last file does not end in a record, so the sequence cannot go on.
    #[error(
        "the last line of the audit file `{}` is not a record of this gateway; \
         move the file away to begin a new trail",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The record could not be written.
    #[error("the audit record could not be written: {0}")]
    Write(io::Error),
}

/// A line that a crash left unfinished. It is no record and its number is used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file that ends in it.
    pub file: PathBuf,
    /// Its length.
    pub bytes: u64,
}

/// The audit trail of this gateway.
#[derive(Debug)]
pub struct Audit {
    trail: Mutex<Trail>,
    durability: Durability,
    torn: Option<Torn>,
}

impl Audit {
    /// Opens the trail in `dir`, made if it is not there, and puts the start on record.
    ///
    /// # Errors
    /// [`AuditError`] if the trail cannot be continued or written.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, AuditError> {
        let (trail, torn) = Trail::open(dir)?;
        let audit = Self { trail: Mutex::new(trail), durability, torn };
        audit.record("start", Durability::Disk, |line| {
            line.text("version", env!("CARGO_PKG_VERSION"));
            if let Some(torn) = &audit.torn {
                line.text("torn_file", &torn.file.to_string_lossy());
                line.number("torn_bytes", torn.bytes);
            }
        })?;
        Ok(audit)
    }

    /// The unfinished line that the last end of the gateway left, for the operator's log.
    #[must_use]
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// Puts on record what is about to be sent. With [`Durability::Disk`] this blocks.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on record; then nothing may be sent.
    pub fn intent(&self, intent: &Intent<'_>) -> Result<(), AuditError> {
        self.record("intent", self.durability, |line| {
            write_asked(line, &intent.asked);
            line.text("decision", Verdict::Run.as_str());
        })
    }

    /// Puts on record how a request ended. With [`Durability::Disk`] this blocks.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on record; then the result may not be handed over as a success.
    pub fn outcome(&self, outcome: &Outcome<'_>) -> Result<(), AuditError> {
        self.record("outcome", self.durability, |line| {
            write_asked(line, &outcome.asked);
            line.text("decision", outcome.decision.as_str());
            line.maybe("reason", outcome.reason);
            line.text("outcome", outcome.outcome);
            let micros = u64::try_from(outcome.duration.as_micros()).unwrap_or(u64::MAX);
            line.number("duration_us", micros);
        })
    }

    /// Puts a decision on disk. Blocks until the disk has it.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on disk; then the decision may not take effect.
    pub fn decision(&self, decided: &Decided<'_>) -> Result<(), AuditError> {
        self.record("decision", Durability::Disk, |line| write_decided(line, decided))
    }

    /// Puts on record that a recorded decision had no effect, and why. Blocks like the decision.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on disk.
    pub fn decision_void(&self, decided: &Decided<'_>, why: &str) -> Result<(), AuditError> {
        self.record("decision_void", Durability::Disk, |line| {
            write_decided(line, decided);
            line.text("why", why);
        })
    }

    /// Puts the beginning or end of a run on disk. Blocks until the disk has it.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on disk; then the run may not begin.
    pub fn run(&self, change: &RunChange<'_>) -> Result<(), AuditError> {
        match change {
            RunChange::Started { run, agent, parent, narrow, by } => {
                self.record("run_started", Durability::Disk, |line| {
                    line.text("agent", agent.as_str());
                    line.text("run", run);
                    line.maybe("parent", *parent);
                    line.maybe("narrow", *narrow);
                    line.text("by", by);
                })
            }
            RunChange::Ended { run, agent, why, by } => {
                self.record("run_ended", Durability::Disk, |line| {
                    line.text("agent", agent.as_str());
                    line.text("run", run);
                    line.text("why", why);
                    line.text("by", by);
                })
            }
        }
    }

    /// Puts the end of a standing approval on disk. Blocks until the disk has it.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on disk; then it may not end by this.
    pub fn grant_ended(&self, grant: &Grant, by: &str) -> Result<(), AuditError> {
        self.record("grant_ended", Durability::Disk, |line| {
            line.text("grant", &grant.id);
            line.text("card", &grant.card);
            line.text("agent", grant.agent.as_str());
            line.text("server", grant.server.as_str());
            line.text("tool", grant.tool.as_str());
            line.text("by", by);
        })
    }

    /// Puts on disk that somebody is shown the secret arguments of a card. Blocks until the disk
    /// has it.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on disk; then they may not be shown.
    pub fn revealed(&self, card: &Card, by: &str) -> Result<(), AuditError> {
        self.record("secrets_shown", Durability::Disk, |line| {
            let asked = card.asked();
            line.text("agent", asked.agent.as_str());
            line.text("run", &asked.run);
            line.text("server", asked.server.as_str());
            line.text("tool", asked.tool.as_str());
            line.text("card", card.id());
            line.text("by", by);
        })
    }

    /// Puts the coming or going of a token on disk. Blocks until the disk has it.
    ///
    /// # Errors
    /// [`AuditError`] if it is not on disk; then the change may not take effect.
    pub fn token(&self, change: &TokenChange<'_>) -> Result<(), AuditError> {
        self.record("token", Durability::Disk, |line| {
            line.text("token", change.token);
            line.text("change", change.change);
            line.text("holder", change.holder);
            line.text("role", change.role);
            line.text("by", change.by);
        })
    }

    fn record<F>(&self, kind: &'static str, until: Durability, fill: F) -> Result<(), AuditError>
    where
        F: FnOnce(&mut Line),
    {
        let file: Arc<File> = self.trail.lock().append(kind, fill)?;
        match until {
            Durability::Os => Ok(()),
            // Outside the lock, so that other records are written while the disk works.
            Durability::Disk => file.sync_data().map_err(AuditError::Write),
        }
    }
}

fn write_asked(line: &mut Line, asked: &Asked<'_>) {
    line.number("request", asked.request);
    line.text("agent", asked.agent.as_str());
    line.text("run", asked.run);
    line.text("method", asked.method);
    line.maybe("asked", asked.name);
    line.maybe("server", asked.server);
    line.maybe("tool", asked.tool);
    line.number("generation", asked.generation);
    line.maybe("arguments", asked.arguments.map(|digest| digest.to_string()).as_deref());
    line.maybe("card", asked.card);
}

fn write_decided(line: &mut Line, decided: &Decided<'_>) {
    line.text("agent", decided.agent.as_str());
    line.text("run", decided.run);
    line.text("server", decided.server.as_str());
    line.text("tool", decided.tool);
    line.text("arguments", &decided.arguments.to_string());
    line.text("card", decided.card);
    line.text("decision", decided.choice.as_str());
    line.maybe("reason", decided.reason);
    line.maybe("edited", decided.edited.map(|digest| digest.to_string()).as_deref());
    line.maybe("standing", decided.standing);
    line.maybe("grant", decided.grant);
    line.text("by", decided.by);
}

#[cfg(test)]
mod tests;
