//! The life of a parked call: an event goes in, the next card and its effects come out.
//!
//! A [`Card`] changes only here, and only along the table of [`State`]; the first event to reach
//! it chooses its one outcome. Whoever calls [`step`] makes the result true by a conditional
//! update of the store, and only then carries out the effects. [`words`] is what callers read.

mod asked;
mod card;
mod spelled;
pub mod words;

#[cfg(test)]
mod tests;

use crate::canonical::Digest;
use crate::definition::OnCallerGone;
use crate::name::ServerName;

pub use asked::{Ancestor, Asked, key};
pub use card::{Card, CardFault, Deadline, Decider, Decision, Outcome, State, Verdict};

/// Something that happened to a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An approver decided.
    Decide {
        /// The decision.
        verdict: Verdict,
        /// Who decided.
        by: Decider,
    },
    /// A consumer is there for an approved call.
    Execute,
    /// The call ended and its end is known.
    Finish {
        /// How it ended.
        outcome: Outcome,
        /// Why, if it was not sent; else empty.
        detail: String,
    },
    /// The call started and how it ended cannot be known.
    Lose {
        /// What happened to it.
        why: String,
    },
    /// The time to decide is over.
    Expire,
    /// The time to use an approval is over.
    Lapse,
    /// The fresh decision refuses the call.
    Revoke {
        /// The refusal, as the caller reads it.
        text: String,
    },
    /// The run was stopped or its time is over.
    Stop {
        /// Why.
        why: String,
    },
    /// The caller cancelled the call.
    Cancel,
    /// The last waiting caller left without an answer.
    Leave,
    /// The last waiting caller was told that its call is pending, and how to collect it.
    Detach,
    /// A caller waits again.
    Attend,
    /// The time left of the deadline, measured; it may only get shorter.
    Mark {
        /// Time left.
        left_ms: u64,
    },
}

/// What to do once the new card is in the store.
#[derive(Debug)]
pub enum Effect {
    /// Tell the waiting callers and all who watch.
    Publish,
    /// Start the call if a consumer is there.
    Offer,
    /// Run the call, once.
    Run(Approved),
    /// Stop the execution that is under way.
    Abort,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmoved {
    /// The card has its outcome, or its decision: the event came too late.
    #[error("the card is {} already", .0.as_str())]
    Settled(State),
    /// The event has no place in this state.
    #[error("that does not apply to a card that is {}", .0.as_str())]
    Idle(State),
    /// The policy does not let this role decide the card.
    #[error("the {} does not decide this card", words::role(*.0))]
    NotApprover(crate::definition::Approver),
}

/// Evidence that the ledger consumed an approval.
#[derive(Debug)]
pub struct Approved {
    // INVARIANT: made only by the step from approved to executing, so one approval makes one.
    server: ServerName,
    tool: String,
    exposed: String,
    definition: Digest,
    arguments: String,
}

impl Approved {
    /// The server.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.server
    }
    /// The tool's registered name.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }
    /// The name the agent used.
    #[must_use]
    pub fn exposed(&self) -> &str {
        &self.exposed
    }
    /// Digest of the definition the approver saw.
    #[must_use]
    pub fn definition(&self) -> Digest {
        self.definition
    }
    /// The arguments, canonical form 1.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.arguments
    }
}

/// Moves a card by one event at the wall time `now_ms`.
///
/// # Errors
/// [`Unmoved`] if the event changes nothing.
pub fn step(card: &Card, event: Event, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    let state = card.state();
    if state.is_settled() {
        return Err(Unmoved::Settled(state));
    }
    match event {
        Event::Decide { verdict, by } => decide(card, verdict, by, now_ms),
        Event::Execute => execute(card, now_ms),
        Event::Finish { outcome, detail } => {
            only(state, &[State::Executing])?;
            let mut next = settled(card, State::Done, detail, now_ms);
            next.outcome = Some(outcome);
            Ok((next, vec![Effect::Publish]))
        }
        Event::Lose { why } => {
            only(state, &[State::Executing])?;
            Ok((settled(card, State::Unknown, why, now_ms), vec![Effect::Publish]))
        }
        Event::Expire => {
            only(state, &[State::Parked])?;
            Ok((settled(card, State::Expired, String::new(), now_ms), vec![Effect::Publish]))
        }
        Event::Lapse => {
            only(state, &[State::Approved])?;
            Ok((settled(card, State::Lapsed, String::new(), now_ms), vec![Effect::Publish]))
        }
        Event::Revoke { text } => {
            only(state, &[State::Parked, State::Approved])?;
            Ok((settled(card, State::Revoked, text, now_ms), vec![Effect::Publish]))
        }
        Event::Stop { why } => Ok(end(card, State::Stopped, why, now_ms)),
        Event::Cancel => {
            Ok(end(card, State::Cancelled, "its caller cancelled it".to_owned(), now_ms))
        }
        Event::Leave => leave(card, now_ms),
        Event::Detach => detach(card, now_ms),
        Event::Attend => attend(card, now_ms),
        Event::Mark { left_ms } => mark(card, left_ms, now_ms),
    }
}

fn only(state: State, from: &[State]) -> Result<(), Unmoved> {
    if from.contains(&state) { Ok(()) } else { Err(Unmoved::Idle(state)) }
}

fn settled(card: &Card, state: State, detail: String, now_ms: u64) -> Card {
    let mut next = card.moved(state, now_ms);
    next.detail = detail;
    next
}

fn decide(
    card: &Card,
    verdict: Verdict,
    by: Decider,
    now_ms: u64,
) -> Result<(Card, Vec<Effect>), Unmoved> {
    if card.state() != State::Parked {
        return Err(Unmoved::Settled(card.state()));
    }
    if !card.asked().approvers.contains(&by.role) {
        return Err(Unmoved::NotApprover(by.role));
    }
    let (mut next, effects) = match &verdict {
        Verdict::Approve => {
            let mut next = card.moved(State::Approved, now_ms);
            next.deadline =
                Some(Deadline { left_ms: card.asked().use_within_ms, written_ms: now_ms });
            (next, vec![Effect::Publish, Effect::Offer])
        }
        Verdict::Deny { .. } => (card.moved(State::Denied, now_ms), vec![Effect::Publish]),
    };
    next.decision = Some(Decision { verdict, by, at_ms: now_ms });
    Ok((next, effects))
}

fn execute(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    only(card.state(), &[State::Approved])?;
    let asked = card.asked();
    let approved = Approved {
        server: asked.server.clone(),
        tool: asked.tool.as_str().to_owned(),
        exposed: asked.exposed.clone(),
        definition: asked.definition,
        arguments: asked.arguments.clone(),
    };
    let next = card.moved(State::Executing, now_ms);
    Ok((next, vec![Effect::Publish, Effect::Run(approved)]))
}

// Ended from outside. What has started may have run, and nobody can take that back.
fn end(card: &Card, state: State, why: String, now_ms: u64) -> (Card, Vec<Effect>) {
    if card.state() == State::Executing {
        let next = settled(card, State::Unknown, format!("{why} while it ran"), now_ms);
        return (next, vec![Effect::Abort, Effect::Publish]);
    }
    (settled(card, state, why, now_ms), vec![Effect::Publish])
}

fn leave(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    let waits = card.state() != State::Executing;
    if waits && card.asked().on_caller_gone == OnCallerGone::Settle {
        return Ok(end(card, State::Cancelled, "its caller left".to_owned(), now_ms));
    }
    detach(card, now_ms)
}

fn detach(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    if card.unattended {
        return Err(Unmoved::Idle(card.state()));
    }
    let mut next = card.touched(now_ms);
    next.unattended = true;
    Ok((next, vec![Effect::Publish]))
}

fn attend(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    if !card.unattended {
        return Err(Unmoved::Idle(card.state()));
    }
    let mut next = card.touched(now_ms);
    next.unattended = false;
    Ok((next, vec![Effect::Publish]))
}

fn mark(card: &Card, left_ms: u64, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    let Some(deadline) = card.deadline else {
        return Err(Unmoved::Idle(card.state()));
    };
    let mut next = card.touched(now_ms);
    next.deadline = Some(Deadline { left_ms: left_ms.min(deadline.left_ms), written_ms: now_ms });
    Ok((next, Vec::new()))
}
