//! Placeholder.

pub mod parked;
pub mod store;
