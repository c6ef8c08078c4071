//! Tasks that a subscriber follows (SEP-2663, `notifications/tasks`).

use super::members;
use crate::mcp::envelope::Raw;
use crate::parked::{Caller, Settlement};
use crate::shared::Shared;
use portcullis_policy::ledger::{Card, State};
use std::sync::Arc;
use tokio::sync::watch;

/// Most tasks that one stream follows.
pub(crate) const TASKS_MAX: usize = 100;

/// The tasks of one stream.
#[derive(Debug)]
pub(crate) struct Follow {
    shared: Arc<Shared>,
    caller: Caller,
    changes: watch::Receiver<u64>,
    // Each with the state it was told in last.
    tasks: Vec<(String, Option<State>)>,
}

impl Follow {
    /// Follows those of `ids` that are tasks of `caller`; others do not exist for it.
    pub(crate) async fn new(shared: &Arc<Shared>, caller: Caller, ids: Vec<String>) -> Self {
        // Followed before the first look, so that nothing happens between them unseen.
        let changes = shared.parked.changes();
        let mut tasks = Vec::new();
        for id in ids.into_iter().take(TASKS_MAX) {
            if let Ok((card, settlement)) = shared.parked.poll(&caller, &id).await {
                // One that has ended is told of at once: nothing will happen to it any more.
                let told = settlement.is_none().then(|| card.state());
                tasks.push((id, told));
            }
        }
        Self { shared: Arc::clone(shared), caller, changes, tasks }
    }

    /// The ids of the tasks.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.tasks.iter().map(|(id, _)| id.as_str())
    }

    /// Resolves when something happened to some card.
    pub(crate) async fn changed(&mut self) {
        if self.tasks.is_empty() || self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The notifications of all that was not told yet, under the id of the subscription, each
    /// with the task if it has ended.
    pub(crate) async fn news(&mut self, subscription: &Raw) -> Vec<(String, Option<String>)> {
        let mut news = Vec::new();
        for (id, told) in &mut self.tasks {
            let live = self.shared.parked.live_card(id);
            if live.is_some_and(|card| Some(card.state()) == *told) {
                continue;
            }
            // The store knows how it ended; what cannot be read now is read at the next change.
            let Ok((card, settlement)) = self.shared.parked.poll(&self.caller, id).await else {
                continue;
            };
            if Some(card.state()) != *told {
                *told = Some(card.state());
                let task = (&card, settlement.as_ref());
                let ended = settlement.is_some().then(|| id.clone());
                news.push((notification(&self.shared, task, subscription), ended));
            }
        }
        // Nothing happens any more to what has ended.
        self.tasks.retain(|(_, told)| !told.is_some_and(State::is_settled));
        news
    }
}

fn notification(
    shared: &Shared,
    (card, settlement): (&Card, Option<&Settlement>),
    subscription: &Raw,
) -> String {
    let task = members(shared, card, settlement);
    // They end with `_meta`: its brace and that of the whole.
    let task = task.strip_suffix("}}").unwrap_or(&task);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks\",\"params\":{{{task},\"io.modelcontextprotocol/subscriptionId\":{}}}}}}}",
        subscription.as_str()
    )
}
