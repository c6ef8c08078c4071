//! What the end-to-end tests are made of: a gateway in a temporary folder, agents that speak
//! raw bytes, an upstream that records every byte it receives, and a fixture server with
//! everything the public conformance suite asks for.

#![expect(clippy::panic, reason = "what a test needs and cannot have fails the test")]

pub mod agent;
pub mod approver;
pub mod arguments;
pub mod corpus;
pub mod driver;
pub mod fixture;
pub mod house;
pub mod postgres;
pub mod strace;
pub mod upstream;
