//! A caller's place in the wait for one card.

use super::memory::{News, Seat};
use super::{Inner, Settlement, step};
use bytes::Bytes;
use portcullis_policy::ledger::{Card, Event, words};
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// What a waiting caller hears.
#[derive(Debug, Clone)]
pub enum TicketEvent {
    /// Progress of the running call: the `params` of one notification.
    Progress(Bytes),
    /// The end of the wait.
    Settled(Settlement),
}

/// A caller that waits. While it lives, an approved call may run; dropping it without
/// [`Ticket::delivered`] or [`Ticket::told_pending`] says that the caller left.
#[derive(Debug)]
pub struct Ticket {
    inner: Arc<Inner>,
    id: String,
    how: How,
    news: watch::Receiver<News>,
    progress: broadcast::Receiver<Bytes>,
    end: End,
}

/// Whether the caller has what was written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It has.
    Surely,
    /// It may have given up before, without a word.
    Perhaps,
}

/// How long an answer that perhaps nobody read is kept for the identical call, in milliseconds:
/// clients that repeat a call by themselves do so within seconds.
const REPEAT_MS: u64 = 20_000;

/// How a ticket came to its card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It made the card.
    Made,
    /// The card was there and lives.
    Joined,
    /// The card is settled and its answer is handed out again.
    Replayed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Told,
    Delivered,
}

impl Ticket {
    pub(super) fn seated(inner: &Arc<Inner>, id: &str, how: How, seat: Seat) -> Self {
        inner.memory.hold(id);
        Self {
            inner: Arc::clone(inner),
            id: id.to_owned(),
            how,
            news: seat.news,
            progress: seat.progress,
            end: End::Left,
        }
    }

    /// A ticket whose wait is over before it begins.
    pub(super) fn settled(inner: &Arc<Inner>, card: Card, settlement: Settlement) -> Self {
        let id = card.id().to_owned();
        let news = News { card: Arc::new(card), settled: Some(settlement) };
        let seat = Seat {
            news: watch::Sender::new(news).subscribe(),
            progress: broadcast::Sender::new(1).subscribe(),
        };
        Self::seated(inner, &id, How::Replayed, seat)
    }

    /// The card's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// True if the card was there before this call.
    #[must_use]
    pub fn joined(&self) -> bool {
        self.how != How::Made
    }

    /// True if its card is not settled.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.news.borrow().settled.is_none()
    }

    /// The card as last published.
    #[must_use]
    pub fn card(&self) -> Arc<Card> {
        Arc::clone(&self.news.borrow().card)
    }

    /// What to tell a caller that cannot be held any longer.
    #[must_use]
    pub fn pending_text(&self) -> String {
        words::pending(&self.card())
    }

    /// Waits for what comes next. After the settlement it returns the settlement again. May be
    /// dropped and called again: nothing is lost but progress that queues too long.
    pub async fn next(&mut self) -> TicketEvent {
        loop {
            if let Some(settlement) = self.news.borrow_and_update().settled.clone() {
                return TicketEvent::Settled(settlement);
            }
            // Both arms only receive, so dropping either loses nothing.
            let progress = tokio::select! {
                biased;
                changed = self.news.changed() => match changed {
                    Ok(()) => continue,
                    // The card left memory unsettled, so the gateway is going away.
                    Err(_) => return std::future::pending().await,
                },
                progress = self.progress.recv() => progress,
            };
            match progress {
                Ok(params) => return TicketEvent::Progress(params),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => self.closed().await,
            }
        }
    }

    /// The gateway wrote the last byte of the settlement: the answer is not kept any more, or,
    /// if nobody may have read it, only for a repeat that comes at once.
    pub async fn delivered(mut self, reached: Reached) {
        let Some(settlement) = self.news.borrow().settled.clone() else {
            self.end = End::Told;
            return;
        };
        self.end = End::Delivered;
        // A denial is said once more to whoever repeats the call; all else is said once.
        if matches!(settlement, Settlement::NotRun { .. }) && self.how != How::Replayed {
            return;
        }
        let inner = Arc::clone(&self.inner);
        let id = self.id.clone();
        let keep_ms = inner.settings.clock.wall_ms().saturating_add(REPEAT_MS);
        let work = async move {
            match reached {
                Reached::Surely => inner.store.deliver(&id).await,
                Reached::Perhaps => inner.store.keep_until(&id, keep_ms).await,
            }
        };
        if let Some(Err(fault)) = self.inner.tasks.own(work).await {
            tracing::warn!(%fault, card = self.id, "a delivered answer may be handed out again");
        }
    }

    /// The gateway told the caller that its call is pending and how to collect it: the card
    /// stays, whatever the policy says about callers that leave.
    pub fn told_pending(mut self) {
        self.end = End::Told;
    }

    // No progress will come; only the news can change.
    async fn closed(&mut self) {
        if self.news.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.news.mark_changed();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.inner.memory.let_go(&self.id);
        if self.how == How::Replayed || !self.inner.memory.rise(&self.id) {
            return;
        }
        // At shutdown every caller leaves, and that ends no card.
        if *self.inner.stopping.borrow() {
            return;
        }
        let event = match self.end {
            End::Left => Event::Leave,
            End::Told | End::Delivered => Event::Detach,
        };
        let (inner, id) = (Arc::clone(&self.inner), self.id.clone());
        self.inner.tasks.spawn(async move { step::desert(&inner, &id, event).await });
    }
}
