//! The suite on SQLite.

use crate::store::ground::Kind;

const KIND: Kind = Kind::Sqlite;

#[path = "suite.rs"]
mod suite;
