//! Tokens that were minted while the gateway ran. Only their hashes are here.

use super::events::{self, Told};
use super::fault::Misfit;
use super::row::Row;
use super::statement::{Guard, Statement};
use super::work::{Batch, Work};
use super::{Store, StoreFault};
use portcullis_policy::name::AgentName;

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its name.
    pub id: String,
    /// Who holds it.
    pub holder: Holder,
    /// SHA-256 of it.
    pub hash: [u8; 32],
    /// The run it is for.
    pub run: Option<String>,
    /// What it is for, for people.
    pub note: String,
    /// Wall time of its making.
    pub created_ms: u64,
    /// Who made it.
    pub created_by: String,
    /// Wall time of its end.
    pub expires_ms: Option<u64>,
    /// That it was revoked, and when.
    pub revoked_ms: Option<u64>,
}

/// Who holds a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// An agent.
    Agent(AgentName),
    /// Somebody at the admin listener.
    Admin {
        /// For records.
        name: String,
        /// In which role.
        role: String,
        /// The agents that the role is about.
        agents: Vec<AgentName>,
    },
}

impl Store {
    /// Adds a token, and ends another one at a wall time if it would live longer: the one that
    /// this token takes the place of.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn insert_token(
        &self,
        token: &TokenRow,
        limit: Option<(&str, u64)>,
    ) -> Result<(), StoreFault> {
        let (agent, admin) = match &token.holder {
            Holder::Agent(agent) => (Some(agent.as_str()), None),
            Holder::Admin { name, role, agents } => (None, Some((name, role, agents))),
        };
        let agents = admin.map(|(_, _, agents)| spell(agents));
        let insert = Statement::change(
            "INSERT INTO tokens (id, agent, admin, role, agents, hash, run, note, created_ms, \
             created_by, expires_ms, revoked_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .with(token.id.as_str())
        .with(agent)
        .with(admin.map(|(name, _, _)| name.as_str()))
        .with(admin.map(|(_, role, _)| role.as_str()))
        .with(agents.as_deref())
        .with(&token.hash)
        .with(token.run.as_deref())
        .with(token.note.as_str())
        .with(token.created_ms)
        .with(token.created_by.as_str())
        .with(token.expires_ms)
        .with(token.revoked_ms);
        let told = Told {
            agent,
            run: token.run.as_deref(),
            ..told(&token.id, "minted", token.created_ms)
        };
        let mut batches = vec![Batch::of(insert).telling(events::tell(&told))];
        batches.extend(limit.map(|(id, expires_ms)| limited(id, expires_ms)));
        self.write_each(Work { batches }).await?;
        Ok(())
    }

    /// Every token, oldest first, also those that have ended.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, StoreFault> {
        let statement = Statement::rows(
            "SELECT id, agent, admin, role, agents, hash, run, note, created_ms, created_by, \
             expires_ms, revoked_ms FROM tokens ORDER BY created_ms, id",
        );
        self.read(&statement, parse).await
    }

    /// Ends a token at `expires_ms` if it would live longer. `false` if it would not.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn limit_token(&self, id: &str, expires_ms: u64) -> Result<bool, StoreFault> {
        Ok(self.write_one(limited(id, expires_ms)).await?.counts())
    }

    /// Revokes a token. `false` if there is none or it was revoked before.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn revoke_token(&self, id: &str, now_ms: u64) -> Result<bool, StoreFault> {
        let update = Statement::change(
            "UPDATE tokens SET revoked_ms = $1 WHERE id = $2 AND revoked_ms IS NULL",
        );
        let update = update.with(now_ms).with(id).guarded(Guard::OrSkip);
        let told = told(id, "revoked", now_ms);
        Ok(self.write_one(Batch::of(update).telling(events::tell(&told))).await?.counts())
    }
}

fn limited(id: &str, expires_ms: u64) -> Batch {
    let update = Statement::change(
        "UPDATE tokens SET expires_ms = $1 \
         WHERE id = $2 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $1)",
    );
    let update = update.with(expires_ms).with(id).guarded(Guard::OrSkip);
    let told = told(id, "limited", events::now_ms());
    Batch::of(update).telling(events::tell(&told))
}

fn told<'a>(id: &'a str, state: &'a str, at_ms: u64) -> Told<'a> {
    Told { at_ms, kind: "token", subject: id, agent: None, run: None, state, version: None }
}

// Names of agents hold no comma.
fn spell(agents: &[AgentName]) -> String {
    agents.iter().map(AgentName::as_str).collect::<Vec<_>>().join(",")
}

fn read_agents(text: &str) -> Result<Vec<AgentName>, Misfit> {
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(|name| Ok(AgentName::new(name)?)).collect()
}

fn parse(row: &mut Row) -> Result<TokenRow, Misfit> {
    let id = row.text()?;
    let (agent, admin) = (row.text_or_null()?, row.text_or_null()?);
    let (role, agents) = (row.text_or_null()?, row.text_or_null()?);
    let holder = match (agent, admin) {
        (Some(agent), None) => Holder::Agent(AgentName::new(&agent)?),
        (None, Some(name)) => Holder::Admin {
            name,
            role: role.unwrap_or_default(),
            agents: read_agents(&agents.unwrap_or_default())?,
        },
        (Some(_), Some(_)) | (None, None) => {
            return Err(Misfit(format!("token `{id}` has no one holder")));
        }
    };
    Ok(TokenRow {
        id,
        holder,
        hash: row.hash()?,
        run: row.text_or_null()?,
        note: row.text()?,
        created_ms: row.big()?,
        created_by: row.text()?,
        expires_ms: row.big_or_null()?,
        revoked_ms: row.big_or_null()?,
    })
}
