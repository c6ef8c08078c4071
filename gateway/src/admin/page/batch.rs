//! `POST /decide`: several cards at once. First each is shown whole, then they are decided, each
//! by itself, with one result for each.

use super::super::Api;
use super::super::approvals::find;
use super::card::{CardPage, Reveal};
use super::decide::outcome;
use super::fault::PageFault;
use super::form::Form;
use super::frame::{At, Frame, render};
use super::inbox::whole;
use super::list::{ROWS_MAX, waiting};
use super::session::Visitor;
use crate::decisions::Wish;
use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Template)]
#[template(path = "batch.html")]
struct BatchPage {
    frame: Frame,
    cards: Vec<CardPage>,
    gone: usize,
}

#[derive(Template)]
#[template(path = "results.html")]
struct ResultsPage {
    frame: Frame,
    results: Vec<Done>,
}

/// What became of one of them.
struct Done {
    id: String,
    name: String,
    tone: &'static str,
    text: String,
}

pub(super) async fn batch(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Extension(form): Extension<Form>,
) -> Result<Response, PageFault> {
    if !visitor.admin.may_decide() {
        return Err(PageFault::role("decide"));
    }
    // An id and the digest of what was shown with it.
    let picks: Vec<(&str, &str)> =
        form.all("pick").filter_map(|pick| pick.split_once('/')).collect();
    let named: HashSet<&str> = picks.iter().map(|(id, _)| *id).collect();
    if picks.is_empty() || picks.len() > ROWS_MAX || named.len() < picks.len() {
        let text = format!("Choose 1 to {ROWS_MAX} calls in the list first. Nothing was decided.");
        return Err(PageFault::bad(text));
    }
    match form.one("action")?.unwrap_or_default() {
        "review" => review(&api, &visitor, &picks).await,
        action @ ("approve" | "deny") => {
            let reason = form.one("reason")?.unwrap_or_default().trim();
            let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
            let mut results = Vec::with_capacity(picks.len());
            for (id, digest) in picks {
                let digest = Some(digest.to_owned());
                let wish = match action {
                    "deny" => Wish { digest, ..Wish::deny(reason.clone()) },
                    _ => Wish::approve(digest),
                };
                results.push(one(&api, &visitor, id, wish).await);
            }
            let mut frame = Frame::new(&api, &visitor, At::Waiting).await?;
            frame.waiting = waiting(&api, &visitor.admin).await?.len();
            Ok(render(&ResultsPage { frame, results }))
        }
        _ => Err(PageFault::bad("The form says neither approve nor deny; nothing was decided.")),
    }
}

async fn review(
    api: &Api,
    visitor: &Visitor,
    picks: &[(&str, &str)],
) -> Result<Response, PageFault> {
    let mut frame = Frame::new(api, visitor, At::Waiting).await?;
    frame.waiting = waiting(api, &visitor.admin).await?.len();
    let mut cards = Vec::with_capacity(picks.len());
    for (id, _) in picks {
        if let Ok(card) = find(&api.parked, &visitor.admin, id).await {
            let card = whole(api, visitor, &card, Reveal::No).await?;
            cards.extend(Some(card).filter(|card| card.may_decide));
        }
    }
    let gone = picks.len() - cards.len();
    Ok(render(&BatchPage { frame, cards, gone }))
}

async fn one(api: &Api, visitor: &Visitor, id: &str, wish: Wish) -> Done {
    let denies = wish.is_denial();
    let done = async {
        let card = find(&api.parked, &visitor.admin, id).await?;
        let asked = card.asked();
        let name = format!("{} · {} for {}", asked.server, asked.tool.as_str(), asked.agent);
        let otherwise = outcome(api, &visitor.admin, &card, wish).await?;
        Ok::<_, PageFault>((crate::plain::plain(&name), otherwise))
    };
    let id = crate::plain::plain(id);
    match done.await {
        Ok((name, None)) => {
            let text = if denies { "denied" } else { "approved" };
            Done { id, name, tone: "good", text: text.to_owned() }
        }
        Ok((name, Some(card))) => {
            let text = format!("not changed: it is {} already", card.state().as_str());
            Done { id, name, tone: "bad", text }
        }
        Err(fault) => Done { name: id.clone(), id, tone: "bad", text: fault.text().to_owned() },
    }
}
