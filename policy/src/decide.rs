//! Decide.
