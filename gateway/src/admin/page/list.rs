//! The list beside a card: a line for each, and who sees which.

use super::super::Api;
use super::arguments::glance;
use super::card::Told;
use super::fault::PageFault;
use super::time::Moment;
use crate::identity::Admin;
use crate::plain::plain;
use crate::store::{Filter, LIST_ITEMS_MAX};
use portcullis_policy::ledger::{Card, State};
use portcullis_policy::name::AgentName;
use portcullis_policy::secret::Secrets;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Most lines of a list; more are counted.
pub(super) const ROWS_MAX: usize = 100;
/// What is seen of the arguments, in characters.
const GLANCE_CHARS: usize = 90;

/// One line.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) version: u64,
    /// Empty for who may not decide.
    pub(super) digest: String,
    pub(super) state: &'static str,
    pub(super) agent: String,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) glance: String,
    pub(super) risk: &'static str,
    pub(super) created: Moment,
    pub(super) deadline: Option<Moment>,
    /// `1 of 2` approvals, where several are needed.
    pub(super) votes: Option<String>,
    pub(super) voted: bool,
    pub(super) selected: bool,
}

/// A list of cards, and what of it is wanted.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// How many more there are.
    pub(super) more: usize,
    /// The agents to choose from.
    pub(super) agents: Vec<String>,
    /// The one that was chosen.
    pub(super) agent: String,
    /// What the text of a card must have in it.
    pub(super) text: String,
}

/// What of a list is wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) agent: String,
    pub(super) text: String,
}

/// Every card that waits and that `admin` may see, the riskiest first.
pub(super) async fn waiting(api: &Api, admin: &Admin) -> Result<Vec<Card>, PageFault> {
    let Some(agents) = admin.sees_of(Vec::new()) else { return Ok(Vec::new()) };
    let mut filter = Filter { states: vec![State::Parked], agents, ..Filter::default() };
    let mut cards = api.parked.list_all(&mut filter).await?;
    cards.sort_by_cached_key(|card| Reverse(api.risk(card)));
    Ok(cards)
}

impl Rows {
    /// Lines for `cards`, those that are wanted.
    pub(super) fn of(api: &Api, admin: &Admin, cards: &[Card], wanted: &Wanted) -> Self {
        let agents: BTreeSet<String> =
            cards.iter().map(|card| card.asked().agent.to_string()).collect();
        let fits: Vec<&Card> = cards.iter().filter(|card| wanted.fits(card)).collect();
        let row = |card: &&Card| row(api, admin, card);
        Self {
            rows: fits.iter().take(ROWS_MAX).map(row).collect(),
            more: fits.len().saturating_sub(ROWS_MAX),
            agents: agents.into_iter().collect(),
            agent: wanted.agent.clone(),
            text: wanted.text.clone(),
        }
    }

    /// Marks the line of the card that is shown.
    pub(super) fn select(&mut self, id: &str) {
        for row in &mut self.rows {
            row.selected = row.id == id;
        }
    }

    /// The card after that one, or the first.
    pub(super) fn next_of(&self, id: &str) -> Option<&str> {
        let after = self.rows.iter().skip_while(|row| row.id != id).nth(1);
        let next = after.or_else(|| self.rows.iter().find(|row| row.id != id));
        next.map(|row| row.id.as_str())
    }

    /// True if only some are wanted.
    pub(super) fn is_narrow(&self) -> bool {
        !self.agent.is_empty() || !self.text.is_empty()
    }
}

impl Wanted {
    fn fits(&self, card: &Card) -> bool {
        let asked = card.asked();
        let of = self.agent.is_empty()
            || AgentName::new(&self.agent).is_ok_and(|agent| agent == asked.agent);
        let text = self.text.to_lowercase();
        let has = |field: &str| field.to_lowercase().contains(&text);
        // Arguments with secrets would tell by being found.
        let open = asked.secret.is_empty() && has(card.arguments());
        of && (has(asked.agent.as_str())
            || has(asked.server.as_str())
            || has(asked.tool.as_str())
            || has(&asked.run)
            || has(card.id())
            || open)
    }
}

/// One card on one line.
pub(super) fn row(api: &Api, admin: &Admin, card: &Card) -> Row {
    let asked = card.asked();
    let now_ms = api.parked.now_ms();
    let secrets = Secrets::new(&asked.secret);
    let glance = match secrets.is_empty() || admin.may_decide() {
        true => glance(card.arguments(), &secrets, GLANCE_CHARS),
        false => "not shown: secret".to_owned(),
    };
    Row {
        id: card.id().to_owned(),
        version: card.version(),
        digest: if admin.may_decide() { card.digest().to_string() } else { String::new() },
        state: card.state().as_str(),
        agent: asked.agent.to_string(),
        server: asked.server.to_string(),
        tool: plain(asked.tool.as_str()),
        glance,
        risk: Told::of(api, card).risk(),
        created: Moment::past(card.created_ms(), now_ms),
        deadline: card
            .deadline()
            .filter(|_| card.state() == State::Parked)
            .map(|limit| Moment::ahead(limit.left_at(now_ms), now_ms)),
        votes: (asked.count > 1).then(|| format!("{} of {}", card.votes().len(), asked.count)),
        voted: card.votes().iter().any(|vote| vote.by.name == admin.name()),
        selected: false,
    }
}

/// Most cards that one list can read at once.
pub(super) const PAGE: u32 =
    if (ROWS_MAX as u32) < LIST_ITEMS_MAX { ROWS_MAX as u32 } else { LIST_ITEMS_MAX };
