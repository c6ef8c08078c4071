//! Ranks the tools of one scope for a query.
