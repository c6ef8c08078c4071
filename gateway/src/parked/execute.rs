//! Running an approved call: judged anew, committed as executing, then run, once.

use super::memory::Start;
use super::step::{self as steps, Stuck};
use super::{Executed, Inner};
use crate::store::StoreFault;
use portcullis_policy::decide::{NotNow, Permit};
use portcullis_policy::ledger::{Card, Effect, Event, Outcome, State, step};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// Pauses before the end of a call is committed once more.
const FINISH_PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(1)];

/// Starts the execution of an approved card, if somebody waits for it.
pub(super) fn offer(inner: &Arc<Inner>, id: &str) {
    let begun = inner.begun.load(Ordering::SeqCst);
    if !begun || *inner.stopping.borrow() || !inner.memory.claim(id) {
        return;
    }
    let (work, id) = (Arc::clone(inner), id.to_owned());
    inner.tasks.spawn(async move {
        let deserted = execute(&work, &id).await;
        work.memory.release(&id);
        if deserted {
            // Whoever came since found the execution taken care of.
            offer(&work, &id);
        }
    });
}

enum Consumed {
    Ready(Box<Card>, Permit),
    // Its last caller left before; the approval is unused.
    Deserted,
    // It is not approved any more: whoever did that told the waiters.
    Over,
}

// True if the approval is unused since nobody waited.
async fn execute(inner: &Arc<Inner>, id: &str) -> bool {
    let (card, permit) = match consume(inner, id).await {
        Ok(Consumed::Ready(card, permit)) => (card, permit),
        Ok(Consumed::Deserted) => return true,
        Ok(Consumed::Over) => return false,
        Err(fault) => {
            tracing::error!(%fault, card = id, "an approved call did not start; it is tried again");
            return false;
        }
    };
    if let Some(executed) = run(inner, *card, permit).await {
        finish(inner, id, &executed).await;
    }
    false
}

// Uses the approval up: the card is executing in the store, or nothing may run.
async fn consume(inner: &Arc<Inner>, id: &str) -> Result<Consumed, StoreFault> {
    loop {
        let Some(card) = inner.store.card(id).await? else { return Ok(Consumed::Over) };
        if card.state() == State::Approved && steps::overdue(inner, &card) {
            steps::settle_overdue(inner, id, State::Approved).await?;
            return Ok(Consumed::Over);
        }
        let Ok((next, effects)) = step(&card, Event::Execute, inner.settings.clock.wall_ms())
        else {
            return Ok(Consumed::Over);
        };
        let approved = effects.into_iter().find_map(|effect| match effect {
            Effect::Run(approved) => Some(approved),
            Effect::Publish | Effect::Offer | Effect::Abort => None,
        });
        let Some(approved) = approved else { return Ok(Consumed::Over) };
        if let Some(text) = void(inner, &card).await? {
            revoke(inner, id, text).await?;
            return Ok(Consumed::Over);
        }
        let permit = match (inner.runner.judge)(&card, &approved) {
            Ok(permit) => permit,
            // The repair asks again, until the time to use the approval is over.
            Err(NotNow::Away) => return Ok(Consumed::Over),
            Err(NotNow::Revoked(refusal)) => {
                revoke(inner, id, refusal.text).await?;
                return Ok(Consumed::Over);
            }
        };
        // Nothing starts for a caller that is gone, and its approval stays unused.
        if !inner.memory.wanted(id) {
            return Ok(Consumed::Deserted);
        }
        if steps::commit(inner, steps::change(inner, &next, None)).await? {
            steps::apply(inner, &next, &[Effect::Publish], None);
            return Ok(Consumed::Ready(Box::new(next), permit));
        }
    }
}

// Why the standing approval that decided the card counts no more, if it does not.
async fn void(inner: &Arc<Inner>, card: &Card) -> Result<Option<String>, StoreFault> {
    let Some(id) = card.decision().and_then(|decision| decision.grant.as_deref()) else {
        return Ok(None);
    };
    let grant = inner.store.grant(id).await?.filter(|row| row.ended_ms.is_none());
    let now_ms = inner.settings.clock.wall_ms();
    let holds = grant.is_some_and(|row| row.grant.allows(card.asked(), now_ms));
    let text = "The standing approval that covered this call has ended. The call did not run. \
                Repeat it to ask again.";
    Ok((!holds).then(|| text.to_owned()))
}

async fn revoke(inner: &Arc<Inner>, id: &str, text: String) -> Result<(), StoreFault> {
    match steps::advance(inner, id, &Event::Revoke { text }, None).await {
        Ok(_) | Err(Stuck::Missing | Stuck::Unmoved(..)) => Ok(()),
        Err(Stuck::Store(fault)) => Err(fault),
    }
}

// Runs the call in a task of its own: a stop aborts it and a panic ends only it.
async fn run(inner: &Arc<Inner>, card: Card, permit: Permit) -> Option<Executed> {
    let (sender, receiver) = oneshot::channel();
    let id = card.id().to_owned();
    let start = inner.memory.start(&id, |progress| {
        let work = Arc::clone(inner);
        let call = async move {
            let executed = (work.runner.run)(card, permit, progress).await;
            // If nobody receives, the execution was given up and the card says so.
            drop(sender.send(executed));
        };
        inner.tasks.runtime().spawn(call).abort_handle()
    });
    let unknown = |text: &str| Executed::Unknown { text: text.to_owned() };
    match start {
        Start::Begun => {
            let ended = receiver.await;
            Some(ended.unwrap_or_else(|_| unknown("it was broken off while it ran")))
        }
        Start::Deserted => {
            Some(Executed::NotSent { text: "its caller left just before it was sent".to_owned() })
        }
        Start::Ended => None,
    }
}

// The call ended. Its answer is committed before the waiters get it; if the store does not take
// it they get it all the same, and the sweep goes on trying.
async fn finish(inner: &Arc<Inner>, id: &str, executed: &Executed) {
    let mut pauses = FINISH_PAUSES.iter();
    loop {
        match settle(inner, id, executed).await {
            Ok(()) => return,
            Err(fault) => match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => {
                    tracing::error!(%fault, card = id, "the end of a call could not be stored; it is tried again");
                    give_without_store(inner, id, executed);
                    return;
                }
            },
        }
    }
}

/// Commits the end of a call.
pub(super) async fn settle(
    inner: &Arc<Inner>,
    id: &str,
    executed: &Executed,
) -> Result<(), StoreFault> {
    match steps::advance(inner, id, &end(executed), Some(executed)).await {
        // If it was stopped while it ran, its waiters know.
        Ok(_) | Err(Stuck::Missing | Stuck::Unmoved(..)) => Ok(()),
        Err(Stuck::Store(fault)) => Err(fault),
    }
}

fn end(executed: &Executed) -> Event {
    let finish =
        |outcome: Outcome, detail: &str| Event::Finish { outcome, detail: detail.to_owned() };
    match executed {
        Executed::Result { is_error: false, .. } => finish(Outcome::Ok, ""),
        Executed::Result { is_error: true, .. } => finish(Outcome::ToolError, ""),
        Executed::Error { .. } => finish(Outcome::RpcError, ""),
        Executed::NotSent { text } => finish(Outcome::NotSent, text),
        Executed::Unknown { text } => Event::Lose { why: text.clone() },
    }
}

fn give_without_store(inner: &Arc<Inner>, id: &str, executed: &Executed) {
    inner.unsaved.lock().push((id.to_owned(), executed.clone()));
    let card = inner.memory.card(id);
    let ended = card.and_then(|card| {
        let now_ms = inner.settings.clock.wall_ms();
        step(&card, end(executed), now_ms).ok()
    });
    if let Some(settlement) = ended.and_then(|(card, _)| steps::settlement(&card, Some(executed))) {
        inner.memory.answer(id, settlement);
    }
}
