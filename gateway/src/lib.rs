//! Placeholder.

pub mod audit;
pub mod demo;
pub mod identity;
pub mod telemetry;
