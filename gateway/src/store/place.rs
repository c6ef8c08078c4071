//! Where the store is, and how messages call that place: never with a user or a password.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where the store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// A SQLite file; its folder must exist.
    Sqlite(PathBuf),
    /// A PostgreSQL database, by its URL, which is a secret.
    Postgres(String),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.spot(), f)
    }
}

impl Place {
    /// What messages call it.
    #[must_use]
    pub fn spot(&self) -> Spot {
        match self {
            Self::Sqlite(file) => Spot::file(file),
            Self::Postgres(url) => Spot::database(url),
        }
    }
}

/// What messages call a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// A file.
    File(String),
    /// A database.
    Database {
        /// The host of its server.
        host: String,
        /// The port of its server.
        port: u16,
        /// Its name.
        name: String,
    },
    /// A database whose URL cannot be read.
    Unread,
}

impl Spot {
    pub(super) fn file(file: &Path) -> Self {
        Self::File(file.display().to_string())
    }

    fn database(url: &str) -> Self {
        let Ok(options) = url.parse::<sqlx::postgres::PgConnectOptions>() else {
            return Self::Unread;
        };
        let name = options.get_database().unwrap_or_else(|| options.get_username());
        Self::Database {
            host: options.get_host().to_owned(),
            port: options.get_port(),
            name: name.to_owned(),
        }
    }

    pub(super) fn remedy_unavailable(&self) -> &'static str {
        match self {
            Self::File(_) => "check that its folder exists, can be written and has free space",
            Self::Database { .. } => {
                "check that its server runs, can be reached, lets the configured user in and has \
                 free space"
            }
            Self::Unread => {
                "write it as postgres://user:password@host:port/database, with special characters \
                 in percent form"
            }
        }
    }

    pub(super) fn remedy_corrupt(&self) -> &'static str {
        match self {
            Self::File(_) => {
                "restore the file from a backup, or move it away to start without parked calls"
            }
            Self::Database { .. } | Self::Unread => {
                "restore the database from a backup, or name an empty one to start without parked \
                 calls"
            }
        }
    }

    pub(super) fn remedy_in_use(&self) -> &'static str {
        match self {
            Self::File(_) => "another state folder",
            Self::Database { .. } | Self::Unread => "another database",
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "the state file `{file}`"),
            Self::Database { host, port, name } => {
                write!(f, "the database `{name}` at `{host}:{port}`")
            }
            Self::Unread => f.write_str("the configured database"),
        }
    }
}
