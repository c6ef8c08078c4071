//! HTTP answers to agents.

use crate::mcp::answer;
use crate::mcp::sse::Body;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

/// A JSON answer with status 200.
pub(crate) fn json(body: Bytes) -> Response<Body> {
    error(StatusCode::OK, body)
}

/// A JSON answer with another status.
pub(crate) fn error(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An event stream; its headers leave at once.
pub(crate) fn stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// 202 without a body.
pub(crate) fn accepted() -> Response<Body> {
    empty(StatusCode::ACCEPTED)
}

/// A status without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// 405; this endpoint takes POST.
pub(crate) fn not_allowed() -> Response<Body> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

/// A refusal before any JSON-RPC message was read. The body is a JSON-RPC error all the same:
/// some clients show nothing else to their user.
pub(crate) fn refuse(status: StatusCode, text: &str) -> Response<Body> {
    error(status, answer::error(None, answer::NOT_ADMITTED, text, None))
}

/// 401 for a request whose credential or run ended while it was served.
pub(crate) fn ended() -> Response<Body> {
    refuse(
        StatusCode::UNAUTHORIZED,
        "the credential or the run of this request has ended; what it had sent may have run: \
         find out before you call it again",
    )
}

/// 401 with a challenge.
pub(crate) fn unauthorized() -> Response<Body> {
    let mut response = refuse(
        StatusCode::UNAUTHORIZED,
        "a valid agent token is needed: send `Authorization: Bearer pcl_agent_…`",
    );
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"portcullis\""));
    response
}
