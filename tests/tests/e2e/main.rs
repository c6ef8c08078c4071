//! End-to-end tests: policy file in, HTTP out. One binary; a module a feature.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::excessive_nesting,
    reason = "a test that fails says so by panicking, and loops over eras around its cases"
)]

mod approvals;
mod clis;
mod conformance;
mod corpus;
mod credentials;
mod doctor;
mod document;
mod envelope;
mod faults;
mod harnesses;
mod identity;
mod interop;
mod observe;
mod own_tools;
mod page;
mod park;
mod pass_through;
mod patience;
mod process;
mod promises;
mod runs;
mod sessions;
mod terminal;
mod upstreams;
mod webhooks;
