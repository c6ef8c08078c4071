//! The list of what waits with one card beside it, and the same for what was decided.

use super::super::Api;
use super::super::approvals::find;
use super::super::cursor::Listing;
use super::card::{CardPage, Reveal};
use super::comparison::Changes;
use super::fault::PageFault;
use super::frame::{At, Frame, render};
use super::list::{PAGE, Row, Rows, Wanted, row, waiting};
use super::session::Visitor;
use crate::store::{Cursor, Filter, Order};
use askama::Template;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use portcullis_policy::ledger::{self, Card};
use portcullis_policy::name::AgentName;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage<'a> {
    frame: Frame,
    list: Rows,
    card: Option<CardPage>,
    /// True if the card was asked for, and not just the first.
    asked: bool,
    next: Option<String>,
    notice: Option<Notice<'a>>,
    /// Edited arguments that were not taken, or that are to be looked at.
    draft: Option<Draft>,
}

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    rows: Vec<Row>,
    agents: Vec<String>,
    agent: String,
    states: Vec<(&'static str, bool)>,
    /// Where the next page begins.
    cursor: Option<String>,
}

/// Something to say above a card.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notice<'a> {
    /// `good` or `bad`.
    pub(super) tone: &'static str,
    pub(super) text: &'a str,
}

/// Edited arguments before they are decided.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) text: String,
    pub(super) changes: Changes,
    /// True if they may be approved as they are.
    pub(super) ready: bool,
}

#[derive(Deserialize, Default)]
pub(super) struct Asked {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
pub(super) struct Past {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    state: String,
    cursor: Option<String>,
}

/// `GET /`
pub(super) async fn inbox(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, PageFault> {
    let Query(asked) = asked.unwrap_or_default();
    let wanted = Wanted { agent: asked.agent, text: asked.text };
    let mut frame = Frame::new(&api, &visitor, At::Waiting).await?;
    let cards = waiting(&api, &visitor.admin).await?;
    frame.waiting = cards.len();
    let mut list = Rows::of(&api, &visitor.admin, &cards, &wanted);
    let first = list.rows.first().map(|row| row.id.clone());
    let first = cards.iter().find(|card| Some(card.id()) == first.as_deref());
    let card = match first {
        Some(card) => Some(whole(&api, &visitor, card, Reveal::No).await?),
        None => None,
    };
    list.select(first.map(Card::id).unwrap_or_default());
    let page = InboxPage { frame, list, card, asked: false, next: None, notice: None, draft: None };
    Ok(render(&page))
}

/// `GET /approve/{id}`
pub(super) async fn card(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, PageFault> {
    let card = find(&api.parked, &visitor.admin, &id).await?;
    shown(&api, &visitor, &card, Beside::default()).await
}

/// What else is shown with a card.
#[derive(Default)]
pub(super) struct Beside<'a> {
    pub(super) notice: Option<Notice<'a>>,
    pub(super) draft: Option<Draft>,
    pub(super) reveal: Option<Reveal>,
    pub(super) status: StatusCode,
}

/// A card with the list beside it.
pub(super) async fn shown(
    api: &Api,
    visitor: &Visitor,
    card: &Card,
    beside: Beside<'_>,
) -> Result<Response, PageFault> {
    let mut frame = Frame::new(api, visitor, At::Waiting).await?;
    // As it is after the place where the events of the page begin.
    let card = &find(&api.parked, &visitor.admin, card.id()).await?;
    let cards = waiting(api, &visitor.admin).await?;
    frame.waiting = cards.len();
    let mut list = Rows::of(api, &visitor.admin, &cards, &Wanted::default());
    list.select(card.id());
    let next = list.next_of(card.id()).map(str::to_owned);
    let page = InboxPage {
        card: Some(whole(api, visitor, card, beside.reveal.unwrap_or(Reveal::No)).await?),
        frame,
        list,
        asked: true,
        next,
        notice: beside.notice,
        draft: beside.draft,
    };
    Ok((beside.status, render(&page)).into_response())
}

/// A card with what it is compared to.
pub(super) async fn whole(
    api: &Api,
    visitor: &Visitor,
    card: &Card,
    reveal: Reveal,
) -> Result<CardPage, PageFault> {
    let last = api.store.last_before(card).await?;
    CardPage::of(api, &visitor.admin, (card, last.as_ref()), reveal)
}

/// `GET /history`
pub(super) async fn history(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    past: Result<Query<Past>, QueryRejection>,
) -> Result<Response, PageFault> {
    let Query(past) = past.map_err(|error| PageFault::bad(error.body_text()))?;
    let mut frame = Frame::new(&api, &visitor, At::History).await?;
    frame.waiting = waiting(&api, &visitor.admin).await?.len();
    let settled = ledger::State::ALL.into_iter().filter(|state| *state != ledger::State::Parked);
    let chosen = ledger::State::parse(&past.state).filter(|state| *state != ledger::State::Parked);
    let agents = match past.agent.as_str() {
        "" => Vec::new(),
        name => vec![AgentName::new(name).map_err(|error| PageFault::bad(error.to_string()))?],
    };
    let known = (api.views.agents)().into_iter().map(|(agent, _)| agent);
    let known = known.filter(|agent| visitor.admin.may_see(agent)).map(|agent| agent.to_string());
    let states = settled.clone().map(|state| (state.as_str(), Some(state) == chosen)).collect();
    let listed = json!(["history", past.agent, past.state]).to_string();
    let now_ms = api.parked.now_ms();
    let listing = Listing { seal: &api.seal, admin: visitor.admin.name(), filter: &listed, now_ms };
    let after = past.cursor.as_deref().map(|cursor| {
        let old = "That page of the history is too old; begin again from its first page.";
        listing.page_of(cursor).ok_or_else(|| PageFault::bad(old))
    });
    let cards = match visitor.admin.sees_of(agents) {
        None => Vec::new(),
        Some(agents) => {
            let states = chosen.map_or_else(|| settled.collect(), |state| vec![state]);
            let (after, limit, order) = (after.transpose()?, PAGE, Order::Newest);
            let filter = Filter { states, agents, after, limit, order, ..Filter::default() };
            api.parked.list(&filter).await?
        }
    };
    let after = |card: &Card| Cursor { created_ms: card.created_ms(), id: card.id().to_owned() };
    let last = cards.last().filter(|_| cards.len() >= PAGE as usize);
    let page = HistoryPage {
        frame,
        rows: cards.iter().map(|card| row(&api, &visitor.admin, card)).collect(),
        agents: known.collect(),
        agent: past.agent,
        states,
        cursor: last.map(|card| listing.page_after(&after(card))),
    };
    Ok(render(&page))
}
