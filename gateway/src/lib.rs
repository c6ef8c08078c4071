//! Portcullis: an MCP gateway that enforces per-agent scopes.
//!
//! A listener hears a request; `mcp` reads its envelope strictly; [`identity`] names the agent
//! and its run; a snapshot of its scope ([`scopes`]) says what it may reach; the request lists,
//! searches or calls; `decide` says run, park or refuse; the intent is on record ([`audit`])
//! before a permit opens the way [`upstream`]; the outcome is audited and answered.
//!
//! The files of a request, in the order it takes: `listener`, `serve`, `door`, `handshake`,
//! `list`, `own_tools`, `call`, `run`, `park`, `permission`, `read`, `subscribe`, `reply`. Approvers come in
//! through [`admin`]; both sides meet at [`parked`] and nowhere else.

pub mod admin;
mod answer;
mod asked;
pub mod audit;
mod call;
pub mod child;
mod children;
pub mod cli;
pub mod config;
pub mod decisions;
pub mod demo;
mod door;
mod gateway;
mod handshake;
mod hold;
pub mod hosts;
pub mod identity;
mod list;
mod listener;
mod mcp;
pub mod observe;
mod own_tools;
mod park;
pub mod parked;
mod permission;
mod plain;
mod read;
mod record;
mod reply;
mod run;
mod runner;
pub mod runs;
pub mod scopes;
pub mod seal;
mod serve;
mod sessions;
mod shared;
pub mod store;
mod subscribe;
mod tasks;
pub mod telemetry;
pub mod upstream;
mod usage;
mod views;

pub use gateway::{Addresses, Gateway, StartError, read_policy};
