//! Placeholder.

pub mod admin;
pub mod audit;
pub mod demo;
pub mod identity;
pub mod observe;
pub mod parked;
pub mod store;
pub mod telemetry;
