//! Callers from this machine without a token, if the operator lets them in.
//!
//! Such a caller is the agent that its URL names, in no run that anyone started, and decides
//! nothing. A caller behind a proxy comes from this machine as well, so one that was forwarded
//! is not let in.

use super::token::base32;
use super::{Lease, Principal, Seat};
use http::HeaderMap;
use portcullis_policy::canonical::Digest;
use portcullis_policy::name::AgentName;
use std::net::IpAddr;

/// Headers that say that somebody else is behind the caller.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Lets callers from this machine in.
#[derive(Debug, Default)]
pub struct Loopback {
    lease: Lease,
}

impl Loopback {
    /// The caller at `peer` as `agent`, if it is from this machine and nobody is behind it.
    #[must_use]
    pub fn identify(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        agent: &AgentName,
    ) -> Option<Principal> {
        let forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
        if !peer.to_canonical().is_loopback() || forwarded {
            return None;
        }
        let name = agent.as_str().to_ascii_lowercase();
        Some(Principal {
            agent: agent.clone(),
            credential: Digest::of_parts(&[b"loopback", name.as_bytes()]).short(12),
            run: loopback_run(agent),
            seat: Seat::Loopback,
            lease: self.lease.clone(),
        })
    }
}

/// The id of the run of the callers from this machine that are `agent`.
#[must_use]
pub fn loopback_run(agent: &AgentName) -> String {
    let name = agent.as_str().to_ascii_lowercase();
    let run = Digest::of_parts(&[b"loopback run", name.as_bytes()]).short(32);
    format!("run_{}", base32(u128::from_str_radix(&run, 16).unwrap_or_default()))
}
