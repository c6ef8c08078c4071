//! The laws on PostgreSQL.

use crate::store::ground::Kind;

const KIND: Kind = Kind::Postgres;

#[expect(clippy::duplicate_mod, reason = "one suite, two engines")]
#[path = "suite.rs"]
pub(super) mod suite;
