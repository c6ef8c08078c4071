//! Why the store did not do what it was asked, told for both engines.

use super::place::Spot;
use sqlx::error::DatabaseError;
use std::fmt::Display;

/// Why the store did not do what it was asked. Nothing that failed took place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// It cannot be read or written at the moment.
    #[error("{spot} cannot be used: {cause}; {}", .spot.remedy_unavailable())]
    Unavailable {
        /// Where.
        spot: Spot,
        /// What the system says.
        cause: String,
    },
    /// What it holds makes no sense.
    #[error("{spot} is damaged: {cause}; stop the gateway and {}", .spot.remedy_corrupt())]
    Corrupt {
        /// Where.
        spot: Spot,
        /// What is wrong.
        cause: String,
    },
    /// A newer version of the gateway wrote it.
    #[error(
        "{spot} has schema {found}, and this version of the gateway knows schemas up to {known}; \
         start the version that wrote it or a newer one"
    )]
    NewerSchema {
        /// Where.
        spot: Spot,
        /// Its schema.
        found: i64,
        /// The newest known one.
        known: i64,
    },
    /// Another gateway has it open.
    #[error(
        "{spot} is in use by another gateway; stop that one, or give this one {}",
        .spot.remedy_in_use()
    )]
    InUse {
        /// Where.
        spot: Spot,
    },
}

/// A record that is not what the gateway writes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Misfit(pub(super) String);

impl From<portcullis_policy::ledger::CardFault> for Misfit {
    fn from(fault: portcullis_policy::ledger::CardFault) -> Self {
        Self(fault.to_string())
    }
}

impl From<portcullis_policy::name::NameError> for Misfit {
    fn from(error: portcullis_policy::name::NameError) -> Self {
        Self(error.to_string())
    }
}

impl StoreFault {
    pub(super) fn unavailable(spot: &Spot, cause: &dyn Display) -> Self {
        Self::Unavailable { spot: spot.clone(), cause: cause.to_string() }
    }

    pub(super) fn corrupt(spot: &Spot, cause: &dyn Display) -> Self {
        Self::Corrupt { spot: spot.clone(), cause: cause.to_string() }
    }

    pub(super) fn of(spot: &Spot, error: &sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(DatabaseError::code).unwrap_or_default();
        match spot {
            Spot::File(_) => of_sqlite(spot, &code, error),
            Spot::Database { .. } | Spot::Unread => of_postgres(spot, &code, error),
        }
    }
}

fn of_sqlite(spot: &Spot, code: &str, error: &sqlx::Error) -> StoreFault {
    // SQLITE_CORRUPT and SQLITE_NOTADB, without the extension in the upper bits.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(11 | 26) => StoreFault::corrupt(spot, error),
        Ok(_) | Err(_) => StoreFault::unavailable(spot, error),
    }
}

fn of_postgres(spot: &Spot, code: &str, error: &sqlx::Error) -> StoreFault {
    match (code, error) {
        // data_corrupted and index_corrupted.
        ("XX001" | "XX002", _) => StoreFault::corrupt(spot, error),
        // The server's own words name the user.
        (code, _) if code.starts_with("28") => {
            StoreFault::unavailable(spot, &format!("its server does not let the user in ({code})"))
        }
        // These words may quote the URL.
        (_, sqlx::Error::Configuration(_)) => {
            StoreFault::unavailable(spot, &"its URL cannot be read")
        }
        _ => StoreFault::unavailable(spot, error),
    }
}
