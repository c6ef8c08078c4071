//! Placeholder.

pub mod child;
pub mod upstream;
