//! How a caller comes to a card: by making the call, by repeating it, or by its id.

use super::step::{self, Stuck};
use super::ticket::{How, Ticket};
use super::{AttachError, Caller, Inner, Origin, ParkError, Settlement, execute};
use crate::identity::random_id;
use crate::store::{Inserted, StoreFault};
use portcullis_policy::decide::{Caps, Request};
use portcullis_policy::ledger::{Asked, Card, Event, Grant, State};
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
            let ticket = join(inner, card).await?;
            if origin.task {
                step::follow(inner, ticket.id()).await?;
            }
            return Ok(ticket);
        }
        let now_ms = inner.settings.clock.wall_ms();
        // The answer of a task is kept longer, but a call that comes later is a new one.
        let keep_ms = u64::try_from(inner.settings.result_keep.as_millis()).unwrap_or(u64::MAX);
        let ended_after_ms = now_ms.saturating_sub(keep_ms);
        let Some((card, kept)) = inner.store.undelivered(key, (now_ms, ended_after_ms)).await?
        else {
            return make(inner, asked, origin).await;
        };
        let on_its_way = inner.memory.held(card.id());
        // Whoever had it may have got it since it was read.
        let kept_still = inner.store.kept(card.id()).await?.is_some_and(|kept| !kept.delivered);
        if waited || (!on_its_way && kept_still) {
            let settlement = step::told(&card, Some(&kept));
            return Ok(Ticket::settled(inner, card, settlement));
        }
        if !on_its_way {
            continue;
        }
        drop(lane);
        // The answer is on its way to an earlier call: whether it arrives decides between the
        // same answer and a new card. A caller that is gone unnoticed never takes it.
        drop(timeout(HANDOVER, inner.memory.quiet(card.id())).await);
        waited = true;
    }
}

// A new card: approved already if a standing approval allows it, else parked.
async fn make(inner: &Arc<Inner>, asked: Asked, origin: &Origin) -> Result<Ticket, ParkError> {
    let clock = &inner.settings.clock;
    let id = random_id("apr_").map_err(ParkError::Random)?;
    for grant in inner.store.grants_for(&asked, clock.wall_ms()).await? {
        let card = Card::by_grant(id.clone(), asked.clone(), &grant, clock.wall_ms());
        let Some(card) = card.map(|card| card.with_task(origin.task)) else { continue };
        if !vouched(inner, &card, &grant).await {
            continue;
        }
        if let Some(ticket) = enter(inner, &card, Some(&grant), None).await? {
            return Ok(ticket);
        }
    }
    let card = Card::new(id, asked, clock.wall_ms()).with_task(origin.task);
    enter(inner, &card, None, Some(&origin.caps)).await?.ok_or(ParkError::Stopping)
}

async fn vouched(inner: &Arc<Inner>, card: &Card, grant: &Grant) -> bool {
    let vouch = Arc::clone(&inner.runner.vouch);
    let (card, grant) = (card.clone(), grant.clone());
    tokio::task::spawn_blocking(move || vouch(&card, &grant)).await.unwrap_or(false)
}

// `None` if the standing approval has just ended.
async fn enter(
    inner: &Arc<Inner>,
    card: &Card,
    grant: Option<&Grant>,
    caps: Option<&Caps>,
) -> Result<Option<Ticket>, ParkError> {
    // The waiter is there before anyone can see the card, so no decision comes too early.
    let left_ms = card.deadline().map(|deadline| deadline.left_ms);
    let times = (left_ms, inner.settings.clock.steady_ms());
    inner.memory.enter_within(card, caps, times).map_err(ParkError::Full)?;
    let Some(seat) = inner.memory.seat(card.id()) else { return Err(ParkError::Stopping) };
    let inserted = inner.store.insert(card, None, grant).await;
    if !matches!(inserted, Ok(Inserted::New)) {
        inner.memory.forget(card.id());
    }
    // Its caller is told that it was not queued, so it must not run by itself if the store took
    // it all the same.
    if inserted.is_err() && card.is_task() {
        inner.unmade.lock().push(card.id().to_owned());
    }
    match inserted? {
        Inserted::New => {
            step::announce(inner, card);
            let ticket = Ticket::seated(inner, card.id(), How::Made, seat);
            if card.state() == State::Approved {
                execute::offer(inner, card.id());
            }
            Ok(Some(ticket))
        }
        Inserted::Duplicate => match inner.store.live(card.asked().key()).await? {
            Some(card) => Ok(Some(join(inner, card).await?)),
            None => Err(ParkError::Stopping),
        },
        Inserted::RunEnded => Err(ParkError::RunEnded),
        Inserted::GrantEnded => Ok(None),
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

/// A card of the caller's own run and what its callers get, once it is settled.
pub(super) async fn poll(
    inner: &Arc<Inner>,
    caller: &Caller,
    id: &str,
) -> Result<(Card, Option<Settlement>), AttachError> {
    let mut card = own(inner, caller, id).await?;
    if !card.state().is_settled() && !card.is_task() {
        step::follow(inner, id).await?;
        card = own(inner, caller, id).await?;
    }
    if !card.state().is_settled() {
        return Ok((card, None));
    }
    // Handed out or not: who polls may ask again.
    let kept = inner.store.kept(id).await?;
    let settlement = step::told(&card, kept.as_ref());
    Ok((card, Some(settlement)))
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
    let here = caller.server.as_ref().is_none_or(|server| *server == asked.server);
    if here && asked.agent == caller.agent && asked.run == caller.run {
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
