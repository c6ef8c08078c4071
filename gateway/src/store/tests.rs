//! The laws of the store on each engine, and what each engine promises alone.

mod database;
mod file;
mod on_postgres;
mod on_sqlite;
mod outside;
mod texts;
