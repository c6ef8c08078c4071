//! The admin listener: approvers read and decide cards, operators see what is in force.
//!
//! Always authenticated, by a bearer token alone. JSON in, JSON out; unknown routes, members and
//! parameters are refused, and an unauthenticated caller cannot tell one route from another.

mod answer;
mod approvals;
mod batch;
mod card;
mod cursor;
mod decision;
mod events;
mod grants;
mod hooks;
mod openapi;
mod operation;
mod page;
mod runs;
mod tokens;
mod views;
mod webhook;

use crate::decisions::Decisions;
use crate::hosts::Hosts;
use crate::identity::{Admin, AdminFailure, IdentityError, Pass};
use crate::parked::Parked;
use crate::runs::{Credentials, Runs};
use crate::seal::Seal;
use crate::store::Store;
use answer::{Fault, strict};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use card::{CardView, Sight};
use portcullis_policy::ledger::Card;
use std::sync::Arc;
use tokio::sync::watch;

pub use crate::decisions::REASON_CHARS_MAX;
pub use approvals::WAIT_SECONDS_MAX;
pub use batch::BATCH_MAX;
pub use card::Claims;
pub use events::{STREAMS_MAX, Streams};
pub use views::{
    AgentSummary, AgentView, AgentsView, DiagnosticView, DiagnosticsView, Effective, MissingView,
    OfferView, ToolView, Views,
};
pub use webhook::tell;

/// Largest request body, in bytes.
pub const BODY_BYTES_MAX: usize = 256 * 1024;

/// What the admin API is made of.
#[derive(Debug)]
pub struct Api {
    /// The cards.
    pub parked: Parked,
    /// Where they are decided.
    pub decisions: Decisions,
    /// The runs.
    pub runs: Runs,
    /// Who may use it, and the tokens of agents.
    pub credentials: Credentials,
    /// The names of its listener.
    pub hosts: Hosts,
    /// What is in force.
    pub views: Views,
    /// Seals where the next page of a list begins.
    pub seal: Seal,
    /// What happened, and what stands.
    pub store: Store,
    /// Room for streams of events.
    pub streams: Streams,
    /// How people reach this listener, without a slash at the end.
    pub url: String,
    /// Ends waiting requests when the gateway stops.
    pub stop: watch::Receiver<bool>,
    /// Different in every process: revisions of an earlier one are never taken for our own.
    pub epoch: String,
}

impl Api {
    fn revision(&self, changes: u64) -> String {
        format!("{}.{changes}", self.epoch)
    }

    fn claims(&self, card: &Card) -> Claims {
        let offer = (self.views.offer)(card);
        offer.and_then(|offer| Claims::of(&offer)).unwrap_or_default()
    }

    /// See [`Claims::risk`].
    fn risk(&self, card: &Card) -> u8 {
        self.claims(card).risk()
    }

    fn shown<'a>(&self, card: &'a Card, admin: &Admin) -> CardView<'a> {
        self.shown_as(card, admin, Sight::of(admin))
    }

    fn shown_as<'a>(&self, card: &'a Card, admin: &Admin, sight: Sight) -> CardView<'a> {
        let mut view = self.seen(card, sight);
        view.keep_parents(admin);
        view
    }

    fn seen<'a>(&self, card: &'a Card, sight: Sight) -> CardView<'a> {
        let offer = (self.views.offer)(card);
        let claims = offer.as_ref().and_then(|offer| Claims::of(offer));
        CardView::of(card, (offer.and_then(|offer| offer.title.clone()), claims), sight)
    }
}

/// The routes of the admin listener.
pub fn router(api: &Arc<Api>) -> Router {
    let pages = page::routes(api);
    openapi::routes()
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(api), guard))
        .merge(pages)
        .with_state(Arc::clone(api))
}

// Host and Origin, then the credential; only then is anything of the request looked at.
async fn guard(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    if page::is_asked_for(request.method(), request.uri().path(), request.headers()) {
        return page::nothing_here();
    }
    let mut response = match enter(&api, request.headers()) {
        Ok(admin) => {
            let pass = Pass::new([admin.lease().clone()]);
            request.extensions_mut().insert(admin);
            tokio::select! {
                biased;
                response = next.run(request) => response,
                // Its credential ended while it waited.
                () = pass.over() => {
                    let over = AdminFailure::Unauthorized(IdentityError::Expired);
                    refused(&Refusal::Credential(over))
                }
            }
        }
        Err(refusal) => refused(&refusal),
    };
    strict(response.headers_mut());
    response
}

/// Why a request does not get past the door.
enum Refusal {
    Host,
    Credential(AdminFailure),
}

fn enter(api: &Api, headers: &HeaderMap) -> Result<Admin, Refusal> {
    if !api.hosts.admit(headers) {
        return Err(Refusal::Host);
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => Some(value.to_str().unwrap_or_default()),
        (Some(_), Some(_)) => Some(""),
        (None, _) => None,
    };
    api.credentials.admins().identify(value).map_err(Refusal::Credential)
}

fn refused(refusal: &Refusal) -> Response {
    match refusal {
        Refusal::Host => {
            let message = "this listener is not known by that name, or the page is a foreign one";
            Fault::new(StatusCode::FORBIDDEN, "host", message).into_response()
        }
        Refusal::Credential(AdminFailure::Unauthorized(error)) => {
            tracing::warn!(reason = error.reason(), "a request to the admin listener was refused");
            let message = "no such token counts here, or it has ended: send `Authorization: Bearer` \
                           with one that `portcullis token create --admin` made; the operator's \
                           is in the file `admin.token` of the state folder";
            let mut response =
                Fault::new(StatusCode::UNAUTHORIZED, "credential", message).into_response();
            let challenge = HeaderValue::from_static("Bearer realm=\"portcullis admin\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            response
        }
        Refusal::Credential(AdminFailure::Wait(wait)) => {
            let message = "too many failed credentials";
            let mut response =
                Fault::new(StatusCode::TOO_MANY_REQUESTS, "failures", message).into_response();
            let seconds = HeaderValue::from(wait.as_secs().saturating_add(1));
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response
        }
    }
}

async fn no_route() -> Fault {
    Fault::new(StatusCode::NOT_FOUND, "not_found", "there is no such route")
}

async fn no_method() -> Fault {
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this route does not take that method")
}

#[cfg(test)]
mod tests;
