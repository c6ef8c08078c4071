//! The page: where people see what waits, and decide it.
//!
//! Rendered here, whole, so that a decision needs no script; with one the page follows what
//! happens. Nothing but a form of ours, from a page of ours, in a session of ours changes anything
//! (its own cookie, a token in the form, the `Origin` of this listener). Text from elsewhere gets
//! into a page as text alone. No parameter says where a browser goes next.

mod arguments;
mod assets;
mod batch;
mod card;
mod comparison;
mod decide;
mod fault;
mod form;
mod frame;
mod inbox;
mod list;
mod login;
mod session;
mod standing;
mod time;

use super::answer::strict;
use super::{Api, events};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fault::PageFault;
use std::sync::Arc;

pub(super) use card::Told;
pub(super) use login::{Link, link};

/// Largest form, in bytes: edited arguments, each byte of which may take three.
pub(super) const FORM_BYTES_MAX: usize = 256 * 1024;

/// Where the styles, the script and the events come from, and where forms go: this listener.
const CONTENT: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";

/// The routes of the page.
pub(super) fn routes(api: &Arc<Api>) -> Router<Arc<Api>> {
    let inside = Router::new()
        .route("/", get(inbox::inbox))
        .route("/approve/{id}", get(inbox::card).post(decide::decide))
        .route("/decide", post(batch::batch).get(login::home))
        .route("/history", get(inbox::history))
        .route("/standing", get(standing::list))
        .route("/standing/{id}/end", post(standing::end).get(login::home))
        .route("/logout", post(login::leave).get(login::home))
        .route("/live", get(events::hints))
        .layer(from_fn_with_state(Arc::clone(api), session::inside));
    Router::new()
        .route("/login", get(login::ask).post(login::enter))
        .route("/login/check", get(login::check))
        .route("/page.css", get(assets::css))
        .route("/page.js", get(assets::script))
        .merge(inside)
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(api), door))
}

/// True if a person follows an address that is no page and none of the API.
pub(super) fn is_asked_for(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let browser = accept.is_some_and(|accept| accept.contains("text/html"));
    browser && *method == Method::GET && !path.starts_with("/v1/")
}

/// The page for such an address; the same for everybody.
pub(super) fn nothing_here() -> Response {
    let text = "There is no such page.";
    let mut response = PageFault::new(StatusCode::NOT_FOUND, "Nothing here", text).into_response();
    dressed(response.headers_mut());
    response
}

// The listener's own name; the session comes after it.
async fn door(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let mut response = if api.hosts.admit(request.headers()) {
        next.run(request).await
    } else {
        PageFault::foreign().into_response()
    };
    dressed(response.headers_mut());
    response
}

fn dressed(headers: &mut HeaderMap) {
    strict(headers);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT));
    // With `no-referrer` a browser sends the forms of this page with the origin `null`.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}
