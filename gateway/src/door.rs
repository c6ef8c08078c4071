//! What every request must pass before a byte of its body is understood: Host, Origin, route,
//! credential, size.

use crate::identity::{Pass, Principal, Seat};
use crate::mcp::sse::Body;
use crate::reply;
use crate::runs::LiveRun;
use crate::scopes::Generation;
use crate::shared::Shared;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use portcullis_policy::name::ServerName;
use portcullis_policy::scope::{Scope, View};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Time for a client to send the whole body.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(25);

/// Most bytes of a body that is too large that are read to let its sender hear so.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest time for that.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// An authenticated request at an endpoint, with the snapshot it is judged by.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    /// Who asks.
    pub(crate) principal: Principal,
    /// The run, if somebody started it.
    pub(crate) run: Option<Arc<LiveRun>>,
    /// How long the request may go on.
    pub(crate) pass: Pass,
    /// The path as it came.
    pub(crate) path: String,
    /// The server of a one-server endpoint, in its canonical spelling.
    pub(crate) server: Option<ServerName>,
    /// The generation that judges the request to its end.
    pub(crate) generation: Arc<Generation>,
    /// The agent's scope in it.
    pub(crate) scope: Arc<Scope>,
    // INVARIANT: `scope` has a view of `server`; `enter` checked it.
    _checked: (),
}

impl Visit {
    /// What the visitor may reach in another generation.
    pub(crate) fn scope_in(&self, generation: &Generation) -> Option<Arc<Scope>> {
        scope_in(generation, &self.principal, self.run.as_deref())
    }

    /// What the agent sees at this endpoint.
    pub(crate) fn view(&self) -> &View {
        self.scope.view(self.server.as_ref()).unwrap_or(&self.scope.all)
    }
}

/// Admits a request to an endpoint.
///
/// # Errors
/// The answer to send instead.
pub(crate) fn enter(
    shared: &Shared,
    peer: IpAddr,
    head: &Parts,
) -> Result<Visit, Box<Response<Body>>> {
    if !shared.hosts.admit(&head.headers) {
        return Err(refuse(
            StatusCode::FORBIDDEN,
            "this Host or Origin may not use the gateway; set `publicUrl.agents` if the gateway has another name",
        ));
    }
    let route = route(head).ok_or_else(|| {
        refuse(
            StatusCode::NOT_FOUND,
            "no such endpoint; use /mcp, /a/AGENT/mcp, /a/AGENT/s/SERVER/mcp or the same with /r/RUN after the agent",
        )
    })?;
    let from = (peer, route.agent);
    let principal = shared.identify(&head.headers, from).map_err(|error| {
        shared.metrics.unidentified(error.reason());
        tracing::info!(reason = error.reason(), "a credential was not accepted");
        Box::new(reply::unauthorized())
    })?;
    if route.agent.is_some_and(|agent| !agent.eq_ignore_ascii_case(principal.agent.as_str())) {
        return Err(refuse(
            StatusCode::FORBIDDEN,
            "this token belongs to another agent than the URL names; use that agent's URL or /mcp",
        ));
    }
    let run = run_of(shared, &principal, route.run)?;
    let generation = shared.scopes.snapshot();
    let Some(scope) = scope_in(&generation, &principal, run.as_deref()) else {
        return Err(refuse(
            StatusCode::FORBIDDEN,
            "no policy file defines the agent of this token, so it may use nothing; define it or remove its token",
        ));
    };
    let server = match route.server {
        None => None,
        Some(name) => Some(one_server(&scope, name).ok_or_else(|| {
            let text = format!(
                "agent `{}` has no such server, and nothing was sent. {}",
                principal.agent,
                scope.all.authorised()
            );
            refuse(StatusCode::NOT_FOUND, &text)
        })?),
    };
    let mut principal = principal;
    let mut leases = vec![principal.lease.clone()];
    if let Some(run) = &run {
        principal.run.clone_from(&run.id);
        leases.extend((principal.seat == Seat::Unnamed).then(|| run.lease.clone()));
    }
    let pass = Pass::new(leases);
    if pass.is_closed() {
        return Err(Box::new(reply::unauthorized()));
    }
    Ok(Visit {
        principal,
        run,
        pass,
        path: head.uri.path().to_owned(),
        server,
        generation,
        scope,
        _checked: (),
    })
}

// The run that was started: the token's own, or the one in the path of an agent that may enter
// it. Another agent's run, an ended one and none at all are answered alike.
fn run_of(
    shared: &Shared,
    principal: &Principal,
    named: Option<&str>,
) -> Result<Option<Arc<LiveRun>>, Box<Response<Body>>> {
    let id = match (principal.seat, named) {
        (Seat::Unnamed | Seat::Loopback, None) => return Ok(None),
        (Seat::Run, None) => principal.run.as_str(),
        (Seat::Unnamed | Seat::Run | Seat::Loopback, Some(id)) => id,
    };
    let foreign = match principal.seat {
        Seat::Unnamed => false,
        Seat::Run => id != principal.run,
        Seat::Loopback => true,
    };
    let run = shared
        .table
        .find(id)
        .filter(|run| !foreign && !run.unnamed && run.agent == principal.agent);
    // Told by the run's own time, so that it does not depend on who ends it in the store.
    match run.map(|run| (run.is_over(), run)) {
        Some((false, run)) => Ok(Some(run)),
        // A token of a run that is over is no credential any more.
        Some((true, _)) if principal.seat == Seat::Run => Err(Box::new(reply::unauthorized())),
        Some((true, _)) | None => Err(refuse(
            StatusCode::NOT_FOUND,
            "you have no such run, or it has ended; ask whoever started it for a new one",
        )),
    }
}

fn scope_in(
    generation: &Generation,
    principal: &Principal,
    run: Option<&LiveRun>,
) -> Option<Arc<Scope>> {
    match run {
        Some(run) => run.scope(generation),
        None => generation.scopes.get(&principal.agent).map(Arc::clone),
    }
}

fn one_server(scope: &Scope, name: &str) -> Option<ServerName> {
    let name = ServerName::new(name).ok()?;
    scope.servers.get_key_value(&name).map(|(canonical, _)| canonical.clone())
}

#[derive(Default)]
struct Route<'a> {
    agent: Option<&'a str>,
    run: Option<&'a str>,
    server: Option<&'a str>,
}

// Exact paths only: nothing is decoded, folded or normalised into a route.
fn route(head: &Parts) -> Option<Route<'_>> {
    if head.uri.authority().is_some() || head.uri.query().is_some() {
        return None;
    }
    let mut parts = head.uri.path().strip_prefix('/')?.split('/');
    let parts: [Option<&str>; 8] = std::array::from_fn(|_| parts.next());
    let (route, rest): (Route<'_>, &[Option<&str>]) = match &parts {
        [Some("a"), agent @ Some(_), Some("r"), run @ Some(_), rest @ ..] => {
            (Route { agent: *agent, run: *run, server: None }, rest)
        }
        [Some("a"), agent @ Some(_), rest @ ..] => {
            (Route { agent: *agent, ..Route::default() }, rest)
        }
        [Some("mcp"), None, ..] => return Some(Route::default()),
        _ => return None,
    };
    match rest {
        [Some("mcp"), None, ..] => Some(route),
        [Some("s"), server @ Some(_), Some("mcp"), None, ..] => {
            Some(Route { server: *server, ..route })
        }
        _ => None,
    }
}

/// Reads the body within its limits.
///
/// # Errors
/// The answer to send instead: 415, 413, 408 or 400.
pub(crate) async fn body(
    shared: &Shared,
    head: &Parts,
    mut body: Incoming,
) -> Result<Bytes, Box<Response<Body>>> {
    let json =
        head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
            value
                .split(';')
                .next()
                .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        });
    if !json || head.headers.contains_key(CONTENT_ENCODING) {
        return Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send `Content-Type: application/json` without a content encoding",
        ));
    }
    let most = shared.limits.request_bytes;
    let too_large = || {
        let text = format!("the body is larger than {most} bytes (`limits.requestBytes`)");
        refuse(StatusCode::PAYLOAD_TOO_LARGE, &text)
    };
    let announced =
        head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > most as u64) {
        discard(&mut body).await;
        return Err(too_large());
    }
    let read = tokio::time::timeout(BODY_READ_TIMEOUT, collect(&mut body, most)).await;
    match read {
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body came too slowly")),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLarge)) => {
            discard(&mut body).await;
            Err(too_large())
        }
        Ok(Err(BodyError::Broken)) => Err(refuse(StatusCode::BAD_REQUEST, "the body ended early")),
    }
}

enum BodyError {
    TooLarge,
    Broken,
}

// A client that is still writing when the connection closes never reads why. What it goes on to
// send is thrown away, within bounds.
async fn discard(body: &mut Incoming) {
    let thrown_away = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    // Being late changes nothing: the answer goes out either way.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, thrown_away).await;
}

async fn collect(body: &mut Incoming, most: usize) -> Result<Bytes, BodyError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if first.len() + all.len() + data.len() > most {
            return Err(BodyError::TooLarge);
        }
        // One frame is the rule; it is kept as it came.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            all.extend_from_slice(&first);
            first = Bytes::new();
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn refuse(status: StatusCode, text: &str) -> Box<Response<Body>> {
    Box::new(reply::refuse(status, text))
}
