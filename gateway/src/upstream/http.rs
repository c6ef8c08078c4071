//! Streamable HTTP: one endpoint of one server.
//!
//! The gateway's own headers are computed for every request; what the operator configures can
//! add to them and never replaces one. Nothing an agent sent as a header comes here.

mod connect;
mod exchange;
mod pool;
mod sse;

use crate::upstream::counters::{Counters, count};
use crate::upstream::http::connect::Origin;
use crate::upstream::http::exchange::Exchange;
use crate::upstream::http::pool::{Connection, Pool, SendFault};
use crate::upstream::keeper::Upstream;
use crate::upstream::link::{Fault, Heard};
use crate::upstream::message::{self, Failure, Outgoing, Voice};
use crate::upstream::mirror;
use crate::upstream::session::{Era, Session};
use crate::upstream::settings::{UpstreamError, UpstreamSettings};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a notification may take.
const NOTIFY_WITHIN: Duration = Duration::from_secs(5);
/// How long the end of a session may take.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Cancellations that wait to be sent.
const ERRANDS_MAX: usize = 256;
/// Largest body of an error or of an answer nobody reads, in bytes.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Headers that only the gateway writes, beside all that start with `mcp-`.
const OWN_HEADERS: [&str; 11] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where a server is, with resolved headers.
#[derive(Clone, Copy)]
pub(crate) struct Address<'a> {
    /// The URL.
    pub(crate) url: &'a str,
    /// Headers of the operator's.
    pub(crate) headers: &'a [(String, String)],
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    origin: Origin,
    target: Uri,
    base: HeaderMap,
    voice: Voice,
    pool: Pool,
    next_id: AtomicU64,
    counters: Arc<Counters>,
    changed: Arc<Notify>,
    errands: mpsc::Sender<Errand>,
    body_bytes_max: usize,
}

/// A cancellation that outlives its caller.
#[derive(Debug)]
pub(crate) struct Errand {
    id: u64,
    session: Arc<Session>,
}

impl Endpoint {
    /// The endpoint at `address`. The receiver holds what [`Endpoint::run`] must send.
    pub(crate) fn new(
        upstream: &Upstream,
        address: Address<'_>,
        settings: &UpstreamSettings,
        tls: &mut Option<TlsConnector>,
    ) -> Result<(Arc<Self>, mpsc::Receiver<Errand>), UpstreamError> {
        let server = &upstream.server.name;
        let refuse = |cause: &str| UpstreamError::Url {
            server: server.clone(),
            url: address.url.to_owned(),
            cause: cause.to_owned(),
        };
        let uri: Uri = address.url.parse().map_err(|_| refuse("it is no URL"))?;
        let authority = uri.authority().ok_or_else(|| refuse("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(UpstreamError::Url {
                server: server.clone(),
                // The URL is not repeated: what stands before the `@` is a secret.
                url: format!("…@{}", uri.host().unwrap_or_default()),
                cause: "a credential belongs into `headers`, not into the URL".to_owned(),
            });
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let (encrypted, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(refuse("the scheme is neither `http` nor `https`")),
        };
        let tls = if encrypted {
            let fail = |cause: String| UpstreamError::Tls { server: server.clone(), cause };
            let connector = match tls {
                Some(connector) => connector.clone(),
                None => {
                    tls.insert(connect::tls().map_err(|error| fail(error.to_string()))?).clone()
                }
            };
            let name =
                ServerName::try_from(host.clone()).map_err(|error| refuse(&error.to_string()))?;
            Some((connector, name))
        } else {
            None
        };
        let origin = Origin { host, port: authority.port_u16().unwrap_or(port), tls };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let target: Uri = path.parse().map_err(|_| refuse("its path cannot be used"))?;
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|_| refuse("it has a bad host"))?;
        let (errands, queue) = mpsc::channel(ERRANDS_MAX);
        let endpoint = Self {
            origin,
            target,
            base: base(upstream, address.headers, host)?,
            voice: Voice::new(&settings.version),
            pool: Pool::default(),
            next_id: AtomicU64::new(1),
            counters: Arc::clone(&upstream.counters),
            changed: Arc::clone(&upstream.changed),
            errands,
            body_bytes_max: settings.result_bytes_max + super::ENVELOPE_BYTES_MAX,
        };
        Ok((Arc::new(endpoint), queue))
    }

    /// Sends a request and waits for its answer until `deadline`. A caller that goes away closes
    /// the connection, and in the legacy era also cancels the request.
    pub(crate) async fn request(
        &self,
        outgoing: &Outgoing,
        session: &Arc<Session>,
        deadline: Instant,
    ) -> Result<Heard, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let body = outgoing.encode(id, &self.voice.of(session.era));
        let mut request = self.post(body.into(), session);
        if session.era == Era::Modern {
            mirror_into(request.headers_mut(), outgoing)?;
        }
        let mut exchange = Exchange::new(self, (outgoing, session), id);
        exchange.run(request, deadline).await
    }

    /// Sends a notification or an answer; it is lost if the server does not take it in time.
    pub(crate) async fn notify(&self, message: &str, session: &Session) {
        let request = self.post(Bytes::copy_from_slice(message.as_bytes()), session);
        let sent = timeout(NOTIFY_WITHIN, self.deliver(request)).await;
        if !matches!(sent, Ok(Ok(status)) if status < 400) {
            count(&self.counters.dropped_notices);
        }
    }

    /// Ends a session the server gave an id to.
    pub(crate) async fn end_session(&self, session: &Session) {
        if session.id.is_some() {
            let mut request = self.post(Bytes::new(), session);
            *request.method_mut() = Method::DELETE;
            // A server may answer that clients cannot end sessions.
            let _ = timeout(END_WITHIN, self.deliver(request)).await;
        }
    }

    /// Sends the cancellations of callers that went away, until the queue ends.
    pub(crate) async fn run(&self, queue: &mut mpsc::Receiver<Errand>) {
        while let Some(errand) = queue.recv().await {
            self.notify(&message::cancelled(errand.id), &errand.session).await;
        }
    }

    /// Closes connections that were idle for too long.
    pub(crate) fn sweep(&self) {
        self.pool.sweep();
    }

    fn post(&self, body: Bytes, session: &Session) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.base.clone();
        if let Some(version) = session.version {
            request.headers_mut().insert(VERSION, HeaderValue::from_static(version));
        }
        if let Some(id) = &session.id {
            request.headers_mut().insert(SESSION, id.clone());
        }
        request
    }

    // Sends a request nobody waits for; returns the status.
    async fn deliver(&self, request: Request<Full<Bytes>>) -> Result<u16, SendFault> {
        let (mut connection, response) = self.send(request, &mut |_| {}).await?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Ok(Some(piece)) = connection.piece(&mut body).await {
            bytes += piece.len();
            if bytes > ERROR_BODY_BYTES_MAX {
                return Ok(status);
            }
        }
        self.pool.put(connection, None).await;
        Ok(status)
    }

    // Sends on an idle connection, or on a new one. Only a request that provably did not leave
    // is sent again. `leaving` is told before a byte may leave, and when it turns out none did.
    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        leaving: &mut impl FnMut(bool),
    ) -> Result<(Connection, Response<Incoming>), SendFault> {
        while let Some(mut connection) = self.pool.take().await {
            leaving(true);
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(SendFault::Returned(back, _)) => request = *back,
                Err(fault) => return Err(fault),
            }
            leaving(false);
        }
        let mut connection = Connection::open(&self.origin).await.map_err(SendFault::Unreached)?;
        leaving(true);
        let response = connection.send(request).await?;
        Ok((connection, response))
    }
}

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

fn mirror_into(headers: &mut HeaderMap, outgoing: &Outgoing) -> Result<(), Failure> {
    let value = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|_| Failure::NotSent("a header cannot be made".to_owned()))
    };
    headers.insert(METHOD, HeaderValue::from_static(outgoing.method));
    if let Some(name) = &outgoing.name {
        headers.insert(NAME, value(&mirror::encode(name))?);
    }
    for (name, text) in &outgoing.mirrored {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Failure::NotSent(format!("`{name}` is no header name")))?;
        headers.insert(name, value(text)?);
    }
    Ok(())
}

fn base(
    upstream: &Upstream,
    configured: &[(String, String)],
    host: HeaderValue,
) -> Result<HeaderMap, UpstreamError> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static("portcullis"));
    for (name, value) in configured {
        let refuse = |cause| UpstreamError::Header {
            server: upstream.server.name.clone(),
            header: name.clone(),
            cause,
        };
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("mcp-") || OWN_HEADERS.contains(&lower.as_str()) {
            return Err(refuse("the gateway writes it itself"));
        }
        let header: HeaderName = lower.parse().map_err(|_| refuse("it is no header name"))?;
        let mut value =
            HeaderValue::from_str(value).map_err(|_| refuse("its value has a bad character"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(headers)
}
