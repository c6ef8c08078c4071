//! Moving a card: read, step, commit on condition, and only then the effects.

use super::{
    DecideError, Executed, Inner, KEPT_BYTES_MAX, Settlement, TASK_BYTES_MAX, execute, task_life_ms,
};
use crate::store::{Change, Kept, KeptKind, StoreFault};
use bytes::Bytes;
use portcullis_policy::ledger::{
    Card, Decider, Decision, Effect, Event, Grant, Outcome, State, Unmoved, Word, step, words,
};
use std::sync::Arc;

/// Why a card did not move.
#[derive(Debug)]
pub(super) enum Stuck {
    /// No card of that id.
    Missing,
    /// The ledger says no; the card as it is.
    Unmoved(Unmoved, Box<Card>),
    /// The store failed.
    Store(StoreFault),
}

impl From<StoreFault> for Stuck {
    fn from(fault: StoreFault) -> Self {
        Self::Store(fault)
    }
}

/// Moves a card by one event. `executed` is the answer that goes with [`Event::Finish`].
pub(super) async fn advance(
    inner: &Arc<Inner>,
    id: &str,
    event: &Event,
    executed: Option<&Executed>,
) -> Result<Card, Stuck> {
    advance_giving(inner, id, event, (executed, None)).await
}

// The same; `grant` is the name of the standing approval that a decision gives.
async fn advance_giving(
    inner: &Arc<Inner>,
    id: &str,
    event: &Event,
    (executed, grant): (Option<&Executed>, Option<&str>),
) -> Result<Card, Stuck> {
    loop {
        let card = inner.store.card(id).await?.ok_or(Stuck::Missing)?;
        let now_ms = inner.settings.clock.wall_ms();
        let (next, effects) = step(&card, event.clone(), now_ms)
            .map_err(|unmoved| Stuck::Unmoved(unmoved, Box::new(card)))?;
        let decided = matches!(event, Event::Decide { .. });
        let given = grant.filter(|_| decided).and_then(|id| Grant::given(id.to_owned(), &next));
        let change = Change { decided, given, ..change(inner, &next, executed) };
        if commit(inner, change).await? {
            apply(inner, &next, &effects, executed);
            return Ok(next);
        }
        // Overtaken: somebody else moved the card, so this loop ends with the card's life.
    }
}

/// Commits one step. False if it was overtaken.
pub(super) async fn commit(inner: &Arc<Inner>, change: Change) -> Result<bool, StoreFault> {
    let counted = inner.store.commit(&[change]).await?;
    Ok(counted.first().copied().unwrap_or(false))
}

/// One step as the store takes it, with the answer to keep; no decision.
pub(super) fn change(inner: &Inner, next: &Card, executed: Option<&Executed>) -> Change {
    let kept = kept(inner, next, executed);
    Change { card: next.clone(), kept, decided: false, given: None, silent: false }
}

/// Carries out the effects of a committed step, without [`Effect::Run`].
pub(super) fn apply(
    inner: &Arc<Inner>,
    next: &Card,
    effects: &[Effect],
    executed: Option<&Executed>,
) {
    publish(inner, next, settlement(next, executed));
    for effect in effects {
        match effect {
            Effect::Publish => announce(inner, next),
            Effect::Offer => execute::offer(inner, next.id()),
            // Memory ends what runs of a card when the card settles; running is for `execute`.
            Effect::Abort | Effect::Run(_) => {}
        }
    }
}

/// Tells all who watch, but not the waiters, of a committed card.
pub(super) fn announce(inner: &Inner, card: &Card) {
    inner.settings.witness.see(card);
    inner.changes.send_modify(|count| *count = count.wrapping_add(1));
}

/// Takes a committed card over into memory, and with it to its waiters.
pub(super) fn publish(inner: &Arc<Inner>, card: &Card, settled: Option<Settlement>) {
    let clock = &inner.settings.clock;
    let left_ms = card.deadline().map(|deadline| deadline.left_at(clock.wall_ms()));
    inner.memory.publish(card, settled, (left_ms, clock.steady_ms()));
}

/// What the waiters of a card get, once it is settled.
pub(super) fn settlement(card: &Card, executed: Option<&Executed>) -> Option<Settlement> {
    if !card.state().is_settled() {
        return None;
    }
    Some(match executed {
        Some(Executed::Result { raw, is_error }) => {
            Settlement::Result { raw: raw.clone(), is_error: *is_error }
        }
        Some(Executed::Error { raw }) => Settlement::Error { raw: raw.clone() },
        Some(Executed::NotSent { .. } | Executed::Unknown { .. }) | None => told(card, None),
    })
}

/// The same from what the store kept.
pub(super) fn told(card: &Card, kept: Option<&Kept>) -> Settlement {
    match kept.map(|kept| (kept.kind, kept.bytes.clone())) {
        Some((KeptKind::Result, raw)) => Settlement::Result { raw, is_error: false },
        Some((KeptKind::ToolError, raw)) => Settlement::Result { raw, is_error: true },
        Some((KeptKind::RpcError, raw)) => Settlement::Error { raw },
        Some((KeptKind::Text, raw)) => words_of(card, String::from_utf8_lossy(&raw).into_owned()),
        None => {
            let text = words::settled(card).unwrap_or_else(|| words::not_kept(card, None));
            words_of(card, text)
        }
    }
}

fn words_of(card: &Card, text: String) -> Settlement {
    match (card.state(), card.outcome()) {
        (State::Unknown, _) => Settlement::Unknown { text },
        (State::Done, Some(Outcome::Ok | Outcome::ToolError | Outcome::RpcError) | None) => {
            Settlement::NotKept { text }
        }
        (state, _) => Settlement::NotRun { state, text },
    }
}

// What a caller that is not there may still want: the answer of a call that ran, and a denial.
fn kept(inner: &Inner, card: &Card, executed: Option<&Executed>) -> Option<Kept> {
    let text = |text: String| (KeptKind::Text, Bytes::from(text));
    // Who polls gets it nowhere else.
    let most = if card.is_task() { TASK_BYTES_MAX } else { KEPT_BYTES_MAX };
    let fits = |kind: KeptKind, raw: &Bytes| {
        if raw.len() <= most {
            return (kind, raw.clone());
        }
        text(words::not_kept(card, u64::try_from(raw.len()).ok()))
    };
    let (kind, bytes) = match executed {
        Some(Executed::Result { raw, is_error: false }) => fits(KeptKind::Result, raw),
        Some(Executed::Result { raw, is_error: true }) => fits(KeptKind::ToolError, raw),
        Some(Executed::Error { raw }) => fits(KeptKind::RpcError, raw),
        Some(Executed::NotSent { .. } | Executed::Unknown { .. }) | None => {
            if !matches!(card.state(), State::Done | State::Unknown | State::Denied) {
                return None;
            }
            text(words::settled(card)?)
        }
    };
    let keep_ms = u64::try_from(inner.settings.result_keep.as_millis()).unwrap_or(u64::MAX);
    let expires_ms = match card.is_task() {
        true => card.created_ms().saturating_add(task_life_ms(card, keep_ms)),
        false => card.updated_ms().saturating_add(keep_ms),
    };
    Some(Kept { kind, bytes, expires_ms, delivered: false })
}

/// Decides a card.
pub(super) async fn decide(
    inner: &Arc<Inner>,
    id: &str,
    (word, by): (Word, Decider),
    grant: Option<String>,
) -> Result<Card, DecideError> {
    let card = inner.store.card(id).await?.ok_or(DecideError::Unknown)?;
    if overdue(inner, &card) {
        // The sweep was not there yet; a late decision decides nothing.
        settle_overdue(inner, id, card.state()).await?;
    }
    let event = Event::Decide { word: word.clone(), by: by.clone() };
    let moved = advance_giving(inner, id, &event, (None, grant.as_deref())).await;
    let (unmoved, card) = match moved {
        Ok(card) => return Ok(card),
        Err(Stuck::Missing) => return Err(DecideError::Unknown),
        Err(Stuck::Store(fault)) => return Err(DecideError::Store(fault)),
        Err(Stuck::Unmoved(unmoved, card)) => (unmoved, card),
    };
    match unmoved {
        Unmoved::NotApprover(role) => Err(DecideError::NotApprover(role)),
        Unmoved::WrongDigest => Err(DecideError::WrongDigest),
        Unmoved::TooMuch(why) => Err(DecideError::TooMuch(why)),
        // The same word again gets the same answer.
        Unmoved::Voted => Ok(*card),
        Unmoved::Settled(_) | Unmoved::Idle(_) => {
            if said(&card, &word, &by) {
                Ok(*card)
            } else {
                Err(DecideError::Settled(card))
            }
        }
    }
}

// True if `by` said the same of the card before.
fn said(card: &Card, word: &Word, by: &Decider) -> bool {
    let same = |made: &Decision| {
        made.grant.is_none()
            && made.by.is_same(by)
            && made.verdict.agrees(&word.verdict)
            && made.standing == word.standing
    };
    let alike = match &word.edited {
        Some(arguments) => arguments == card.arguments(),
        None => word.digest.is_none_or(|digest| digest == card.digest()),
    };
    alike && card.votes().iter().chain(card.decision()).any(same)
}

/// True if the time of a card is over: on the steady clock, or else by what its record says.
pub(super) fn overdue(inner: &Inner, card: &Card) -> bool {
    let clock = &inner.settings.clock;
    card.deadline().is_some_and(|deadline| {
        let left_ms = inner.memory.left_ms(card.id(), clock.steady_ms());
        left_ms.unwrap_or_else(|| deadline.left_at(clock.wall_ms())) == 0
    })
}

/// Settles a card whose time in `state` is over.
pub(super) async fn settle_overdue(
    inner: &Arc<Inner>,
    id: &str,
    state: State,
) -> Result<(), StoreFault> {
    let event = if state == State::Approved { Event::Lapse } else { Event::Expire };
    match advance(inner, id, &event, None).await {
        Ok(_) | Err(Stuck::Missing | Stuck::Unmoved(..)) => Ok(()),
        Err(Stuck::Store(fault)) => Err(fault),
    }
}

/// The last waiter of a card left, unless another one came meanwhile.
pub(super) async fn desert(inner: &Arc<Inner>, id: &str, event: Event) {
    if inner.memory.waited_for(id) {
        return;
    }
    if let Err(Stuck::Store(fault)) = advance(inner, id, &event, None).await {
        tracing::warn!(%fault, card = id, "a card could not be marked as unattended");
        return;
    }
    if inner.memory.waited_for(id) {
        attend(inner, id).await;
    }
}

/// A caller waits for a card again.
pub(super) async fn attend(inner: &Arc<Inner>, id: &str) {
    if let Err(Stuck::Store(fault)) = advance(inner, id, &Event::Attend, None).await {
        tracing::warn!(%fault, card = id, "a card could not be marked as attended");
    }
}

/// A caller of a card polls from now on. It is so in the store when this returns.
pub(super) async fn follow(inner: &Arc<Inner>, id: &str) -> Result<(), StoreFault> {
    match advance(inner, id, &Event::Follow, None).await {
        Err(Stuck::Store(fault)) => Err(fault),
        // Settled or followed already, it is all the same to who polls.
        Ok(_) | Err(Stuck::Missing | Stuck::Unmoved(..)) => Ok(()),
    }
}

/// Commits many steps in one transaction and carries out those that count.
pub(super) async fn commit_all(
    inner: &Arc<Inner>,
    moved: Vec<(Card, Vec<Effect>)>,
) -> Result<Vec<Card>, StoreFault> {
    // A step that is published to nobody is only a clock written down.
    let change = |(card, effects): &(Card, Vec<Effect>)| Change {
        silent: effects.is_empty(),
        ..change(inner, card, None)
    };
    let changes: Vec<_> = moved.iter().map(change).collect();
    let counted = inner.store.commit(&changes).await?;
    let mut cards = Vec::with_capacity(moved.len());
    for ((card, effects), counts) in moved.into_iter().zip(counted) {
        if counts {
            apply(inner, &card, &effects, None);
            cards.push(card);
        }
    }
    Ok(cards)
}
