//! `/approve/{id}`: where a person is sent who is asked to decide.
//!
//! It says how to decide and nothing of the approval, so it is the same for an id that does not
//! exist and needs no credential.

use super::Api;
use super::answer::{Fault, strict};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use std::sync::Arc;

/// The door of pages: the listener's own name, no credential.
pub(super) async fn door(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let mut response = if api.hosts.admit(request.headers()) {
        next.run(request).await
    } else {
        let message = "this listener is not known by that name, or the page is a foreign one";
        Fault::new(StatusCode::FORBIDDEN, "host", message).into_response()
    };
    strict(response.headers_mut());
    response
}

pub(super) async fn approve(Path(id): Path<String>) -> Result<Html<String>, Fault> {
    let plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain {
        return Err(Fault::no_approval());
    }
    Ok(Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Decide {id}</title>\n<h1>A call waits for your approval</h1>\n\
         <p>Nothing of it has run. Look at it and decide on the machine of the gateway:</p>\n\
         <pre>portcullis approvals\nportcullis approve {id}\nportcullis deny {id} -m \"why not\"</pre>\n\
         <p>From elsewhere, with your own token: <code>GET /v1/approvals/{id}</code> and \
         <code>POST /v1/approvals/{id}/decision</code>.</p>\n</html>\n"
    )))
}
