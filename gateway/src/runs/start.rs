//! Starting a run.

use super::table::{Coming, DEPTH_MAX};
use super::{Inner, LiveRun};
use crate::audit::{AuditError, RunChange};
use crate::identity::{Kind, Source, Token, TokenEntry, TokenHash, random_id};
use crate::parked::StopError;
use crate::store::{RunRow, StoreFault};
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::ledger::Deadline;
use portcullis_policy::name::AgentName;
use portcullis_policy::narrow::Narrow;
use portcullis_policy::scope::Scope;
use std::sync::Arc;
use std::time::Duration;

/// Most live runs at one time.
pub const RUNS_MAX: usize = 10_000;
/// Most live runs of one agent.
pub const RUNS_OF_AGENT_MAX: usize = 2_000;
/// Most live runs that one run started.
pub const RUNS_OF_PARENT_MAX: usize = 200;

/// A run to start.
#[derive(Debug)]
pub struct NewRun {
    /// The agent.
    pub agent: AgentName,
    /// The run above it.
    pub parent: Option<ParentOf>,
    /// How long it lives; `None` is the usual time.
    pub ttl: Option<Duration>,
    /// What it may reach of what its agent may reach; `None` is all.
    pub narrow: Option<Narrow>,
    /// True if no person watches it.
    pub unattended: bool,
    /// Who starts it, for records.
    pub by: String,
}

/// Who is above a run.
#[derive(Debug, Clone)]
pub enum ParentOf {
    /// This run.
    Run(String),
    /// The unnamed run of this agent, which must have exactly one.
    Agent(AgentName),
}

/// A run that was started.
#[derive(Debug)]
pub struct Started {
    /// The run.
    pub row: RunRow,
    /// Its token, which nobody is shown again.
    pub token: Token,
    /// What it may reach at this moment.
    pub scope: Arc<Scope>,
    /// What is odd about it.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why a run was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartRunError {
    /// No policy defines the agent.
    #[error("no policy defines agent `{0}`; define it, or name one of `GET /v1/agents`")]
    Agent(AgentName),
    /// The parent is not a live run.
    #[error("there is no live run `{0}` that could be the parent")]
    Parent(String),
    /// The parent's agent has no credential, or several.
    #[error(
        "agent `{agent}` has {count} live credentials, so which run is the parent cannot be told; \
         name the run"
    )]
    Parents {
        /// The agent.
        agent: AgentName,
        /// How many.
        count: usize,
    },
    /// Too many runs above one another.
    #[error("there are {DEPTH_MAX} runs above one another already, the most there may be")]
    Depth,
    /// It would live too long.
    #[error("a run lives at most {}; ask for less, or raise `runs.ttlMax`", portcullis_policy::source::spell(*.0))]
    Ttl(Duration),
    /// Too many runs.
    #[error("there are as many live runs as there may be{0}; end some first")]
    Full(&'static str),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// It was started and had to be ended at once, which failed.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Its start cannot be put on record.
    #[error("the start of the run cannot be put on record, so it was not started: {0}")]
    Audit(#[from] AuditError),
    /// No random bits.
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] std::io::Error),
}

/// Starts a run.
pub(super) async fn start(inner: &Arc<Inner>, new: NewRun) -> Result<Started, StartRunError> {
    let generation = inner.scopes.snapshot();
    let Some(defined) = generation.definition.agents.get(&new.agent) else {
        return Err(StartRunError::Agent(new.agent));
    };
    let ttl = new.ttl.unwrap_or(inner.settings.ttl);
    if ttl > inner.settings.ttl_max {
        return Err(StartRunError::Ttl(inner.settings.ttl_max));
    }
    let parent = match &new.parent {
        None => None,
        Some(parent) => Some(above(inner, parent).await?),
    };
    room(inner, &new.agent, parent.as_deref())?;
    let mut diagnostics = Vec::new();
    if let Some(narrow) = &new.narrow {
        diagnostics.extend(defined.narrowed(narrow).1);
    }
    if let Some(parent) = &parent {
        let bound = generation.definition.agents.get(&parent.agent);
        let binds = bound.is_some_and(|p| p.sub_agents.iter().any(|s| s.agent == defined.name));
        if !binds {
            diagnostics.push(unbound(&parent.agent, &defined.name, &defined.location));
        }
    }
    let token = Token::generate(Kind::Run)?;
    let row = RunRow {
        id: random_id("run_")?,
        agent: defined.name.clone(),
        parent: parent.as_ref().map(|parent| parent.id.clone()),
        unnamed: false,
        token: Some(*token.hash().as_bytes()),
        narrow: new.narrow.as_ref().map(Narrow::write),
        unattended: new.unattended || parent.as_ref().is_some_and(|parent| parent.unattended),
        created_ms: inner.clock.wall_ms(),
        created_by: new.by,
        deadline: Some(Deadline { left_ms: ms(ttl), written_ms: inner.clock.wall_ms() }),
        ended: None,
    };
    record(inner, &row).await?;
    if !inner.store.insert_run(&row).await? {
        return Err(StartRunError::Parent(row.parent.unwrap_or_default()));
    }
    let run = take_up(inner, &row);
    // Its parent may have ended since the store took it, and with it the run.
    if parent.is_some_and(|parent| parent.is_over()) {
        super::end::end(inner, &row.id, "its parent ended", "the gateway").await?;
        return Err(StartRunError::Parent(row.parent.unwrap_or_default()));
    }
    let scope = run.scope(&generation).ok_or_else(|| StartRunError::Agent(row.agent.clone()))?;
    Ok(Started { row, token, scope, diagnostics })
}

// On record before it exists: a token that nobody knows of must not be out.
async fn record(inner: &Arc<Inner>, row: &RunRow) -> Result<(), StartRunError> {
    let (audit, row) = (Arc::clone(&inner.audit), row.clone());
    let written = tokio::task::spawn_blocking(move || {
        audit.run(&RunChange::Started {
            run: &row.id,
            agent: &row.agent,
            parent: row.parent.as_deref(),
            narrow: row.narrow.as_deref(),
            by: &row.created_by,
        })
    });
    written.await.map_err(|error| AuditError::Write(std::io::Error::other(error)))??;
    Ok(())
}

/// Takes a live run of the store into the table, with its token.
pub(super) fn take_up(inner: &Arc<Inner>, row: &RunRow) -> Arc<LiveRun> {
    // A narrow that cannot be read any more reaches nothing rather than everything.
    let narrow = row.narrow.as_deref().map(|text| {
        Narrow::read(text).unwrap_or_else(|fault| {
            tracing::error!(%fault, run = row.id, "what a run may reach cannot be read; it reaches nothing");
            Narrow::nothing()
        })
    });
    let left_ms = row.deadline.map(|deadline| deadline.left_at(inner.clock.wall_ms()));
    let run = inner.table.add(Coming {
        id: row.id.clone(),
        agent: row.agent.clone(),
        parent: row.parent.clone(),
        unnamed: row.unnamed,
        narrow,
        unattended: row.unattended,
        token: row.token,
        ends_ms: left_ms.map(|left| inner.clock.steady_ms().saturating_add(left)),
        clock: inner.clock.clone(),
    });
    if let Some(token) = row.token {
        inner.tokens.add(TokenEntry {
            agent: row.agent.clone(),
            hash: TokenHash::from(token),
            expires: None,
            source: Source::Run { id: row.id.clone(), lease: run.lease.clone() },
        });
    }
    run
}

fn room(
    inner: &Arc<Inner>,
    agent: &AgentName,
    parent: Option<&LiveRun>,
) -> Result<(), StartRunError> {
    let (of_agent, below) = inner.table.counts(agent, parent.map(|parent| parent.id.as_str()));
    if below >= RUNS_OF_PARENT_MAX {
        return Err(StartRunError::Full(" below this one"));
    }
    if of_agent >= RUNS_OF_AGENT_MAX {
        return Err(StartRunError::Full(" of this agent"));
    }
    if inner.table.count() >= RUNS_MAX { Err(StartRunError::Full("")) } else { Ok(()) }
}

async fn above(inner: &Arc<Inner>, parent: &ParentOf) -> Result<Arc<LiveRun>, StartRunError> {
    let run = match parent {
        ParentOf::Run(id) => {
            let run = inner.table.find(id).filter(|run| !run.is_over());
            run.ok_or_else(|| StartRunError::Parent(id.clone()))?
        }
        ParentOf::Agent(agent) => unnamed(inner, agent).await?,
    };
    let mut depth = 1;
    let mut next = run.parent.clone();
    while let Some(above) = next.and_then(|id| inner.table.find(&id)) {
        depth += 1;
        next = above.parent.clone();
    }
    if depth >= DEPTH_MAX { Err(StartRunError::Depth) } else { Ok(run) }
}

// The unnamed run of an agent with one credential.
async fn unnamed(inner: &Arc<Inner>, agent: &AgentName) -> Result<Arc<LiveRun>, StartRunError> {
    let mut runs: Vec<_> = inner
        .tokens
        .agents(std::time::SystemTime::now())
        .into_iter()
        .filter(|principal| principal.agent == *agent)
        .map(|principal| (principal.run, principal.agent))
        .collect();
    runs.sort();
    runs.dedup();
    let [(id, agent)] = runs.as_slice() else {
        return Err(StartRunError::Parents { agent: agent.clone(), count: runs.len() });
    };
    ensure(inner, id, agent).await?.ok_or_else(|| StartRunError::Parent(id.clone()))
}

/// Makes sure that the unnamed run of a credential is there; `None` if it has ended.
pub(super) async fn ensure(
    inner: &Arc<Inner>,
    id: &str,
    agent: &AgentName,
) -> Result<Option<Arc<LiveRun>>, StoreFault> {
    if let Some(run) = inner.table.find(id) {
        return Ok(Some(run).filter(|run| !run.is_over()));
    }
    let row = RunRow::unnamed(id, agent, inner.clock.wall_ms());
    inner.store.ensure_run(&row).await?;
    let live = |row: &RunRow| row.ended.is_none() && row.agent == *agent;
    let Some(row) = inner.store.run(id).await?.filter(live) else { return Ok(None) };
    let run = take_up(inner, &row);
    // It may have ended since the store was read.
    if inner.store.run(id).await?.is_some_and(|row| live(&row)) {
        return Ok(Some(run));
    }
    run.lease.end();
    inner.table.remove(id);
    Ok(None)
}

fn unbound(parent: &AgentName, agent: &AgentName, at: &Location) -> Diagnostic {
    let text = format!(
        "agent `{parent}` does not bind `{agent}` as a `subAgent`, so its runs are not shown the \
         tools to decide for this one; an operator can"
    );
    Diagnostic::warning("parent_unbound", at, text)
}

pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
