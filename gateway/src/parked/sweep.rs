//! What happens without a caller: recovery at start, limits of time, repair, shutdown.

use super::memory::Look;
use super::step::{self, Stuck};
use super::{Executed, Inner, execute, join};
use crate::store::StoreFault;
use portcullis_policy::ledger::{Card, Event, State};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often limits of time are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How many ticks lie between two repairs.
const TICKS_A_REPAIR: u32 = 20;
/// How many repairs lie between two marks of the time left.
const REPAIRS_A_MARK: u32 = 12;

/// Takes up the cards of the store after a start.
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<(), StoreFault> {
    for card in inner.store.unsettled().await? {
        join::adopt(inner, &card);
        if card.state() == State::Executing {
            let why = "the gateway restarted while it ran".to_owned();
            advance(inner, card.id(), &Event::Lose { why }).await?;
            continue;
        }
        // The connections of before are gone, and with them the callers.
        advance(inner, card.id(), &Event::Leave).await?;
        mark(inner, card.id()).await?;
    }
    sweep_overdue(inner).await;
    Ok(())
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
        let waits = matches!(look.state, State::Parked | State::Approved);
        if waits && look.left_ms == Some(0) {
            step::settle_overdue(inner, &look.id, look.state).await;
        }
    }
}

async fn repair(inner: &Arc<Inner>) {
    save_unsaved(inner).await;
    let looks = inner.memory.looks(inner.settings.clock.steady_ms());
    let stored = match inner.store.unsettled().await {
        Ok(stored) => stored,
        Err(fault) => {
            tracing::error!(%fault, "the parked calls cannot be read");
            return;
        }
    };
    for card in &stored {
        repair_stored(inner, card).await;
    }
    let stored: HashSet<_> = stored.iter().map(Card::id).collect();
    for look in looks {
        if !stored.contains(look.id.as_str()) {
            repair_forgotten(inner, &look).await;
        } else if look.state == State::Approved && look.waited_for {
            execute::offer(inner, &look.id);
        }
    }
}

// A live card of the store: memory must know it, and what executes must be running.
async fn repair_stored(inner: &Arc<Inner>, card: &Card) {
    if inner.memory.card(card.id()).is_none() {
        // Read again: it may have settled since the list was made.
        if let Ok(Some(card)) = inner.store.card(card.id()).await
            && !card.state().is_settled()
        {
            join::adopt(inner, &card);
            step::desert(inner, card.id(), Event::Detach).await;
        }
        return;
    }
    step::publish(inner, card, None);
    let unsaved = || inner.unsaved.lock().iter().any(|(id, _)| id == card.id());
    if card.state() == State::Executing && !inner.memory.claimed(card.id()) && !unsaved() {
        let why = "the gateway lost track of it".to_owned();
        if let Err(fault) = advance(inner, card.id(), &Event::Lose { why }).await {
            tracing::error!(%fault, card = card.id(), "a lost call could not be settled");
        }
    }
}

// A card that memory thinks is live and the store does not list: settled without our knowing.
async fn repair_forgotten(inner: &Arc<Inner>, look: &Look) {
    if let Ok(Some(card)) = inner.store.card(&look.id).await
        && let Some(settlement) = step::settlement(&card, None)
    {
        let kept = inner.store.kept(&look.id).await.ok().flatten();
        let settlement = kept.map_or(settlement, |kept| step::told(&card, Some(&kept)));
        step::publish(inner, &card, Some(settlement));
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

async fn mark_all(inner: &Arc<Inner>) {
    for look in inner.memory.looks(inner.settings.clock.steady_ms()) {
        if look.left_ms.is_some()
            && !look.claimed
            && let Err(fault) = mark(inner, &look.id).await
        {
            tracing::warn!(%fault, card = look.id, "the time left of a card could not be stored");
        }
    }
}

// Writes down the time left, so that a restart after a clock jump knows what has passed.
async fn mark(inner: &Arc<Inner>, id: &str) -> Result<(), StoreFault> {
    match inner.memory.left_ms(id, inner.settings.clock.steady_ms()) {
        Some(left_ms) => advance(inner, id, &Event::Mark { left_ms }).await,
        None => Ok(()),
    }
}

async fn prune(inner: &Arc<Inner>) {
    let now_ms = inner.settings.clock.wall_ms();
    let keep_ms = u64::try_from(inner.settings.card_keep.as_millis()).unwrap_or(u64::MAX);
    if let Err(fault) = inner.store.prune(now_ms, now_ms.saturating_sub(keep_ms)).await {
        tracing::warn!(%fault, "old cards and answers could not be removed");
    }
}

// Moves a card where it does not matter if somebody else moved it before.
async fn advance(inner: &Arc<Inner>, id: &str, event: &Event) -> Result<(), StoreFault> {
    match step::advance(inner, id, event, None).await {
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
        inner.memory.abort(&look.id);
    }
    inner.tasks.abort();
    mark_all(inner).await;
}
