//! Ending a run with all below it.

use super::table::LiveRun;
use super::{CLOSING, Ended, Inner};
use crate::audit::RunChange;
use crate::identity::TokenHash;
use crate::parked::StopError;
use crate::store::RunRow;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Closes at once, settles in the store, then drops what is still open.
pub(super) async fn end(
    inner: &Arc<Inner>,
    id: &str,
    why: &str,
    by: &str,
) -> Result<Ended, StopError> {
    // Known in memory first: nothing new begins, whatever the store does.
    let mut closed: BTreeMap<String, Arc<LiveRun>> = BTreeMap::new();
    for run in inner.table.tree(id) {
        run.lease.close();
        closed.insert(run.id.clone(), run);
    }
    let stopped = inner.parked.stop(id, why).await;
    let rows = match &stopped {
        Ok(stopped) => stopped.runs.as_slice(),
        Err(_) => &[],
    };
    // A run that began meanwhile is in the store and may be in the table.
    for row in rows {
        closed.extend(inner.table.find(&row.id).map(|run| (row.id.clone(), run)));
    }
    for run in closed.values() {
        run.lease.end();
    }
    match stopped {
        Ok(stopped) => {
            for run in closed.values() {
                forget(inner, run);
            }
            record(inner, &stopped.runs, why, by).await;
            vacant(&closed, id).await;
            Ok(Ended { runs: stopped.runs, cards: stopped.cards })
        }
        Err(error) => {
            inner.table.unfinish(id, why, by);
            Err(error)
        }
    }
}

fn forget(inner: &Arc<Inner>, run: &LiveRun) {
    if let Some(token) = run.token {
        inner.tokens.remove(&TokenHash::from(token));
    }
    inner.table.remove(&run.id);
}

// All of them were ended before the first is waited for, and they share one limit.
async fn vacant(closed: &BTreeMap<String, Arc<LiveRun>>, id: &str) {
    let until = Instant::now() + CLOSING;
    for run in closed.values() {
        if !run.lease.vacant(until.saturating_duration_since(Instant::now())).await {
            tracing::warn!(run = id, "something is still open on a run that has ended");
            return;
        }
    }
}

// Writing waits for the disk, so it has a thread of its own.
async fn record(inner: &Arc<Inner>, rows: &[RunRow], why: &str, by: &str) {
    let (audit, rows) = (Arc::clone(&inner.audit), rows.to_vec());
    let (why, by) = (why.to_owned(), by.to_owned());
    let written = tokio::task::spawn_blocking(move || {
        for row in &rows {
            let change = RunChange::Ended { run: &row.id, agent: &row.agent, why: &why, by: &by };
            if let Err(error) = audit.run(&change) {
                tracing::error!(%error, run = row.id, "the end of a run could not be recorded");
            }
        }
    });
    if let Err(error) = written.await {
        tracing::error!(%error, "the end of a run could not be recorded");
    }
}
