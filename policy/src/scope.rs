//! Scope.
