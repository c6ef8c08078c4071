//! Waiting in legs: a modern client whose timer nothing resets is sent away with a sealed state
//! and comes back at once with a fresh timer (MCP 2026-07-28, multi round-trip requests).
//!
//! Clients give up after ten rounds, and at once if the same state comes twice, so a state
//! carries the number of its leg and the last leg ends with an honest result.

use crate::asked::Asked;
use crate::seal::{Bound, Purpose};
use crate::shared::Shared;
use portcullis_policy::canonical::Digest;

/// Most times that a caller is sent away: the answer to the tenth request of a call is final.
const LEGS_MAX: u8 = 9;
/// How long a caller may take to come back, in milliseconds: a person may be busy meanwhile.
const LIFE_MS: u64 = 24 * 60 * 60 * 1_000;

/// What a state is answered with that is not this caller's, or not of this call.
pub(super) const FOREIGN: &str = "`requestState` is not one that this call was answered with; \
     make the call without it";

/// How often a caller was sent away before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leg(u8);

impl Leg {
    /// The call itself.
    pub(super) const FIRST: Self = Self(0);
    /// A call that is answered for good.
    pub(super) const LAST: Self = Self(LEGS_MAX);

    /// The leg after this one, if there is one.
    pub(super) fn next(self) -> Option<Self> {
        (self.0 < LEGS_MAX).then_some(Self(self.0 + 1))
    }
}

/// What a state is bound to: the caller, and the call at its endpoint with its arguments.
pub(super) struct Binding {
    principal: String,
    target: String,
}

impl Binding {
    /// Of the call of `name` with arguments of that digest.
    pub(super) fn new(asked: &Asked, name: &str, arguments: Digest) -> Self {
        let caller = asked.caller();
        let server = caller.server.as_ref().map_or("", |server| server.as_str());
        Self {
            principal: format!("{}/{}", caller.agent.as_str().to_ascii_lowercase(), caller.run),
            // A name means another tool at another endpoint.
            target: format!("{}/{name}/{}", server.to_ascii_lowercase(), arguments.hex()),
        }
    }

    fn bound(&self) -> Bound<'_> {
        Bound { principal: &self.principal, target: &self.target }
    }

    /// The state that brings the caller back to card `id`; `None` without random bits.
    pub(super) fn state(&self, shared: &Shared, id: &str, leg: Leg) -> Option<String> {
        let payload = format!("{}.{id}", leg.0);
        let expires_ms = shared.clock.wall_ms().saturating_add(LIFE_MS);
        let bound = self.bound();
        let state = shared.seal.seal(Purpose::RequestState, &bound, payload.as_bytes(), expires_ms);
        (!state.is_empty()).then_some(state)
    }

    /// The card and the leg of a state that came back.
    pub(super) fn open(&self, shared: &Shared, state: &str) -> Option<(String, Leg)> {
        let now_ms = shared.clock.wall_ms();
        let payload = shared.seal.open(Purpose::RequestState, &self.bound(), state, now_ms)?;
        let (leg, id) = std::str::from_utf8(&payload).ok()?.split_once('.')?;
        Some((id.to_owned(), Leg(leg.parse().ok()?)))
    }
}
