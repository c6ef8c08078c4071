//! `initialize` and sessions, `server/discover`, and the small legacy requests.

use crate::asked::{Asked, has_part};
use crate::door::Visit;
use crate::mcp::answer::{self, INVALID_PARAMS};
use crate::mcp::envelope::{Call, member_of};
use crate::mcp::era::{LEGACY, LEGACY_NEWEST, MODERN};
use crate::mcp::headers::single;
use crate::mcp::method::Method;
use crate::mcp::sse::Body;
use crate::reply;
use crate::serve::session_id;
use crate::sessions::{Opening, Session};
use crate::shared::Shared;
use http::header::HeaderValue;
use http::{HeaderMap, Response, StatusCode};
use portcullis_policy::json::quote;
use portcullis_policy::scope::View;
use std::sync::Arc;

/// Levels of log messages, from the least (RFC 5424).
pub(crate) const LEVELS: &[&str] =
    &["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/// Longest client name that is kept, in characters.
pub(crate) const CLIENT_NAME_CHARS_MAX: usize = 64;

/// Opens a session.
pub(crate) fn initialize(shared: &Shared, visit: &Visit, call: &Call) -> Response<Body> {
    let wanted = call.params.value("protocolVersion").and_then(|version| version.text());
    let Some(wanted) = wanted else {
        let text = "`initialize` needs `protocolVersion`, a string";
        return reply::json(answer::error(Some(&call.id), INVALID_PARAMS, text, None));
    };
    // MCP 2025-11-25, lifecycle, version negotiation: an unknown version is answered with ours.
    let version = LEGACY.iter().copied().find(|known| *known == wanted).unwrap_or(LEGACY_NEWEST);
    let client: String = call
        .params
        .value("clientInfo")
        .and_then(|client| member_of(client, "name", shared.limits.json))
        .and_then(|name| Some(name.text()?.chars().take(CLIENT_NAME_CHARS_MAX).collect()))
        .unwrap_or_default();
    let opening = Opening {
        credential: &visit.principal.credential,
        path: &visit.path,
        version,
        client: &client,
        // The revision that has it (MCP 2025-11-25, elicitation).
        opens_urls: version == LEGACY_NEWEST
            && call.params.value("capabilities").is_some_and(|capabilities| {
                has_part(capabilities, "elicitation", "url", shared.limits.json)
            }),
    };
    let id = match shared.sessions.open(&opening) {
        Ok(id) => id,
        Err(error) => return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    };
    let view = visit.view();
    let result = format!(
        "{{\"protocolVersion\":{},\"capabilities\":{},\"serverInfo\":{},\"instructions\":{}}}",
        quote(version),
        capabilities(view, true),
        server_info(),
        quote(&view.instructions)
    );
    let mut response = reply::json(answer::result(&call.id, result.as_bytes()));
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("mcp-session-id", value);
    }
    response
}

/// Answers `server/discover`.
pub(crate) fn discover(asked: &Asked) -> Response<Body> {
    let view = asked.view();
    let versions: Vec<String> =
        std::iter::once(MODERN).chain(LEGACY.iter().copied()).map(quote).collect();
    let result = format!(
        "{{\"resultType\":\"complete\",\"supportedVersions\":[{}],\"capabilities\":{},\"instructions\":{},{},\"_meta\":{}}}",
        versions.join(","),
        capabilities(view, false),
        quote(&view.instructions),
        CACHE_HINTS,
        meta()
    );
    reply::json(answer::result(&asked.call.id, result.as_bytes()))
}

/// What a modern list or discovery says about caching: the view is the caller's own, and a
/// change of policy counts at once.
pub(crate) const CACHE_HINTS: &str = "\"ttlMs\":0,\"cacheScope\":\"private\"";

/// `_meta` of a modern result of ours.
pub(crate) fn meta() -> String {
    format!("{{\"io.modelcontextprotocol/serverInfo\":{}}}", server_info())
}

fn server_info() -> String {
    format!(
        "{{\"name\":\"portcullis\",\"title\":\"Portcullis\",\"version\":{}}}",
        quote(env!("CARGO_PKG_VERSION"))
    )
}

fn capabilities(view: &View, legacy: bool) -> String {
    let mut out = String::from("{\"tools\":{\"listChanged\":true}");
    if view.has_resources() {
        out.push_str(",\"resources\":{\"listChanged\":true}");
    }
    if view.has_prompts() {
        out.push_str(",\"prompts\":{\"listChanged\":true}");
    }
    if view.completes() {
        out.push_str(",\"completions\":{}");
    }
    if legacy {
        out.push_str(",\"logging\":{}");
    } else if view.may_park() {
        out.push_str(",\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}");
    }
    out.push('}');
    out
}

/// Answers `ping` and `logging/setLevel`.
pub(crate) fn small(asked: &Asked, method: Method) -> Response<Body> {
    if method == Method::SetLevel {
        let level = asked.call.params.value("level").and_then(|level| level.text());
        let Some(level) = level.filter(|level| LEVELS.contains(&&**level)) else {
            let text = "`logging/setLevel` needs `level`, one of the eight levels of RFC 5424";
            return reply::json(answer::error(Some(&asked.call.id), INVALID_PARAMS, text, None));
        };
        if let Some(session) = &asked.session {
            *session.log_level.lock() = level.into_owned();
        }
    }
    reply::json(answer::result(&asked.call.id, b"{}"))
}

/// The session of a legacy request.
///
/// # Errors
/// The answer to send instead: 400 without an id, 404 for one that is not this agent's.
pub(crate) fn session(
    shared: &Shared,
    visit: &Visit,
    headers: &HeaderMap,
) -> Result<Arc<Session>, Box<Response<Body>>> {
    let Some(id) = session_id(headers) else {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "a session is needed: send `initialize` first and then its `Mcp-Session-Id` with every request, \
             or speak revision 2026-07-28, which has no sessions",
        ));
    };
    let session =
        shared.sessions.find(id, &visit.principal.credential, &visit.path).ok_or_else(|| {
            refuse(StatusCode::NOT_FOUND, "no such session; send `initialize` to open one")
        })?;
    match single(headers, "mcp-protocol-version") {
        Ok(None) => Ok(session),
        Ok(Some(version)) if LEGACY.contains(&version) => Ok(session),
        Ok(Some(_)) | Err(_) => Err(refuse(
            StatusCode::BAD_REQUEST,
            "header `MCP-Protocol-Version` is not the revision this session agreed on",
        )),
    }
}

/// Ends a session on DELETE.
pub(crate) async fn end(shared: &Shared, visit: &Visit, headers: &HeaderMap) -> Response<Body> {
    if session_id(headers).is_none() {
        return reply::not_allowed();
    }
    let session = match session(shared, visit, headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let ended = match shared.sessions.end(&session) {
        Ok(ended) => ended,
        Err(error) => return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    };
    if let Err(error) = shared.store.end_session(&ended.hash, ended.expires_ms).await {
        tracing::error!(%error, "the end of a session is not in the store: a restart forgets it");
        let text = "the session has ended, but that could not be recorded; it may open again when \
                    the gateway restarts";
        return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, text);
    }
    reply::empty(StatusCode::NO_CONTENT)
}

fn refuse(status: StatusCode, text: &str) -> Box<Response<Body>> {
    Box::new(reply::refuse(status, text))
}
