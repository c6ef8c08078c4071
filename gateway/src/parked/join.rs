//! How a caller comes to a card: by making the call, by repeating it, or by its id.

use super::step::{self, Stuck};
use super::ticket::{How, Ticket};
use super::{AttachError, Caller, Inner, Origin, ParkError, execute};
use crate::identity::random_id;
use crate::store::{Inserted, StoreFault};
use portcullis_policy::decide::{Request, Usage, over_parked};
use portcullis_policy::ledger::{Asked, Card, Event, State};
use portcullis_policy::scope::Scope;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a repeat waits for an answer that is being written to an earlier call.
const HANDOVER: Duration = Duration::from_secs(1);

/// Parks a call, joins its card, or hands out its kept answer.
pub(super) async fn park(
    inner: &Arc<Inner>,
    caller: &Caller,
    request: &Request,
    origin: &Origin,
) -> Result<Ticket, ParkError> {
    let asked = Asked::new(&caller.agent, &caller.run, &origin.above, request);
    let mut waited = false;
    loop {
        let lane = inner.lanes.of(asked.key()).lock().await;
        if *inner.stopping.borrow() {
            return Err(ParkError::Stopping);
        }
        let key = asked.key();
        if let Some(card) = inner.store.live(key).await? {
            return Ok(join(inner, card).await?);
        }
        let now_ms = inner.settings.clock.wall_ms();
        let Some((card, kept)) = inner.store.undelivered(key, now_ms).await? else {
            return make(inner, asked, &origin.scope).await;
        };
        if waited || !inner.memory.held(card.id()) {
            let settlement = step::told(&card, Some(&kept));
            return Ok(Ticket::settled(inner, card, settlement));
        }
        drop(lane);
        // The answer is on its way to an earlier call: whether it arrives decides between the
        // same answer and a new card. A caller that is gone unnoticed never takes it.
        drop(timeout(HANDOVER, inner.memory.quiet(card.id())).await);
        waited = true;
    }
}

async fn make(inner: &Arc<Inner>, asked: Asked, scope: &Scope) -> Result<Ticket, ParkError> {
    let clock = &inner.settings.clock;
    let card = Card::new(random_id("apr_").map_err(ParkError::Random)?, asked, clock.wall_ms());
    // The waiter is there before anyone can see the card, so no decision comes too early.
    let times = (Some(card.asked().decide_within_ms), clock.steady_ms());
    let most = scope.limits.parked_calls;
    if let Err(parked_calls) = inner.memory.enter_within(&card, most, times) {
        let usage = Usage { parked_calls, ..Usage::default() };
        return Err(over_parked(scope, &usage).map_or(ParkError::Stopping, ParkError::Full));
    }
    let Some(seat) = inner.memory.seat(card.id()) else { return Err(ParkError::Stopping) };
    let inserted = inner.store.insert(&card, None).await;
    match inserted {
        Ok(Inserted::New) => {
            step::announce(inner, &card);
            Ok(Ticket::seated(inner, card.id(), How::Made, seat))
        }
        Ok(Inserted::Duplicate) => {
            inner.memory.forget(card.id());
            match inner.store.live(card.asked().key()).await? {
                Some(card) => Ok(join(inner, card).await?),
                None => Err(ParkError::Stopping),
            }
        }
        Ok(Inserted::RunEnded) => {
            inner.memory.forget(card.id());
            Err(ParkError::RunEnded)
        }
        Err(fault) => {
            inner.memory.forget(card.id());
            Err(ParkError::Store(fault))
        }
    }
}

/// Joins the caller to a card of its own run.
pub(super) async fn attach(
    inner: &Arc<Inner>,
    caller: &Caller,
    id: &str,
) -> Result<Ticket, AttachError> {
    let card = own(inner, caller, id).await?;
    Ok(join(inner, card).await?)
}

/// Ends a card of the caller's own run.
pub(super) async fn cancel(
    inner: &Arc<Inner>,
    caller: &Caller,
    id: &str,
) -> Result<Card, AttachError> {
    own(inner, caller, id).await?;
    match step::advance(inner, id, &Event::Cancel, None).await {
        Ok(card) => Ok(card),
        Err(Stuck::Unmoved(_, card)) => Ok(*card),
        Err(Stuck::Missing) => Err(AttachError::Unknown),
        Err(Stuck::Store(fault)) => Err(AttachError::Store(fault)),
    }
}

async fn own(inner: &Arc<Inner>, caller: &Caller, id: &str) -> Result<Card, AttachError> {
    let card = inner.store.card(id).await?.ok_or(AttachError::Unknown)?;
    let asked = card.asked();
    if asked.agent == caller.agent && asked.run == caller.run {
        Ok(card)
    } else {
        Err(AttachError::Unknown)
    }
}

async fn join(inner: &Arc<Inner>, mut card: Card) -> Result<Ticket, StoreFault> {
    loop {
        if card.state().is_settled() {
            let kept = inner.store.kept(card.id()).await?.filter(|kept| !kept.delivered);
            let settlement = step::told(&card, kept.as_ref());
            return Ok(Ticket::settled(inner, card, settlement));
        }
        if let Some(seat) = inner.memory.seat(card.id()) {
            let ticket = Ticket::seated(inner, card.id(), How::Joined, seat);
            if card.unattended() {
                step::attend(inner, card.id()).await;
            }
            // The seat is taken: either this sees the approval, or the approval sees the seat.
            if inner.memory.state(card.id()) == Some(State::Approved) {
                execute::offer(inner, card.id());
            }
            return Ok(ticket);
        }
        // It settled since it was read, or the store took it without saying so.
        let Some(now) = inner.store.card(card.id()).await? else {
            return Ok(Ticket::settled(inner, card.clone(), step::told(&card, None)));
        };
        card = now;
        if !card.state().is_settled() {
            adopt(inner, &card);
        }
    }
}

/// Takes a live card of the store into memory.
pub(super) fn adopt(inner: &Arc<Inner>, card: &Card) {
    let clock = &inner.settings.clock;
    let left_ms = card.deadline().map(|deadline| deadline.left_at(clock.wall_ms()));
    inner.memory.enter(card, left_ms, clock.steady_ms());
}
