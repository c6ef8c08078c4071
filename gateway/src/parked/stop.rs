//! The end of a run and of all below it, with their cards.

use super::{Inner, StopError, Stopped, step as steps};
use crate::store::{Change, Cursor, Filter, LIST_ITEMS_MAX, RunEnd, Store, StoreFault};
use portcullis_policy::ledger::{Card, Effect, Event, State, step};
use std::sync::Arc;

/// Most tries to end a run that moves meanwhile: whoever stops it lets nothing new begin.
const TRIES_MAX: usize = 200;

/// Ends the live run `root` and all below it.
pub(super) async fn stop(inner: &Arc<Inner>, root: &str, why: &str) -> Result<Stopped, StopError> {
    let event = Event::Stop { why: why.to_owned() };
    for _ in 0..TRIES_MAX {
        let runs = inner.store.subtree(root).await?;
        if runs.is_empty() {
            return Ok(Stopped::default());
        }
        let ids: Vec<String> = runs.iter().map(|run| run.id.clone()).collect();
        let now_ms = inner.settings.clock.wall_ms();
        let mut moved: Vec<(Card, Vec<Effect>)> = Vec::new();
        for card in live_of(inner, &ids).await? {
            moved.extend(step(&card, event.clone(), now_ms).ok());
        }
        let changes: Vec<Change> =
            moved.iter().map(|(card, _)| steps::change(inner, card, None)).collect();
        let end = RunEnd { at_ms: now_ms, why: why.to_owned() };
        // Overtaken by a call, a decision or a new run below: look again.
        if !inner.store.end_runs(&ids, &end, &changes).await? {
            continue;
        }
        let mut cards = Vec::with_capacity(moved.len());
        for (card, effects) in moved {
            steps::apply(inner, &card, &effects, None);
            cards.push(card);
        }
        return Ok(Stopped { runs, cards });
    }
    Err(StopError::Restless)
}

async fn live_of(inner: &Arc<Inner>, runs: &[String]) -> Result<Vec<Card>, StoreFault> {
    let mut filter = Filter {
        states: vec![State::Parked, State::Approved, State::Executing],
        runs: runs.to_vec(),
        ..Filter::default()
    };
    list_all(&inner.store, &mut filter).await
}

/// All cards of `filter`, page after page.
pub(super) async fn list_all(store: &Store, filter: &mut Filter) -> Result<Vec<Card>, StoreFault> {
    let mut cards = Vec::new();
    loop {
        let page = store.list(filter).await?;
        let whole = page.len() < LIST_ITEMS_MAX as usize;
        filter.after = page
            .last()
            .map(|card| Cursor { created_ms: card.created_ms(), id: card.id().to_owned() });
        cards.extend(page);
        if whole {
            return Ok(cards);
        }
    }
}
