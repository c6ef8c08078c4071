//! End-to-end tests: policy file in, HTTP out. One binary; a module a feature.

mod clis;
mod conformance;
mod corpus;
mod envelope;
mod identity;
mod interop;
mod park;
mod pass_through;
mod upstreams;
