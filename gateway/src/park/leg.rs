//! Waiting in legs: a modern client whose timer nothing resets is sent away with a sealed state
//! and comes back at once with a fresh timer (MCP 2026-07-28, multi round-trip requests).
//!
//! Clients give up after ten rounds, and at once if the same state comes twice, so a state
//! carries the number of its leg and the last leg ends with an honest result.

use crate::asked::Asked;
use crate::mcp::envelope::Raw;
use crate::seal::{Bound, Purpose};
use crate::store::{Named, StoreFault};
use portcullis_policy::canonical::{Digest, canonical};
use portcullis_policy::json::JsonLimits;

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

/// The state that brings the caller back to card `id`; `None` without random bits.
pub(super) fn state(asked: &Asked, id: &str, name: &str, leg: Leg) -> Option<String> {
    let payload = format!("{}.{id}", leg.0);
    let (principal, target) = (principal(asked), target(asked, name));
    let bound = Bound { principal: &principal, target: &target };
    let expires_ms = asked.shared.clock.wall_ms().saturating_add(LIFE_MS);
    let state =
        asked.shared.seal.seal(Purpose::RequestState, &bound, payload.as_bytes(), expires_ms);
    (!state.is_empty()).then_some(state)
}

/// The card and the leg of a state that a call of `name` brought back.
pub(super) fn open(asked: &Asked, state: &Raw, name: &str) -> Option<(String, Leg)> {
    let (principal, target) = (principal(asked), target(asked, name));
    let bound = Bound { principal: &principal, target: &target };
    let now_ms = asked.shared.clock.wall_ms();
    let payload = asked.shared.seal.open(Purpose::RequestState, &bound, &state.text()?, now_ms)?;
    let (leg, id) = std::str::from_utf8(&payload).ok()?.split_once('.')?;
    Some((id.to_owned(), Leg(leg.parse().ok()?)))
}

/// True if card `id` is of exactly this call.
pub(super) async fn is_of(
    asked: &Asked,
    id: &str,
    name: &str,
    arguments: Option<&Raw>,
) -> Result<bool, StoreFault> {
    let Named::One(card) = asked.shared.parked.get(id).await? else { return Ok(false) };
    let arguments = arguments.map_or(&b"{}"[..], |arguments| arguments.bytes());
    let Ok(arguments) = canonical(arguments, JsonLimits::default()) else { return Ok(false) };
    let (caller, made) = (asked.caller(), card.asked());
    Ok(made.agent == caller.agent
        && made.run == caller.run
        && asked.view().tool(name).is_none_or(|tool| {
            tool.server == made.server && tool.name.as_str() == made.tool.as_str()
        })
        && made.digest == Digest::of(arguments.as_bytes()))
}

// A name means another tool at another endpoint.
fn target(asked: &Asked, name: &str) -> String {
    let server = asked.visit.server.as_ref().map_or("", |server| server.as_str());
    format!("{}/{name}", server.to_ascii_lowercase())
}

fn principal(asked: &Asked) -> String {
    let caller = asked.caller();
    format!("{}/{}", caller.agent.as_str().to_ascii_lowercase(), caller.run)
}
