//! Runs: who works for whom, until when. A run that has ended takes no card and no run below.

mod end;

use super::cards::{Cursor, Order, of_agents, page};
use super::fault::Misfit;
use super::row::Row;
use super::statement::{Guard, Statement};
use super::work::{Batch, Work};
use super::{Store, StoreFault, events};
use portcullis_policy::ledger::Deadline;
use portcullis_policy::name::AgentName;

/// Most runs between a run and the one it began with.
pub const RUN_DEPTH_MAX: u64 = 64;

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// Its name.
    pub id: String,
    /// Whose run it is.
    pub agent: AgentName,
    /// The run it was started for.
    pub parent: Option<String>,
    /// The run that a credential has without asking; it may be revived.
    pub unnamed: bool,
    /// SHA-256 of its token.
    pub token: Option<[u8; 32]>,
    /// What it may use of what its agent may.
    pub narrow: Option<String>,
    /// No person looks after it.
    pub unattended: bool,
    /// Wall time of its start.
    pub created_ms: u64,
    /// Who started it.
    pub created_by: String,
    /// When it ends by itself.
    pub deadline: Option<Deadline>,
    /// That it has ended.
    pub ended: Option<RunEnd>,
}

impl RunRow {
    /// The run of a credential of `agent`, which nobody started.
    #[must_use]
    pub fn unnamed(id: &str, agent: &AgentName, now_ms: u64) -> Self {
        Self {
            id: id.to_owned(),
            agent: agent.clone(),
            parent: None,
            unnamed: true,
            token: None,
            narrow: None,
            unattended: false,
            created_ms: now_ms,
            created_by: "its credential".to_owned(),
            deadline: None,
            ended: None,
        }
    }
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// Wall time.
    pub at_ms: u64,
    /// Why, as a clause.
    pub why: String,
}

/// Which runs to list, oldest first.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Of these agents; empty is every agent.
    pub agents: Vec<AgentName>,
    /// Started for this run.
    pub parent: Option<String>,
    /// Only those that have not ended.
    pub live: bool,
    /// After this run of an earlier list.
    pub after: Option<Cursor>,
    /// At most this many; 0 is [`LIST_ITEMS_MAX`](super::LIST_ITEMS_MAX).
    pub limit: u32,
}

/// What a beginning of a run's id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunNamed {
    /// Exactly this run.
    One(Box<RunRow>),
    /// No run.
    None,
    /// More than one run.
    Several,
}

const SELECT: &str = "SELECT id, agent, parent, unnamed, token, narrow, unattended, created_ms, \
     created_by, left_ms, marked_ms, ended_ms, ended_why FROM runs";

impl Store {
    /// Adds a run. `false` if its parent is not live or too deep, or the id is taken.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn insert_run(&self, run: &RunRow) -> Result<bool, StoreFault> {
        let held = run.parent.as_deref().map(|parent| {
            let deepest = hold_live(parent).then(" AND depth < ").then_value(RUN_DEPTH_MAX);
            deepest.guarded(Guard::OrSkip)
        });
        let mut batch = ensure(run);
        batch.statements.splice(0..0, held);
        Ok(self.write_one(batch).await?.counts())
    }

    /// Adds a run that may be there already; one that has ended stays so.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn ensure_run(&self, run: &RunRow) -> Result<(), StoreFault> {
        self.write_one(ensure(run)).await?;
        Ok(())
    }

    /// Takes back the end of these runs, those that are unnamed. Says of how many.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn revive_runs(&self, ids: &[String]) -> Result<u64, StoreFault> {
        let revive =
            |id: &String| {
                let statement = Statement::change(
                    "UPDATE runs SET ended_ms = NULL, ended_why = NULL \
                 WHERE id = $1 AND unnamed = 1 AND ended_ms IS NOT NULL",
                );
                Batch::of(statement.with(id.as_str()).guarded(Guard::OrSkip))
                    .telling(events::of_run(id, "live", events::now_ms()))
            };
        let work = Work { batches: ids.iter().map(revive).collect() };
        let revived = self.write_each(work).await?.iter().filter(|ran| ran.counts()).count();
        Ok(revived.try_into().unwrap_or(u64::MAX))
    }

    /// The run of that id.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn run(&self, id: &str) -> Result<Option<RunRow>, StoreFault> {
        self.read_one(&Statement::rows(SELECT).then(" WHERE id = ").then_value(id), parse).await
    }

    /// The run whose id starts with `prefix`, with or without `run_`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn run_named(&self, prefix: &str) -> Result<RunNamed, StoreFault> {
        let prefix = prefix.strip_prefix("run_").unwrap_or(prefix);
        let statement = Statement::rows(SELECT)
            .then(" WHERE id >= ")
            .then_value(format!("run_{prefix}"))
            // Ids are ASCII, so everything that starts with the prefix sorts before this.
            .then(" AND id < ")
            .then_value(format!("run_{prefix}\u{7f}"))
            .then(" LIMIT 2");
        let mut runs = self.read(&statement, parse).await?;
        Ok(match (runs.pop(), runs.is_empty()) {
            (None, _) => RunNamed::None,
            (Some(run), true) => RunNamed::One(Box::new(run)),
            (Some(_), false) => RunNamed::Several,
        })
    }

    /// The live runs among this one and all that were started for it, however far below; the
    /// nearest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn subtree(&self, id: &str) -> Result<Vec<RunRow>, StoreFault> {
        // Through runs that have ended as well: what lives below them is not out of reach.
        let statement = Statement::rows(
            "WITH RECURSIVE tree (id, level) AS (SELECT id, 0 FROM runs WHERE id = ",
        )
        .then_value(id)
        .then(" UNION SELECT runs.id, tree.level + 1 FROM runs JOIN tree ON runs.parent = tree.id")
        .then(" WHERE tree.level < ")
        .then_value(RUN_DEPTH_MAX)
        .then(") ")
        .then(SELECT)
        .then(" WHERE ended_ms IS NULL AND id IN (SELECT id FROM tree)")
        .then(" ORDER BY depth, created_ms, id");
        self.read(&statement, parse).await
    }

    /// Every run that has not ended, named or not, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn live_runs(&self) -> Result<Vec<RunRow>, StoreFault> {
        let statement = Statement::rows(SELECT);
        let statement = statement.then(" WHERE ended_ms IS NULL ORDER BY created_ms, id");
        self.read(&statement, parse).await
    }

    /// The runs of `filter`, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list_runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreFault> {
        let mut statement = Statement::rows(SELECT).then(" WHERE 1 = 1");
        statement = of_agents(statement, " AND lower(agent) IN ", &filter.agents);
        if let Some(parent) = &filter.parent {
            statement = statement.then(" AND parent = ").then_value(parent.as_str());
        }
        if filter.live {
            statement = statement.then(" AND ended_ms IS NULL");
        }
        self.read(&page(statement, filter.after.as_ref(), filter.limit, Order::Oldest), parse).await
    }

    /// Writes down the time left of runs. It only gets shorter.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn mark_runs(&self, marks: &[(String, Deadline)]) -> Result<(), StoreFault> {
        let mark = |(id, deadline): &(String, Deadline)| {
            let statement = Statement::change(
                "UPDATE runs SET marked_ms = $1, \
                 left_ms = CASE WHEN left_ms < $2 THEN left_ms ELSE $2 END \
                 WHERE id = $3 AND left_ms IS NOT NULL AND ended_ms IS NULL",
            );
            Batch::of(statement.with(deadline.written_ms).with(deadline.left_ms).with(id.as_str()))
        };
        if !marks.is_empty() {
            self.write_each(Work { batches: marks.iter().map(mark).collect() }).await?;
        }
        Ok(())
    }
}

/// Adds a run unless it is there.
pub(super) fn ensure(run: &RunRow) -> Batch {
    let insert = Statement::change(
        "INSERT INTO runs (id, agent, parent, depth, unnamed, token, narrow, unattended, \
         created_ms, created_by, left_ms, marked_ms, ended_ms, ended_why) \
         VALUES ($1, $2, $3, COALESCE((SELECT depth + 1 FROM runs AS above WHERE above.id = $3), 0), \
         $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING",
    )
    .with(run.id.as_str())
    .with(run.agent.as_str())
    .with(run.parent.as_deref())
    .with(run.unnamed)
    .with(run.token.as_ref())
    .with(run.narrow.as_deref())
    .with(run.unattended)
    .with(run.created_ms)
    .with(run.created_by.as_str())
    .with(run.deadline.map(|deadline| deadline.left_ms))
    .with(run.deadline.map(|deadline| deadline.written_ms))
    .with(run.ended.as_ref().map(|end| end.at_ms))
    .with(run.ended.as_ref().map(|end| end.why.as_str()));
    Batch::of(insert.guarded(Guard::OrSkip)).telling(events::of_run(
        &run.id,
        "live",
        run.created_ms,
    ))
}

/// Finds the run if it is live, and keeps it so until the work is committed.
pub(super) fn hold_live(id: &str) -> Statement {
    Statement::rows("SELECT depth FROM runs WHERE ended_ms IS NULL AND id = $1").with(id).locked()
}

fn parse(row: &mut Row) -> Result<RunRow, Misfit> {
    Ok(RunRow {
        id: row.text()?,
        agent: AgentName::new(&row.text()?)?,
        parent: row.text_or_null()?,
        unnamed: row.flag()?,
        token: row.hash_or_null()?,
        narrow: row.text_or_null()?,
        unattended: row.flag()?,
        created_ms: row.big()?,
        created_by: row.text()?,
        deadline: deadline(row.big_or_null()?, row.big_or_null()?),
        ended: end(row.big_or_null()?, row.text_or_null()?),
    })
}

fn deadline(left_ms: Option<u64>, written_ms: Option<u64>) -> Option<Deadline> {
    Some(Deadline { left_ms: left_ms?, written_ms: written_ms? })
}

fn end(at_ms: Option<u64>, why: Option<String>) -> Option<RunEnd> {
    Some(RunEnd { at_ms: at_ms?, why: why.unwrap_or_default() })
}
