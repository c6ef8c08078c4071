//! The life of a parked call: an event goes in, the next card and its effects come out.
//!
//! A [`Card`] changes only here, and only along the table of [`State`]; the first event to reach
//! it chooses its one outcome. Whoever calls [`step`] makes the result true by a conditional
//! update of the store, and only then carries out the effects. [`words`] is what callers read.

mod asked;
mod card;
mod grant;
mod spelled;
mod word;
pub mod words;

#[cfg(test)]
mod tests;

use crate::canonical::Digest;
use crate::definition::{Approver, OnCallerGone};
use crate::name::ServerName;

pub use asked::{Ancestor, Asked, External, key};
pub use card::{Card, CardFault, Deadline, Outcome, State};
pub use grant::{Grant, STANDING_MS_MAX};
pub use word::{Covers, Decider, Decision, Edit, Standing, Verdict, Whose, Word};

/// Something that happened to a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An approver decided.
    Decide {
        /// What was said.
        word: Word,
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
    /// A caller polls from now on.
    Follow,
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
    NotApprover(Approver),
    /// The decision was made on other arguments than those that would run.
    #[error("the digest is not that of the arguments that would run")]
    WrongDigest,
    /// The same approver approved before, and others have to as well.
    #[error("this approver approved it before; another one has to")]
    Voted,
    /// The approval covers more than the policy or the card lets it.
    #[error("{0}")]
    TooMuch(&'static str),
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
    external: bool,
}

impl Approved {
    /// True if the harness and not the gateway does it.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.external
    }

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
        Event::Decide { word, by } => decide(card, word, by, now_ms),
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
        Event::Follow => follow(card, now_ms),
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
    word: Word,
    by: Decider,
    now_ms: u64,
) -> Result<(Card, Vec<Effect>), Unmoved> {
    if card.state() != State::Parked {
        return Err(Unmoved::Settled(card.state()));
    }
    if !card.asked().is_decided_by(&by) {
        return Err(Unmoved::NotApprover(by.role));
    }
    let seen = word.digest == Some(card.digest());
    let Word { verdict, digest, edited, standing } = word;
    let decision = Decision { verdict, by, at_ms: now_ms, standing, grant: None };
    if matches!(decision.verdict, Verdict::Deny { .. }) {
        if digest.is_some() && !seen {
            return Err(Unmoved::WrongDigest);
        }
        let mut next = card.moved(State::Denied, now_ms);
        next.votes.clear();
        next.decision = Some(decision);
        return Ok((next, vec![Effect::Publish]));
    }
    if !seen {
        return Err(Unmoved::WrongDigest);
    }
    let edited = edited.filter(|arguments| arguments != card.arguments());
    if let Some(standing) = &standing {
        stands(card, standing, (&decision.by, edited.is_some()))?;
    }
    approve(card, decision, edited, now_ms)
}

// An approver vouches for what it saw: an edit takes back what others said of the card before.
fn approve(
    card: &Card,
    decision: Decision,
    edited: Option<String>,
    now_ms: u64,
) -> Result<(Card, Vec<Effect>), Unmoved> {
    let mut next = card.touched(now_ms);
    if let Some(arguments) = edited {
        let digest = Digest::of(arguments.as_bytes());
        next.edit = Some(Edit { arguments, digest, by: decision.by.clone() });
        next.votes.clear();
    }
    if next.votes.iter().any(|vote| vote.by.is_same(&decision.by)) {
        return Err(Unmoved::Voted);
    }
    let count = u32::try_from(next.votes.len()).unwrap_or(u32::MAX).saturating_add(1);
    if count < card.asked().count {
        next.votes.push(decision);
        return Ok((next, vec![Effect::Publish]));
    }
    next.state = State::Approved;
    next.deadline = Some(Deadline { left_ms: card.asked().use_within_ms, written_ms: now_ms });
    next.decision = Some(decision);
    Ok((next, vec![Effect::Publish, Effect::Offer]))
}

fn stands(card: &Card, standing: &Standing, (by, edited): (&Decider, bool)) -> Result<(), Unmoved> {
    let asked = card.asked();
    let why = if !standing.covers.is_within(asked.standing) {
        "the policy does not let an approval of this call cover so much (`approval.standing`)"
    } else if asked.count > 1 || edited || card.edit.is_some() {
        "only an approval by one approver, of the arguments as asked, can cover more than one call"
    } else if standing.of == Whose::Agent && by.role == Approver::Parent {
        "a parent decides for the runs below it, not for all runs of an agent"
    } else if standing.of == Whose::Agent && standing.lasts_ms.is_none() {
        "an approval for all runs of an agent needs a time"
    } else if standing.lasts_ms.is_some_and(|lasts| lasts == 0 || lasts > STANDING_MS_MAX) {
        "an approval covers later calls for at most a day"
    } else {
        return Ok(());
    };
    Err(Unmoved::TooMuch(why))
}

fn execute(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    only(card.state(), &[State::Approved])?;
    let asked = card.asked();
    let approved = Approved {
        server: asked.server.clone(),
        tool: asked.tool.as_str().to_owned(),
        exposed: asked.exposed.clone(),
        definition: asked.definition,
        arguments: card.arguments().to_owned(),
        external: asked.external.is_some(),
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
    // One that was told how to collect its call does not have to stay.
    let waits = card.state() != State::Executing && !card.task && !card.unattended;
    if waits && card.asked().on_caller_gone == OnCallerGone::Settle {
        return Ok(end(card, State::Cancelled, "its caller left".to_owned(), now_ms));
    }
    detach(card, now_ms)
}

fn detach(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    // A task is polled: nobody has to stay for it.
    if card.unattended || card.task {
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

fn follow(card: &Card, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    if card.task {
        return Err(Unmoved::Idle(card.state()));
    }
    let mut next = card.touched(now_ms);
    next.task = true;
    next.unattended = false;
    let mut effects = vec![Effect::Publish];
    effects.extend((next.state() == State::Approved).then_some(Effect::Offer));
    Ok((next, effects))
}

fn mark(card: &Card, left_ms: u64, now_ms: u64) -> Result<(Card, Vec<Effect>), Unmoved> {
    let Some(deadline) = card.deadline else {
        return Err(Unmoved::Idle(card.state()));
    };
    let mut next = card.touched(now_ms);
    next.deadline = Some(Deadline { left_ms: left_ms.min(deadline.left_ms), written_ms: now_ms });
    Ok((next, Vec::new()))
}
