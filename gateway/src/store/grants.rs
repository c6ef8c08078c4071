//! Standing approvals: what an approver lets an agent call again without asking.

use super::cards::{Cursor, Order, of_agents, page};
use super::events::{self, Told};
use super::fault::Misfit;
use super::row::Row;
use super::statement::{Guard, Statement};
use super::work::Batch;
use super::{Store, StoreFault};
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Asked, Decider, Grant};
use portcullis_policy::name::{AgentName, ServerName, ToolName};

/// Most standing approvals that are looked at for one call.
const CANDIDATES_MAX: u64 = 50;

/// A standing approval and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// The approval.
    pub grant: Grant,
    /// That it was ended, and when.
    pub ended_ms: Option<u64>,
}

/// Which standing approvals to list, oldest first.
#[derive(Debug, Clone, Default)]
pub struct GrantFilter {
    /// Of these agents; empty is every agent.
    pub agents: Vec<AgentName>,
    /// Only those that hold at this wall time.
    pub live_at_ms: Option<u64>,
    /// After this one of an earlier list.
    pub after: Option<Cursor>,
    /// At most this many; 0 is [`LIST_ITEMS_MAX`](super::LIST_ITEMS_MAX).
    pub limit: u32,
}

const SELECT: &str = "SELECT id, card, agent, run, server, tool, arguments, definition, given_by, \
     given_role, created_ms, expires_ms, ended_ms FROM grants";

impl Store {
    /// The standing approvals that may allow what is asked for at `now_ms`: those for exactly
    /// its arguments before those for any.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn grants_for(&self, asked: &Asked, now_ms: u64) -> Result<Vec<Grant>, StoreFault> {
        let statement = Statement::rows(SELECT)
            .then(" WHERE ended_ms IS NULL AND lower(agent) = ")
            .then_value(asked.agent.as_str().to_ascii_lowercase())
            .then(" AND lower(server) = ")
            .then_value(asked.server.as_str().to_ascii_lowercase())
            .then(" AND tool = ")
            .then_value(asked.tool.as_str())
            .then(" AND (run IS NULL OR run = ")
            .then_value(asked.run.as_str())
            .then(") AND (arguments IS NULL OR arguments = ")
            .then_value(asked.digest.to_string())
            .then(") AND definition = ")
            .then_value(asked.definition.to_string())
            .then(" AND (expires_ms IS NULL OR expires_ms > ")
            .then_value(now_ms)
            .then(") ORDER BY CASE WHEN arguments IS NULL THEN 1 ELSE 0 END, created_ms, id LIMIT ")
            .then_value(CANDIDATES_MAX);
        let found = self.read(&statement, parse).await?;
        Ok(found.into_iter().map(|row| row.grant).collect())
    }

    /// The standing approvals of `filter`, oldest first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn grants(&self, filter: &GrantFilter) -> Result<Vec<GrantRow>, StoreFault> {
        let mut statement = Statement::rows(SELECT).then(" WHERE 1 = 1");
        statement = of_agents(statement, " AND lower(agent) IN ", &filter.agents);
        if let Some(now_ms) = filter.live_at_ms {
            statement = statement
                .then(" AND ended_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ")
                .then_value(now_ms)
                .then(") AND (run IS NULL OR EXISTS (SELECT 1 FROM runs WHERE runs.id = run")
                .then(" AND runs.ended_ms IS NULL))");
        }
        self.read(&page(statement, filter.after.as_ref(), filter.limit, Order::Oldest), parse).await
    }

    /// The standing approval of that id.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn grant(&self, id: &str) -> Result<Option<GrantRow>, StoreFault> {
        let statement = Statement::rows(SELECT).then(" WHERE id = ").then_value(id);
        self.read_one(&statement, parse).await
    }

    /// Ends a standing approval. `false` if there is none or it has ended.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn end_grant(&self, grant: &Grant, now_ms: u64) -> Result<bool, StoreFault> {
        let update =
            Statement::change("UPDATE grants SET ended_ms = $1 WHERE id = $2 AND ended_ms IS NULL");
        let update = update.with(now_ms).with(grant.id.as_str()).guarded(Guard::OrSkip);
        let told = told(grant, "ended", now_ms);
        Ok(self.write_one(Batch::of(update).telling(events::tell(&told))).await?.counts())
    }
}

/// Adds a standing approval, as part of the decision that gives it. Its run is live: the card it
/// is given on is, and a run ends only together with its cards.
pub(super) fn give(grant: &Grant) -> [Statement; 2] {
    let arguments = grant.arguments.map(|digest| digest.to_string());
    let insert = Statement::change(
        "INSERT INTO grants (id, card, agent, run, server, tool, arguments, definition, \
         given_by, given_role, created_ms, expires_ms, ended_ms) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, NULL)",
    )
    .with(grant.id.as_str())
    .with(grant.card.as_str())
    .with(grant.agent.as_str())
    .with(grant.run.as_deref())
    .with(grant.server.as_str())
    .with(grant.tool.as_str())
    .with(arguments.as_deref())
    .with(grant.definition.to_string())
    .with(grant.by.name.as_str())
    .with(grant.by.role.as_str())
    .with(grant.created_ms)
    .with(grant.expires_ms);
    [insert, events::tell(&told(grant, "given", grant.created_ms))]
}

/// Finds a standing approval if it holds, and keeps it so until the work is committed.
pub(super) fn hold(grant: &Grant, now_ms: u64) -> Statement {
    Statement::rows("SELECT id FROM grants WHERE ended_ms IS NULL AND id = ")
        .then_value(grant.id.as_str())
        .then(" AND (expires_ms IS NULL OR expires_ms > ")
        .then_value(now_ms)
        .then(")")
        .locked()
}

fn told<'a>(grant: &'a Grant, state: &'a str, at_ms: u64) -> Told<'a> {
    Told {
        at_ms,
        kind: "grant",
        subject: &grant.id,
        agent: Some(grant.agent.as_str()),
        run: grant.run.as_deref(),
        state,
        version: None,
    }
}

fn parse(row: &mut Row) -> Result<GrantRow, Misfit> {
    let grant = Grant {
        id: row.text()?,
        card: row.text()?,
        agent: AgentName::new(&row.text()?)?,
        run: row.text_or_null()?,
        server: ServerName::new(&row.text()?)?,
        tool: ToolName::new(&row.text()?)?,
        arguments: row.digest_or_null()?,
        definition: row.digest()?,
        by: Decider { name: row.text()?, role: role(&row.text()?)? },
        created_ms: row.big()?,
        expires_ms: row.big()?,
    };
    Ok(GrantRow { grant, ended_ms: row.big_or_null()? })
}

fn role(text: &str) -> Result<Approver, Misfit> {
    let role = Approver::ALL.into_iter().find(|role| role.as_str() == text);
    role.ok_or_else(|| Misfit(format!("`{text}` is no role")))
}
