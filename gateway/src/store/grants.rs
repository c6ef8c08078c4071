//! Standing approvals: what an approver lets an agent call again without asking.

use super::events::{self, Told};
use super::fault::Misfit;
use super::row::Row;
use super::runs;
use super::statement::{Guard, Statement};
use super::work::Batch;
use super::{Store, StoreFault};
use portcullis_policy::canonical::Digest;
use portcullis_policy::name::{AgentName, ServerName, ToolName};

/// A standing approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its name.
    pub id: String,
    /// The card it was given on.
    pub card: String,
    /// For this agent.
    pub agent: AgentName,
    /// In this run; none is any run of the agent.
    pub run: Option<String>,
    /// The server.
    pub server: ServerName,
    /// The tool's registered name.
    pub tool: ToolName,
    /// With these arguments; none is any arguments.
    pub arguments: Option<Digest>,
    /// As long as the tool is defined like this.
    pub definition: Digest,
    /// Who gave it.
    pub by: String,
    /// Wall time.
    pub created_ms: u64,
    /// Wall time of its end.
    pub expires_ms: Option<u64>,
    /// That it was ended, and when.
    pub ended_ms: Option<u64>,
}

/// A call that a standing approval may cover.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// Its run.
    pub run: &'a str,
    /// The server.
    pub server: &'a ServerName,
    /// The tool's registered name.
    pub tool: &'a str,
    /// Digest of the arguments.
    pub arguments: Digest,
    /// Digest of the tool's definition.
    pub definition: Digest,
}

impl Store {
    /// Adds a standing approval. `false` if it is for a run that has ended.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn insert_grant(&self, grant: &GrantRow) -> Result<bool, StoreFault> {
        let arguments = grant.arguments.map(|digest| digest.to_string());
        let insert = Statement::change(
            "INSERT INTO grants (id, card, agent, run, server, tool, arguments, definition, \
             given_by, created_ms, expires_ms, ended_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .with(grant.id.as_str())
        .with(grant.card.as_str())
        .with(grant.agent.as_str())
        .with(grant.run.as_deref())
        .with(grant.server.as_str())
        .with(grant.tool.as_str())
        .with(arguments.as_deref())
        .with(grant.definition.to_string())
        .with(grant.by.as_str())
        .with(grant.created_ms)
        .with(grant.expires_ms)
        .with(grant.ended_ms);
        let held = grant.run.as_deref().map(|run| runs::hold_live(run).guarded(Guard::OrSkip));
        let told = Told {
            agent: Some(grant.agent.as_str()),
            run: grant.run.as_deref(),
            ..told(&grant.id, "given", grant.created_ms)
        };
        let statements = held.into_iter().chain([insert]).collect();
        let batch = Batch { statements, events: vec![events::tell(&told)] };
        Ok(self.write_one(batch).await?.counts())
    }

    /// The standing approval that covers a call at `now_ms`: one for exactly its arguments
    /// before one for any.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn grant_for(
        &self,
        wanted: &Wanted<'_>,
        now_ms: u64,
    ) -> Result<Option<GrantRow>, StoreFault> {
        let statement = Statement::rows(
            "SELECT id, card, agent, run, server, tool, arguments, definition, given_by, \
             created_ms, expires_ms, ended_ms FROM grants \
             WHERE ended_ms IS NULL AND lower(agent) = $1 AND lower(server) = $2 AND tool = $3 \
             AND (run IS NULL OR run = $4) AND (arguments IS NULL OR arguments = $5) \
             AND definition = $6 AND (expires_ms IS NULL OR expires_ms > $7) \
             ORDER BY CASE WHEN arguments IS NULL THEN 1 ELSE 0 END, created_ms, id LIMIT 1",
        )
        .with(wanted.agent.as_str().to_ascii_lowercase())
        .with(wanted.server.as_str().to_ascii_lowercase())
        .with(wanted.tool)
        .with(wanted.run)
        .with(wanted.arguments.to_string())
        .with(wanted.definition.to_string())
        .with(now_ms);
        self.read_one(&statement, parse).await
    }

    /// Ends a standing approval. `false` if there is none or it has ended.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn end_grant(&self, id: &str, now_ms: u64) -> Result<bool, StoreFault> {
        let update =
            Statement::change("UPDATE grants SET ended_ms = $1 WHERE id = $2 AND ended_ms IS NULL");
        let update = update.with(now_ms).with(id).guarded(Guard::OrSkip);
        let told = told(id, "ended", now_ms);
        Ok(self.write_one(Batch::of(update).telling(events::tell(&told))).await?.counts())
    }
}

fn told<'a>(id: &'a str, state: &'a str, at_ms: u64) -> Told<'a> {
    Told { at_ms, kind: "grant", subject: id, agent: None, run: None, state, version: None }
}

fn parse(row: &mut Row) -> Result<GrantRow, Misfit> {
    Ok(GrantRow {
        id: row.text()?,
        card: row.text()?,
        agent: AgentName::new(&row.text()?)?,
        run: row.text_or_null()?,
        server: ServerName::new(&row.text()?)?,
        tool: ToolName::new(&row.text()?)?,
        arguments: row.digest_or_null()?,
        definition: row.digest()?,
        by: row.text()?,
        created_ms: row.big()?,
        expires_ms: row.big_or_null()?,
        ended_ms: row.big_or_null()?,
    })
}
