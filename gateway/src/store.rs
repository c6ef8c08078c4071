//! Where the truth about parked calls is: one SQLite file.
//!
//! A card counts when its row is committed, synced to disk; a step counts when the conditional
//! update of that row changed it. The store knows no rule of its own. It refuses a file that is
//! in use, damaged or of a newer schema, and says what to do.

mod open;
mod rows;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, CardFault, State};
use portcullis_policy::name::AgentName;
use sqlx::SqlitePool;
use sqlx::error::DatabaseError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Most cards that one list returns.
pub const LIST_ITEMS_MAX: u32 = 1_000;
/// Most rows that one pruning step removes.
pub const PRUNE_ROWS_MAX: i64 = 500;

/// The store. Cheap to clone; the file is released when the last clone goes.
#[derive(Debug, Clone)]
pub struct Store {
    file: Arc<Path>,
    // One connection, so that writers queue here and not in SQLite's busy loop.
    writer: SqlitePool,
    readers: SqlitePool,
    // INVARIANT: holds the exclusive lock beside the file, so no second gateway writes to it.
    _lock: Arc<File>,
}

/// How the store is opened.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// The file; its folder must exist.
    pub file: PathBuf,
    /// Connections that read.
    pub readers: u32,
    /// How long a statement waits for the lock of a foreign process.
    pub busy: Duration,
    /// How long a statement waits for those before it.
    pub queue: Duration,
}

impl StoreSettings {
    /// The usual settings for `file`.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            readers: 4,
            busy: Duration::from_secs(5),
            queue: Duration::from_secs(10),
        }
    }
}

/// Why the store did not do what it was asked. Nothing that failed took place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// It cannot be read or written at the moment.
    #[error(
        "the state file `{file}` cannot be used: {cause}; check that its folder exists, can be \
         written and has free space"
    )]
    Unavailable {
        /// The file.
        file: String,
        /// What the system says.
        cause: String,
    },
    /// What it holds makes no sense.
    #[error(
        "the state file `{file}` is damaged: {cause}; stop the gateway and restore the file from a \
         backup, or move it away to start without parked calls"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// What is wrong.
        cause: String,
    },
    /// A newer version of the gateway wrote it.
    #[error(
        "the state file `{file}` has schema {found}, and this version of the gateway knows schemas \
         up to {known}; start the version that wrote it or a newer one"
    )]
    NewerSchema {
        /// The file.
        file: String,
        /// Its schema.
        found: i64,
        /// The newest known one.
        known: i64,
    },
    /// Another gateway has it open.
    #[error(
        "the state file `{file}` is in use by another gateway; stop that one, or give this one \
         another state folder"
    )]
    InUse {
        /// The file.
        file: String,
    },
}

/// A step to commit: the card as it becomes, and the answer to keep with it.
#[derive(Debug, Clone)]
pub struct Change {
    /// The card; it replaces the version before its own and no other.
    pub card: Card,
    /// Kept for a caller that is not there.
    pub kept: Option<Kept>,
}

/// An answer that waits for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What `bytes` are.
    pub kind: KeptKind,
    /// The answer.
    pub bytes: Bytes,
    /// Wall time of its end.
    pub expires_ms: u64,
    /// True once a caller has it.
    pub delivered: bool,
}

/// What a kept answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptKind {
    /// A JSON-RPC `result` member.
    Result,
    /// The same, of a tool that says it failed.
    ToolError,
    /// A JSON-RPC `error` member.
    RpcError,
    /// A text of the gateway.
    Text,
}

impl KeptKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::ToolError => "tool_error",
            Self::RpcError => "rpc_error",
            Self::Text => "text",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Result, Self::ToolError, Self::RpcError, Self::Text]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// Which cards to list, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// In any of these states; empty is every state.
    pub states: Vec<State>,
    /// Of this agent.
    pub agent: Option<AgentName>,
    /// Of these runs; empty is every run.
    pub runs: Vec<String>,
    /// After this card of an earlier list.
    pub after: Option<Cursor>,
    /// At most this many; 0 is [`LIST_ITEMS_MAX`].
    pub limit: u32,
}

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Wall time of the card's call.
    pub created_ms: u64,
    /// The card.
    pub id: String,
}

/// Where one live card stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The card.
    pub id: String,
    /// Its version.
    pub version: u64,
    /// Its state.
    pub state: State,
}

/// What a beginning of an id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// Exactly this card.
    One(Box<Card>),
    /// No card.
    None,
    /// More than one card.
    Several,
}

impl Store {
    /// Adds a new card. `false` if an identical call has a live card already: then nothing
    /// changed.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn insert(&self, card: &Card) -> Result<bool, StoreFault> {
        rows::insert(self, card).await
    }

    /// Commits steps in one transaction and says of each if it counts. One that does not count
    /// was overtaken: read the card again.
    ///
    /// # Errors
    /// [`StoreFault`]; then no step counts as far as the store can tell.
    pub async fn commit(&self, changes: &[Change]) -> Result<Vec<bool>, StoreFault> {
        rows::commit(self, changes).await
    }

    /// The card of that id.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn card(&self, id: &str) -> Result<Option<Card>, StoreFault> {
        rows::card(self, id).await
    }

    /// The card whose id starts with `prefix`, with or without `apr_`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn named(&self, prefix: &str) -> Result<Named, StoreFault> {
        rows::named(self, prefix).await
    }

    /// The live card of an identical call.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn live(&self, key: Digest) -> Result<Option<Card>, StoreFault> {
        rows::live(self, key).await
    }

    /// The latest answer to an identical call that no caller has, if it still counts at
    /// `now_ms`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn undelivered(
        &self,
        key: Digest,
        now_ms: u64,
    ) -> Result<Option<(Card, Kept)>, StoreFault> {
        rows::undelivered(self, key, now_ms).await
    }

    /// The answer kept with a card.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn kept(&self, id: &str) -> Result<Option<Kept>, StoreFault> {
        rows::kept(self, id).await
    }

    /// Notes that a caller has the answer of a card.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn deliver(&self, id: &str) -> Result<(), StoreFault> {
        rows::deliver(self, id).await
    }

    /// The cards of `filter`, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Card>, StoreFault> {
        rows::list(self, filter).await
    }

    /// Every card that is not settled.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn unsettled(&self) -> Result<Vec<Card>, StoreFault> {
        rows::unsettled(self).await
    }

    /// Where every card stands that is not settled, without reading the cards.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn standing(&self) -> Result<Vec<Standing>, StoreFault> {
        rows::standing(self).await
    }

    /// Removes answers that ended before `now_ms` and settled cards of before `cards_ms`, at
    /// most [`PRUNE_ROWS_MAX`] each. Says how many rows went.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn prune(&self, now_ms: u64, cards_ms: u64) -> Result<u64, StoreFault> {
        rows::prune(self, now_ms, cards_ms).await
    }

    fn fault(&self, error: &sqlx::Error) -> StoreFault {
        fault(&self.file, error)
    }

    fn damaged(&self, error: &CardFault) -> StoreFault {
        self.corrupt(error.to_string())
    }

    fn corrupt(&self, cause: String) -> StoreFault {
        StoreFault::Corrupt { file: self.file.display().to_string(), cause }
    }
}

fn fault(file: &Path, error: &sqlx::Error) -> StoreFault {
    // SQLITE_CORRUPT and SQLITE_NOTADB, without the extension in the upper bits.
    let code = error.as_database_error().and_then(DatabaseError::code);
    let primary = code.and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff);
    let (file, cause) = (file.display().to_string(), error.to_string());
    if matches!(primary, Some(11 | 26)) {
        StoreFault::Corrupt { file, cause }
    } else {
        StoreFault::Unavailable { file, cause }
    }
}
