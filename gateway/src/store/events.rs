//! What happened, in the order of commits: for those who watch and may miss a moment.
//!
//! A reader that saw an id never later sees a smaller one appear.

use super::fault::Misfit;
use super::row::Row;
use super::statement::Statement;
use super::{Store, StoreFault};
use portcullis_policy::ledger::Card;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most events that one read returns.
pub const EVENTS_MAX: u32 = 1_000;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its place in the order.
    pub id: i64,
    /// Wall time.
    pub at_ms: u64,
    /// What it is about: `card`, `run`, `token`, `grant`, `pin`.
    pub kind: String,
    /// Which of these.
    pub subject: String,
    /// The agent it is about.
    pub agent: Option<String>,
    /// The run it is about.
    pub run: Option<String>,
    /// What became of the subject.
    pub state: Option<String>,
    /// The card's version.
    pub version: Option<u64>,
}

impl Store {
    /// What happened after the event `after`, oldest first, at most `limit` and [`EVENTS_MAX`].
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn events(&self, after: i64, limit: u32) -> Result<Vec<EventRow>, StoreFault> {
        let statement = Statement::rows(
            "SELECT id, at_ms, kind, subject, agent, run, state, version FROM events \
             WHERE id > $1 ORDER BY id LIMIT $2",
        );
        let limit = u64::from(limit.min(EVENTS_MAX));
        self.read(&statement.with(after).with(limit), parse).await
    }

    /// True if nothing is missing of what happened after the event `after`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn is_whole_after(&self, after: i64) -> Result<bool, StoreFault> {
        let statement =
            Statement::rows("SELECT COALESCE(MIN(id), 1), COALESCE(MAX(id), 0) FROM events");
        let ends = self.read_one(&statement, |row| Ok((row.signed()?, row.signed()?))).await?;
        let (first, last) = ends.unwrap_or((1, 0));
        Ok(after >= first.saturating_sub(1) && after <= last)
    }

    /// True if the event is the first of its subject in its state: steps within a state are events
    /// as well.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn is_entry(&self, event: &EventRow) -> Result<bool, StoreFault> {
        let statement = Statement::rows(
            "SELECT state FROM events WHERE subject = $1 AND id < $2 ORDER BY id DESC LIMIT 1",
        );
        let statement = statement.with(event.subject.as_str()).with(event.id);
        let before = self.read_one(&statement, Row::text_or_null).await?;
        Ok(before.flatten() != event.state)
    }

    /// The latest event; 0 before the first.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn last_event(&self) -> Result<i64, StoreFault> {
        let statement = Statement::rows("SELECT COALESCE(MAX(id), 0) FROM events");
        Ok(self.read_one(&statement, Row::signed).await?.unwrap_or_default())
    }
}

/// What an event says.
pub(super) struct Told<'a> {
    pub(super) at_ms: u64,
    pub(super) kind: &'static str,
    pub(super) subject: &'a str,
    pub(super) agent: Option<&'a str>,
    pub(super) run: Option<&'a str>,
    pub(super) state: &'a str,
    pub(super) version: Option<u64>,
}

/// Tells of something.
pub(super) fn tell(told: &Told<'_>) -> Statement {
    Statement::change(
        "INSERT INTO events (at_ms, kind, subject, agent, run, state, version) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .with(told.at_ms)
    .with(told.kind)
    .with(told.subject)
    .with(told.agent)
    .with(told.run)
    .with(told.state)
    .with(told.version)
}

/// Tells of a card as it became.
pub(super) fn of_card(card: &Card) -> Statement {
    tell(&Told {
        at_ms: card.updated_ms(),
        kind: "card",
        subject: card.id(),
        agent: Some(card.asked().agent.as_str()),
        run: Some(&card.asked().run),
        state: card.state().as_str(),
        version: Some(card.version()),
    })
}

/// Tells what became of a run at `at_ms`.
pub(super) fn of_run(id: &str, state: &'static str, at_ms: u64) -> Statement {
    Statement::change(
        "INSERT INTO events (at_ms, kind, subject, agent, run, state) \
         SELECT $1, 'run', id, agent, id, $2 FROM runs WHERE id = $3",
    )
    .with(at_ms)
    .with(state)
    .with(id)
}

/// The wall time of an event that nobody dates.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn parse(row: &mut Row) -> Result<EventRow, Misfit> {
    Ok(EventRow {
        id: row.signed()?,
        at_ms: row.big()?,
        kind: row.text()?,
        subject: row.text()?,
        agent: row.text_or_null()?,
        run: row.text_or_null()?,
        state: row.text_or_null()?,
        version: row.big_or_null()?,
    })
}
