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
use axum::http::header::{self, HeaderValue};
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
        .route("/decide", post(batch::batch))
        .route("/history", get(inbox::history))
        .route("/standing", get(standing::list))
        .route("/standing/{id}/end", post(standing::end))
        .route("/logout", post(login::leave))
        .route("/live", get(events::stream))
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

// The listener's own name; the session comes after it.
async fn door(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let mut response = if api.hosts.admit(request.headers()) {
        next.run(request).await
    } else {
        PageFault::foreign().into_response()
    };
    let headers = response.headers_mut();
    strict(headers);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT));
    // With `no-referrer` a browser sends the forms of this page with the origin `null`.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
