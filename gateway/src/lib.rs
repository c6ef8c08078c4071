//! Placeholder.

pub mod audit;
pub mod identity;
pub mod telemetry;
