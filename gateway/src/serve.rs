//! One request from door to door.
//!
//! Host and Origin, route, credential, size, envelope, revision; then the one match that sends
//! it to list, call, read or subscribe.

use crate::asked::Asked;
use crate::list::Listed;
use crate::mcp::envelope::{self, Call, EnvelopeError, Members, Message};
use crate::mcp::era::{self, Era, EraError};
use crate::mcp::method::Method;
use crate::mcp::sse::Body;
use crate::mcp::{answer, headers};
use crate::read::Read;
use crate::shared::Shared;
use crate::{call, door, handshake, list, read, reply, subscribe, tasks};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a request may go on whose credential or run has ended.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Answers one HTTP request of an agent.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let visit = match door::enter(&shared, peer, &head) {
        Ok(visit) => visit,
        Err(refusal) => return *refusal,
    };
    let pass = visit.pass.clone();
    let mut work = std::pin::pin!(admitted(shared, visit, head, body));
    let done = tokio::select! {
        biased;
        response = work.as_mut() => Some(response),
        () = pass.over() => None,
    };
    let response = match done {
        Some(response) => response,
        // A call that waited has its end by now and says so; dropping ends what else had begun.
        None => match tokio::time::timeout(LAST_WORDS, work).await {
            Ok(response) => response,
            Err(_) => return reply::ended(),
        },
    };
    response.map(|body| body.until(async move { pass.over().await }))
}

async fn admitted(
    shared: Arc<Shared>,
    visit: door::Visit,
    head: Parts,
    body: Incoming,
) -> Response<Body> {
    match head.method {
        http::Method::POST => {}
        http::Method::GET => return subscribe::standalone(&shared, &visit, &head.headers),
        http::Method::DELETE => return handshake::end(&shared, &visit, &head.headers).await,
        _ => return reply::not_allowed(),
    }
    let body = match door::body(&shared, &head, body).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let message = match envelope::read(&body, shared.limits.json) {
        Ok(message) => message,
        Err(error) => return malformed(&shared, &visit, &error),
    };
    match message {
        Message::Request(call) => requested(shared, visit, &head.headers, call).await,
        Message::Notification { method, params } => {
            noticed(&shared, &visit, &head.headers, &(method, params))
        }
        // Nothing here asks agents anything yet, so no answer can match an open question.
        Message::Response => reply::error(
            StatusCode::BAD_REQUEST,
            answer::error(
                None,
                answer::INVALID_REQUEST,
                "no request of this gateway waits for an answer",
                None,
            ),
        ),
    }
}

async fn requested(
    shared: Arc<Shared>,
    visit: door::Visit,
    headers: &HeaderMap,
    call: Call,
) -> Response<Body> {
    let (era, method) = match era::judge(headers, &call) {
        Ok(judged) => judged,
        Err(error) => return era_refused(&call, &error),
    };
    if method == Method::Initialize {
        return handshake::initialize(&shared, &visit, &call);
    }
    let session = match era {
        Era::Modern => None,
        Era::Legacy => match handshake::session(&shared, &visit, headers) {
            Ok(session) => Some(session),
            Err(refusal) => return *refusal,
        },
    };
    let asked = Asked::new(shared, visit, era, session, (call, takes_stream(headers)));
    match method {
        Method::Initialize | Method::Ping | Method::SetLevel => handshake::small(&asked, method),
        Method::Discover => handshake::discover(&asked),
        Method::ListTools => list::list(&asked, Listed::Tools),
        Method::ListResources => list::list(&asked, Listed::Resources),
        Method::ListTemplates => list::list(&asked, Listed::Templates),
        Method::ListPrompts => list::list(&asked, Listed::Prompts),
        // Boxed: they are large, and a list would carry their room along.
        Method::CallTool => Box::pin(call::call(asked, headers)).await,
        Method::ReadResource => Box::pin(read::read(asked, Read::Resource)).await,
        Method::GetPrompt => Box::pin(read::read(asked, Read::Prompt)).await,
        Method::Complete => Box::pin(read::read(asked, Read::Completion)).await,
        Method::GetTask => Box::pin(tasks::get(&asked)).await,
        Method::CancelTask => Box::pin(tasks::cancel(&asked)).await,
        Method::UpdateTask => Box::pin(tasks::update(&asked)).await,
        Method::Listen => Box::pin(subscribe::listen(&asked)).await,
    }
}

// A notification is never forwarded as it is and never answered with a JSON-RPC message.
fn noticed(
    shared: &Arc<Shared>,
    visit: &door::Visit,
    headers: &HeaderMap,
    (method, params): &(String, Members),
) -> Response<Body> {
    if !method.starts_with("notifications/") {
        let text = "a request needs an `id`; only `notifications/…` go without";
        return reply::error(
            StatusCode::BAD_REQUEST,
            answer::error(None, answer::INVALID_REQUEST, text, None),
        );
    }
    if method == "notifications/cancelled"
        && let Some(id) = params.value("requestId")
        && let Ok(session) = handshake::session(shared, visit, headers)
    {
        session.cancel(id);
    }
    reply::accepted()
}

fn era_refused(call: &Call, error: &EraError) -> Response<Body> {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_REQUEST);
    reply::error(
        status,
        answer::error(Some(&call.id), error.code, &error.message, error.data.as_deref()),
    )
}

fn malformed(shared: &Shared, visit: &door::Visit, error: &EnvelopeError) -> Response<Body> {
    shared.refused_message(visit, error.reason());
    let (id, status) = match error {
        EnvelopeError::Params(id) => (Some(id), StatusCode::OK),
        EnvelopeError::Json(_)
        | EnvelopeError::Batch
        | EnvelopeError::Shape(_)
        | EnvelopeError::LookAlike(_) => (None, StatusCode::BAD_REQUEST),
    };
    reply::error(status, answer::error(id, error.code(), &error.to_string(), None))
}

/// True if the client takes an event stream as an answer.
pub(crate) fn takes_stream(headers: &HeaderMap) -> bool {
    headers.get_all(http::header::ACCEPT).iter().any(|value| {
        value.to_str().is_ok_and(|text| text.contains("text/event-stream") || text.contains("*/*"))
    })
}

/// The session id a request carries.
pub(crate) fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers::single(headers, "mcp-session-id").ok().flatten()
}
