//! `POST /approve/{id}`: a decision by a form, or a step towards one.

use super::super::Api;
use super::super::approvals::find;
use super::super::decision::{Decided, decided};
use super::card::Reveal;
use super::comparison::{Changes, changes};
use super::fault::PageFault;
use super::form::Form;
use super::inbox::{Beside, Draft, Notice, shown};
use super::session::Visitor;
use crate::decisions::{Wish, WishedStanding, checked};
use crate::identity::Admin;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use portcullis_policy::ledger::Card;
use portcullis_policy::secret::Secrets;
use serde_json::value::RawValue;
use std::sync::Arc;

pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Extension(form): Extension<Form>,
    Path(id): Path<String>,
) -> Result<Response, PageFault> {
    let card = find(&api.parked, &visitor.admin, &id).await?;
    if !visitor.admin.may_decide() {
        return Err(PageFault::role("decide"));
    }
    match form.one("action")?.unwrap_or_default() {
        "reveal" => reveal(&api, &visitor, &card).await,
        "review" => review(&api, &visitor, &card, &form).await,
        action @ ("approve" | "deny" | "approve-edited") => {
            let wish = wish(action, &form)?;
            made(&api, &visitor, &card, wish).await
        }
        _ => Err(PageFault::bad("The form says neither approve nor deny; nothing was decided.")),
    }
}

// Where the browser goes from here is the card itself: nothing that could be clicked by a second
// click stands there any more.
async fn made(
    api: &Api,
    visitor: &Visitor,
    card: &Card,
    wish: Wish,
) -> Result<Response, PageFault> {
    match outcome(api, &visitor.admin, card, wish).await {
        Ok(None) => {
            let to = format!("/approve/{}", card.id());
            Ok((StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response())
        }
        Ok(Some(card)) => {
            let text = "Somebody else was first, so your decision has no effect. This is how it \
                        stands.";
            let notice = Some(Notice { tone: "bad", text });
            let status = StatusCode::CONFLICT;
            shown(api, visitor, &card, Beside { notice, status, ..Beside::default() }).await
        }
        Err(fault) => {
            let card = find(&api.parked, &visitor.admin, card.id()).await?;
            let notice = Some(Notice { tone: "bad", text: fault.text() });
            let status = fault.status();
            shown(api, visitor, &card, Beside { notice, status, ..Beside::default() }).await
        }
    }
}

/// Decides; gives the card back if it was decided otherwise before.
pub(super) async fn outcome(
    api: &Api,
    admin: &Admin,
    card: &Card,
    wish: Wish,
) -> Result<Option<Box<Card>>, PageFault> {
    match decided(api, admin, card, wish).await? {
        Decided::So(_) => Ok(None),
        Decided::Otherwise(card) => Ok(Some(card)),
    }
}

fn wish(action: &str, form: &Form) -> Result<Wish, PageFault> {
    let digest = form.one("digest")?.map(str::to_owned);
    if action == "deny" {
        let reason = form.one("reason")?.unwrap_or_default().trim().replace("\r\n", "\n");
        return Ok(Wish { digest, ..Wish::deny(Some(reason).filter(|reason| !reason.is_empty())) });
    }
    let arguments = match action {
        "approve-edited" => Some(raw(form.one("arguments")?.unwrap_or_default())?),
        _ => None,
    };
    let standing = match form.one("standing")?.unwrap_or_default() {
        "" => None,
        text => Some(WishedStanding::parse(text).ok_or_else(|| {
            PageFault::bad("The form says in no known way how much the approval covers.")
        })?),
    };
    Ok(Wish { arguments, standing, ..Wish::approve(digest) })
}

fn raw(text: &str) -> Result<Box<RawValue>, PageFault> {
    RawValue::from_string(text.to_owned())
        .map_err(|error| PageFault::bad(format!("The edited arguments are no JSON: {error}.")))
}

// Shows what an edit changes before anything is decided.
async fn review(
    api: &Api,
    visitor: &Visitor,
    card: &Card,
    form: &Form,
) -> Result<Response, PageFault> {
    let text = form.one("arguments")?.unwrap_or_default().replace("\r\n", "\n");
    // Who edits sees what is secret, and it stays in the form.
    look(api, visitor, card).await?;
    let checked = match (api.views.offer)(card).filter(|o| o.hash == card.asked().definition) {
        Some(offer) => checked(offer, &text).await.map_err(|fault| fault.to_string()),
        None => {
            Err("the tool is not there any more as it was shown; deny the call, or approve it \
                     as it is"
                .to_owned())
        }
    };
    let secrets = Secrets::new(&[]);
    let (draft, status, wrong) = match checked {
        Ok(edited) => {
            let changes = changes(card.arguments(), &edited, &secrets);
            let ready = !changes.rows.is_empty() || changes.long;
            let wrong = (!ready).then(|| "Nothing is changed yet.".to_owned());
            (Draft { text, changes, ready }, StatusCode::OK, wrong)
        }
        Err(wrong) => {
            let draft = Draft { text, changes: Changes::default(), ready: false };
            (draft, StatusCode::BAD_REQUEST, Some(format!("Nothing was decided: {wrong}.")))
        }
    };
    let notice = wrong.as_deref().map(|text| Notice { tone: "bad", text });
    let reveal = Some(Reveal::Yes);
    shown(api, visitor, card, Beside { notice, draft: Some(draft), reveal, status }).await
}

async fn reveal(api: &Api, visitor: &Visitor, card: &Card) -> Result<Response, PageFault> {
    look(api, visitor, card).await?;
    let beside = Beside { reveal: Some(Reveal::Yes), ..Beside::default() };
    shown(api, visitor, card, beside).await
}

// On record before anything is shown.
async fn look(api: &Api, visitor: &Visitor, card: &Card) -> Result<(), PageFault> {
    if card.asked().secret.is_empty() {
        return Ok(());
    }
    let recorded = api.decisions.revealed(card, visitor.admin.name()).await;
    recorded.map_err(|error| PageFault::unable(&error))
}
