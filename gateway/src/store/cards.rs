//! Cards: made once, found by id, key, state and run.

use super::fault::Misfit;
use super::row::Row;
use super::runs::{self, RunRow};
use super::statement::{Guard, Statement};
use super::work::{Batch, Ran, Work};
use super::{Store, StoreFault, change, events, grants};
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, Grant, State};
use portcullis_policy::name::AgentName;

/// Most cards, or runs, that one list returns.
pub const LIST_ITEMS_MAX: u32 = 1_000;

/// Which cards to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// In any of these states; empty is every state.
    pub states: Vec<State>,
    /// Of these agents; empty is every agent.
    pub agents: Vec<AgentName>,
    /// Of these runs; empty is every run.
    pub runs: Vec<String>,
    /// After this card of an earlier list.
    pub after: Option<Cursor>,
    /// At most this many; 0 is [`LIST_ITEMS_MAX`].
    pub limit: u32,
    /// Which come first.
    pub order: Order,
}

/// In which order a list is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest first.
    #[default]
    Oldest,
    /// The newest first.
    Newest,
}

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Wall time when it was made.
    pub created_ms: u64,
    /// The card or the run.
    pub id: String,
}

/// Where one live card stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The card.
    pub id: String,
    /// Its version.
    pub version: u64,
    /// Its state.
    pub state: State,
}

/// What a beginning of an id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// Exactly this card.
    One(Box<Card>),
    /// No card.
    None,
    /// More than one card.
    Several,
}

/// What became of a new card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It is there.
    New,
    /// An identical call has a live card already; nothing changed.
    Duplicate,
    /// Its run is not there or has ended; nothing changed.
    RunEnded,
    /// The standing approval it rests on has ended; nothing changed.
    GrantEnded,
}

impl Store {
    /// Adds a new card to its run. `run` is the row of that run, made if it is not there; a run
    /// that has ended stays so. `grant` is the standing approval that approved the card.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn insert(
        &self,
        card: &Card,
        run: Option<&RunRow>,
        grant: Option<&Grant>,
    ) -> Result<Inserted, StoreFault> {
        let doc = card.write().map_err(|fault| self.misfit(&fault.into()))?;
        let mut steps = vec![Inserted::RunEnded];
        let mut new = Batch::of(runs::hold_live(&card.asked().run).guarded(Guard::OrSkip));
        if let Some(grant) = grant {
            let held = grants::hold(grant, card.created_ms());
            new = new.then(held.guarded(Guard::OrSkip));
            steps.push(Inserted::GrantEnded);
        }
        steps.push(Inserted::Duplicate);
        new = new.then(add(card, doc)).telling(events::of_card(card));
        if grant.is_some() {
            new.statements.extend(change::decision(card));
        }
        let batches = run.map(runs::ensure).into_iter().chain([new]).collect();
        Ok(match self.write_each(Work { batches }).await?.last() {
            Some(Ran::Whole { .. }) => Inserted::New,
            Some(Ran::Skipped(at)) => steps.get(*at).copied().unwrap_or(Inserted::Duplicate),
            None => Inserted::RunEnded,
        })
    }

    /// The card of that id.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn card(&self, id: &str) -> Result<Option<Card>, StoreFault> {
        let statement = Statement::rows("SELECT version, state, doc FROM cards WHERE id = $1");
        self.read_one(&statement.with(id), parse).await
    }

    /// The card whose id starts with `prefix`, with or without `apr_`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn named(&self, prefix: &str) -> Result<Named, StoreFault> {
        let prefix = prefix.strip_prefix("apr_").unwrap_or(prefix);
        let statement = Statement::rows(
            "SELECT version, state, doc FROM cards WHERE id >= $1 AND id < $2 LIMIT 2",
        )
        .with(format!("apr_{prefix}"))
        // Ids are ASCII, so everything that starts with the prefix sorts before this.
        .with(format!("apr_{prefix}\u{7f}"));
        let mut cards = self.read(&statement, parse).await?;
        Ok(match (cards.pop(), cards.is_empty()) {
            (None, _) => Named::None,
            (Some(card), true) => Named::One(Box::new(card)),
            (Some(_), false) => Named::Several,
        })
    }

    /// The live card of an identical call.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn live(&self, key: Digest) -> Result<Option<Card>, StoreFault> {
        let statement = Statement::rows(
            "SELECT version, state, doc FROM cards \
             WHERE key = $1 AND state IN ('parked', 'approved', 'executing')",
        );
        self.read_one(&statement.with(key.hex()), parse).await
    }

    /// The cards of `filter`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Card>, StoreFault> {
        let mut statement = Statement::rows("SELECT version, state, doc FROM cards WHERE 1 = 1");
        if !filter.states.is_empty() {
            let states = filter.states.iter().map(|state| state.as_str());
            statement = statement.then(" AND state IN ").then_list(states);
        }
        statement = of_agents(statement, " AND agent IN ", &filter.agents);
        if !filter.runs.is_empty() {
            let runs = filter.runs.iter().map(String::as_str);
            statement = statement.then(" AND run IN ").then_list(runs);
        }
        let statement = page(statement, filter.after.as_ref(), filter.limit, filter.order);
        self.read(&statement, parse).await
    }

    /// The last card before `card` of the same agent, server and tool whose call was approved and
    /// begun; none if there was none, or none that is kept.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn last_before(&self, card: &Card) -> Result<Option<Card>, StoreFault> {
        let statement = Statement::rows(
            "SELECT version, state, doc FROM cards WHERE call = $1 AND call <> '' \
             AND (created_ms, id) < ($2, $3) AND state IN ('executing', 'done', 'unknown') \
             ORDER BY created_ms DESC, id DESC LIMIT 1",
        );
        let statement = statement.with(card.asked().call_key().hex());
        self.read_one(&statement.with(card.created_ms()).with(card.id()), parse).await
    }

    /// Every card that is not settled.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn unsettled(&self) -> Result<Vec<Card>, StoreFault> {
        let statement = Statement::rows(
            "SELECT version, state, doc FROM cards \
             WHERE state IN ('parked', 'approved', 'executing')",
        );
        self.read(&statement, parse).await
    }

    /// Where every card stands that is not settled, without reading the cards.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn standing(&self) -> Result<Vec<Standing>, StoreFault> {
        let statement = Statement::rows(
            "SELECT id, version, state FROM cards \
             WHERE state IN ('parked', 'approved', 'executing')",
        );
        let stand = |row: &mut Row| {
            let (id, version, state) = (row.text()?, row.big()?, row.text()?);
            let state = State::parse(&state)
                .ok_or_else(|| Misfit(format!("card `{id}` has the state `{state}`")))?;
            Ok(Standing { id, version, state })
        };
        self.read(&statement, stand).await
    }
}

fn add(card: &Card, doc: String) -> Statement {
    Statement::change(
        "INSERT INTO cards (id, version, state, agent, run, key, doc, created_ms, updated_ms, call) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
    )
    .with(card.id())
    .with(card.version())
    .with(card.state().as_str())
    .with(card.asked().agent.as_str().to_ascii_lowercase())
    .with(card.asked().run.as_str())
    .with(card.asked().key().hex())
    .with(doc)
    .with(card.created_ms())
    .with(card.updated_ms())
    .with(card.asked().call_key().hex())
    .guarded(Guard::OrSkip)
}

/// Goes on with `then` and the names of agents in lower case; none is every agent.
pub(super) fn of_agents(statement: Statement, then: &str, agents: &[AgentName]) -> Statement {
    if agents.is_empty() {
        return statement;
    }
    let names: Vec<_> = agents.iter().map(|agent| agent.as_str().to_ascii_lowercase()).collect();
    statement.then(then).then_list(names.iter().map(String::as_str))
}

/// Goes on with the page of a list that comes after `after`.
pub(super) fn page(
    mut statement: Statement,
    after: Option<&Cursor>,
    limit: u32,
    order: Order,
) -> Statement {
    let (beyond, by) = match order {
        Order::Oldest => (" AND (created_ms, id) > (", " ORDER BY created_ms, id LIMIT "),
        Order::Newest => (" AND (created_ms, id) < (", " ORDER BY created_ms DESC, id DESC LIMIT "),
    };
    if let Some(after) = after {
        statement = statement.then(beyond).then_value(after.created_ms);
        statement = statement.then(", ").then_value(after.id.as_str()).then(")");
    }
    let limit = if limit == 0 { LIST_ITEMS_MAX } else { limit.min(LIST_ITEMS_MAX) };
    statement.then(by).then_value(u64::from(limit))
}

/// Reads `version, state, doc`.
pub(super) fn parse(row: &mut Row) -> Result<Card, Misfit> {
    let (version, state, doc) = (row.big()?, row.text()?, row.text()?);
    let card = Card::read(&doc)?;
    if card.version() != version || card.state().as_str() != state {
        return Err(Misfit(format!("the row of card `{}` does not match its record", card.id())));
    }
    Ok(card)
}
