//! What the end-to-end tests are made of: a gateway in a temporary folder, agents that speak
//! raw bytes, and an upstream that records every byte it receives.

pub mod agent;
pub mod corpus;
pub mod house;
pub mod upstream;
