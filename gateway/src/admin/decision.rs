//! `POST /v1/approvals/{id}/decision`: on record first, then in effect.

use super::Api;
use super::answer::{Fault, json_body, unavailable};
use super::approvals::find;
use crate::decisions::{DecisionFault, Wish};
use crate::identity::Admin;
use crate::parked::DecideError;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Card, Decider};
use std::sync::Arc;

pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let wish: Wish = json_body(&headers, &body)?;
    if !admin.may_decide() {
        return Err(Fault::role("decide"));
    }
    if wish.id.is_some() {
        return Err(Fault::bad("body", "the path names the approval; leave `id` out of the body"));
    }
    let card = find(&api.parked, &admin, &id).await?;
    let (status, card) = match decided(&api, &admin, &card, wish).await? {
        Decided::So(card) => (StatusCode::OK, card),
        Decided::Otherwise(card) => (StatusCode::CONFLICT, card),
    };
    Ok((status, Json(api.shown(&card, &admin))).into_response())
}

/// What became of a card that somebody decides.
pub(super) enum Decided {
    /// What the decision says.
    So(Box<Card>),
    /// Something else, before this decision.
    Otherwise(Box<Card>),
}

/// Decides `card`, which `admin` may see.
pub(super) async fn decided(
    api: &Api,
    admin: &Admin,
    card: &Card,
    wish: Wish,
) -> Result<Decided, Fault> {
    match api.decisions.wish(card, wish, &decider(admin, card)).await {
        Ok(card) => Ok(Decided::So(Box::new(card))),
        Err(DecisionFault::Decide(DecideError::Settled(card))) => Ok(Decided::Otherwise(card)),
        Err(error) => Err(refused(&error)),
    }
}

// Where not every approver decides, one of them may be the person that the policy names.
fn decider(admin: &Admin, card: &Card) -> Decider {
    let asked = card.asked();
    let named = asked.user.as_deref() == Some(admin.name());
    let user = named && !asked.approvers.contains(&Approver::Human);
    let role = if user { Approver::User } else { Approver::Human };
    Decider { name: admin.name().to_owned(), role }
}

fn refused(error: &DecisionFault) -> Fault {
    let unable = |code| Fault::new(StatusCode::SERVICE_UNAVAILABLE, code, error.to_string());
    let error = match error {
        DecisionFault::Record => return unable("audit"),
        DecisionFault::Random(_) => return unable("random"),
        DecisionFault::Wish(fault) => return Fault::bad(fault.code, fault.to_string()),
        DecisionFault::Decide(error) => error,
    };
    match error {
        DecideError::Unknown => Fault::no_approval(),
        DecideError::Settled(_) => Fault::new(StatusCode::CONFLICT, "settled", error.to_string()),
        DecideError::WrongDigest => Fault::bad("wrong_digest", error.to_string()),
        DecideError::TooMuch(_) => Fault::bad("standing", error.to_string()),
        DecideError::NotApprover(_) => {
            Fault::new(StatusCode::FORBIDDEN, "not_approver", error.to_string())
        }
        DecideError::Store(fault) => unavailable(fault),
        DecideError::Stopping => unable("stopping"),
    }
}
