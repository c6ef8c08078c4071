//! Placeholder.

pub mod demo;
