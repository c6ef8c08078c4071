//! What happens without a caller: recovery at start, limits of time, repair, shutdown.

use super::memory::Look;
use super::step::{self as steps, Stuck};
use super::{Executed, Inner, execute, join};
use crate::store::{Pruned, Retention, Standing, StoreFault};
use portcullis_policy::ledger::{Event, State, step};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often limits of time are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How many ticks lie between two repairs.
const TICKS_A_REPAIR: u32 = 20;
/// Most removals of old rows in one round.
const PRUNINGS_MAX: usize = 20;
/// How many repairs lie between two marks of the time left.
const REPAIRS_A_MARK: u32 = 12;

/// Takes up the cards of the store after a start.
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<(), StoreFault> {
    let clock = &inner.settings.clock;
    let now_ms = clock.wall_ms();
    let mut moved = Vec::new();
    for card in inner.store.unsettled().await? {
        join::adopt(inner, &card);
        let why = "the gateway restarted while it ran".to_owned();
        let left_ms = card.deadline().map_or(0, |deadline| deadline.left_at(now_ms));
        let events = if card.state() == State::Executing {
            vec![Event::Lose { why }]
        } else {
            // The connections of before are gone, and with them the callers that waited.
            vec![Event::Leave, Event::Mark { left_ms }]
        };
        let mut at = card;
        for event in events {
            if let Ok((next, effects)) = step(&at, event, now_ms) {
                at = next.clone();
                moved.push((next, effects));
            }
        }
    }
    steps::commit_all(inner, moved).await?;
    sweep_overdue(inner).await;
    Ok(())
}

/// Starts what is approved and wanted.
pub(super) fn offer_all(inner: &Arc<Inner>) {
    for look in inner.memory.looks(inner.settings.clock.steady_ms()) {
        if look.state == State::Approved && look.wanted {
            execute::offer(inner, &look.id);
        }
    }
}

/// Starts the loop. It ends when the gateway does.
pub(super) fn start(inner: &Arc<Inner>) {
    let weak = Arc::downgrade(inner);
    let mut stopping = inner.stopping.subscribe();
    inner.tasks.spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count: u32 = 0;
        loop {
            // Both arms only wait, so dropping either loses nothing.
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
            if !tick(&weak, count).await {
                return;
            }
            count = count.wrapping_add(1);
        }
    });
}

async fn tick(weak: &Weak<Inner>, count: u32) -> bool {
    let Some(inner) = weak.upgrade() else { return false };
    sweep_overdue(&inner).await;
    if count.is_multiple_of(TICKS_A_REPAIR) {
        repair(&inner).await;
    }
    if count.is_multiple_of(TICKS_A_REPAIR * REPAIRS_A_MARK) {
        if let Err(fault) = follow_clock(&inner).await {
            tracing::warn!(%fault, "the clock of the store cannot be read");
        }
        mark_all(&inner).await;
        prune(&inner).await;
    }
    true
}

/// One round of everything.
pub(super) async fn sweep(inner: &Arc<Inner>) {
    sweep_overdue(inner).await;
    repair(inner).await;
    mark_all(inner).await;
    prune(inner).await;
}

async fn sweep_overdue(inner: &Arc<Inner>) {
    for look in inner.memory.looks(inner.settings.clock.steady_ms()) {
        let over = look.left_ms == Some(0);
        if !over || !matches!(look.state, State::Parked | State::Approved) {
            continue;
        }
        if let Err(fault) = steps::settle_overdue(inner, &look.id, look.state).await {
            tracing::error!(%fault, card = look.id, "an overdue card could not be settled; it is tried again");
        }
    }
}

async fn repair(inner: &Arc<Inner>) {
    save_unsaved(inner).await;
    end_unmade(inner).await;
    let looks = inner.memory.looks(inner.settings.clock.steady_ms());
    let stored = match inner.store.standing().await {
        Ok(stored) => stored,
        Err(fault) => {
            tracing::error!(%fault, "the parked calls cannot be read");
            return;
        }
    };
    for standing in &stored {
        if let Err(fault) = repair_stored(inner, standing).await {
            tracing::error!(%fault, card = standing.id, "a card could not be repaired");
        }
    }
    let stored: HashSet<_> = stored.iter().map(|standing| standing.id.as_str()).collect();
    for look in looks {
        if !stored.contains(look.id.as_str()) {
            repair_forgotten(inner, &look).await;
        } else if look.state == State::Approved && look.wanted {
            execute::offer(inner, &look.id);
        }
    }
}

// A live card of the store: memory must know its latest version, and what executes must run.
async fn repair_stored(inner: &Arc<Inner>, standing: &Standing) -> Result<(), StoreFault> {
    let id = standing.id.as_str();
    if inner.unmade.lock().iter().any(|other| other == id) {
        return Ok(());
    }
    let known = inner.memory.card(id);
    if known.as_ref().is_none_or(|card| card.version() < standing.version) {
        // Read again: it may have settled since the list was made.
        let Some(card) = inner.store.card(id).await? else { return Ok(()) };
        match known {
            Some(_) => steps::publish(inner, &card, None),
            None if card.state().is_settled() => return Ok(()),
            None => {
                join::adopt(inner, &card);
                steps::desert(inner, id, Event::Detach).await;
            }
        }
    }
    let unsaved = inner.unsaved.lock().iter().any(|(other, _)| other == id);
    if standing.state == State::Executing && !inner.memory.claimed(id) && !unsaved {
        let why = "the gateway lost track of it".to_owned();
        advance(inner, id, &Event::Lose { why }).await?;
    }
    Ok(())
}

// A card that memory thinks is live and the store does not list: settled without our knowing.
async fn repair_forgotten(inner: &Arc<Inner>, look: &Look) {
    if let Ok(Some(card)) = inner.store.card(&look.id).await
        && card.state().is_settled()
    {
        let kept = inner.store.kept(&look.id).await.ok().flatten();
        steps::publish(inner, &card, Some(steps::told(&card, kept.as_ref())));
    }
}

async fn end_unmade(inner: &Arc<Inner>) {
    let unmade: Vec<String> = inner.unmade.lock().clone();
    for id in unmade {
        match advance(inner, &id, &Event::Cancel).await {
            Ok(()) => inner.unmade.lock().retain(|other| *other != id),
            Err(fault) => tracing::error!(%fault, card = id, "a card could not be ended"),
        }
    }
}

async fn save_unsaved(inner: &Arc<Inner>) {
    let unsaved: Vec<(String, Executed)> = inner.unsaved.lock().clone();
    for (id, executed) in unsaved {
        match execute::settle(inner, &id, &executed).await {
            Ok(()) => inner.unsaved.lock().retain(|(other, _)| *other != id),
            Err(fault) => tracing::error!(%fault, card = id, "the end of a call cannot be stored"),
        }
    }
}

// Writes down the time left, so that a restart after a clock jump knows what has passed.
async fn mark_all(inner: &Arc<Inner>) {
    let clock = &inner.settings.clock;
    let (steady_ms, now_ms) = (clock.steady_ms(), clock.wall_ms());
    let mark = |look: Look| {
        let event = Event::Mark { left_ms: look.left_ms? };
        step(&*inner.memory.card(&look.id)?, event, now_ms).ok()
    };
    let moved = inner.memory.looks(steady_ms).into_iter().filter_map(mark).collect();
    if let Err(fault) = steps::commit_all(inner, moved).await {
        tracing::warn!(%fault, "the time left of the parked calls could not be stored");
    }
}

// As long as there is something to remove, a little at a time, so that nobody waits for it long.
async fn prune(inner: &Arc<Inner>) {
    let now_ms = inner.settings.clock.wall_ms();
    let before =
        |keep: Duration| now_ms.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    let retention = Retention {
        now_ms,
        cards_before_ms: before(inner.settings.card_keep),
        events_before_ms: before(inner.settings.event_keep),
    };
    for _ in 0..PRUNINGS_MAX {
        match inner.store.prune(&retention).await {
            Ok(pruned) if pruned == Pruned::default() => return,
            Ok(pruned) => inner.pruned.lock().add(&pruned),
            Err(fault) => {
                tracing::warn!(%fault, "what is old could not be removed");
                return;
            }
        }
    }
}

/// Takes over the clock of the store.
pub(super) async fn follow_clock(inner: &Arc<Inner>) -> Result<(), StoreFault> {
    let ahead_ms = inner.store.clock_offset_ms().await?;
    inner.settings.clock.follow(ahead_ms);
    Ok(())
}

// Moves a card where it does not matter if somebody else moved it before.
async fn advance(inner: &Arc<Inner>, id: &str, event: &Event) -> Result<(), StoreFault> {
    match steps::advance(inner, id, event, None).await {
        Ok(_) | Err(Stuck::Missing | Stuck::Unmoved(..)) => Ok(()),
        Err(Stuck::Store(fault)) => Err(fault),
    }
}

/// Starts nothing any more and settles what runs.
pub(super) async fn shutdown(inner: &Arc<Inner>) {
    inner.stopping.send_replace(true);
    if inner.tasks.drain(inner.settings.drain).await {
        mark_all(inner).await;
        return;
    }
    for look in inner.memory.looks(inner.settings.clock.steady_ms()) {
        if look.state != State::Executing {
            continue;
        }
        let why = "the gateway stopped while it ran".to_owned();
        if let Err(fault) = advance(inner, &look.id, &Event::Lose { why }).await {
            tracing::error!(%fault, card = look.id, "a running call could not be settled");
        }
    }
    inner.tasks.abort();
    mark_all(inner).await;
}
