//! Placeholder.

pub mod fixture;
