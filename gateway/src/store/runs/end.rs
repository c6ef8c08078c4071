//! The end of runs: with all their cards and all runs below, in one transaction, or not at all.
//!
//! The rows of the runs are changed first. From then on nobody adds a card or a run to them:
//! who does holds the row, so it was there before and is seen by the checks, or it comes after
//! and finds the run ended.

use super::super::change::Change;
use super::super::statement::{Guard, IDS_MAX, Statement};
use super::super::work::{Batch, Work, Wrote};
use super::super::{Store, StoreFault, events};
use super::{RUN_DEPTH_MAX, RunEnd};

impl Store {
    /// Ends these runs, commits the steps that settle their cards, and voids their grants.
    /// `false`, and nothing changed, if a step was overtaken, a live card of the runs has no
    /// step, or a live run below them is not named: read again and repeat.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn end_runs(
        &self,
        ids: &[String],
        end: &RunEnd,
        changes: &[Change],
    ) -> Result<bool, StoreFault> {
        // In one order, so that two that end the same runs do not wait for each other.
        let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        ids.sort_unstable();
        let mut batches: Vec<Batch> = ids.iter().map(|id| end_one(id, end)).collect();
        for change in changes {
            batches.push(self.step(change, Guard::OrUndo)?);
        }
        for some in ids.chunks(IDS_MAX) {
            batches.push(Batch::of(no_live_card(some)).then(no_live_run_below(some)));
        }
        match self.write(Work { batches }).await? {
            Wrote::Each(_) => Ok(true),
            Wrote::Undone => Ok(false),
        }
    }
}

fn end_one(id: &str, end: &RunEnd) -> Batch {
    let run = Statement::change(
        "UPDATE runs SET ended_ms = $1, ended_why = $2 WHERE id = $3 AND ended_ms IS NULL",
    )
    .with(end.at_ms)
    .with(end.why.as_str())
    .with(id)
    .guarded(Guard::OrSkip);
    let grants =
        Statement::change("UPDATE grants SET ended_ms = $1 WHERE run = $2 AND ended_ms IS NULL")
            .with(end.at_ms)
            .with(id);
    Batch::of(run).then(grants).telling(events::of_run(id, "ended", end.at_ms))
}

fn no_live_card(runs: &[&str]) -> Statement {
    Statement::rows("SELECT id FROM cards WHERE state IN ('parked', 'approved', 'executing')")
        .then(" AND run IN ")
        .then_list(runs.iter().copied())
        .then(" LIMIT 1")
        .guarded(Guard::NoneOrUndo)
}

fn no_live_run_below(runs: &[&str]) -> Statement {
    Statement::rows("WITH RECURSIVE below (id, level) AS (SELECT id, 0 FROM runs WHERE parent IN ")
        .then_list(runs.iter().copied())
        .then(
            " UNION SELECT runs.id, below.level + 1 FROM runs JOIN below ON runs.parent = below.id",
        )
        .then(" WHERE below.level < ")
        .then_value(RUN_DEPTH_MAX)
        .then(
            ") SELECT id FROM runs WHERE ended_ms IS NULL AND id IN (SELECT id FROM below) LIMIT 1",
        )
        .guarded(Guard::NoneOrUndo)
}
