//! The suite of parked calls, on each engine of the store.

mod on_postgres;
mod on_sqlite;
