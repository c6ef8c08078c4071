//! Sends what a permit opens and brings the answer back, as plain JSON when it comes at once and
//! as a stream when there is progress to show or time passes.

use crate::asked::Asked;
use crate::mcp::answer::{self, Remedy, tool_error, with_members};
use crate::mcp::envelope::Raw;
use crate::mcp::era::Era;
use crate::mcp::progress;
use crate::mcp::sse::{self, Body, EventSender, Gone};
use crate::record::{Ending, Record};
use crate::reply;
use crate::sessions::InFlight;
use crate::upstream::{Failure, Forward, Log, Reply};
use crate::usage::Running;
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use portcullis_policy::decide::Permit;
use portcullis_policy::json::{JsonLimits, Reader};
use portcullis_policy::name::ServerName;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// An answer that takes longer becomes a stream, so that clients see the headers in time.
const PLAIN_WAIT: Duration = Duration::from_secs(5);
/// How often a quiet stream gets a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(12);
/// Notifications of one call that may wait for its stream; more are dropped and counted.
pub(crate) const NOTES_QUEUED_MAX: usize = 64;

/// What is being run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tool: failures are results the model reads.
    Tool,
    /// A resource, prompt or completion: failures are JSON-RPC errors.
    Other,
}

/// Runs `permit` and answers.
pub(crate) async fn run(
    asked: Asked,
    permit: Permit,
    mut record: Record,
    kind: Kind,
) -> Response<Body> {
    if let Err(error) = record.intent(&permit) {
        record.finish(Ending::AuditFailed);
        let body = answer::error(Some(&asked.call.id), answer::AUDIT_UNAVAILABLE, &error, None);
        return reply::error(StatusCode::SERVICE_UNAVAILABLE, body);
    }
    let server = permit.target().server().clone();
    let answer = Answer { id: asked.call.id.clone(), era: asked.era, kind, server };
    let (forward, mut notes) = forward(&asked, kind);
    let running = asked.start();
    let in_flight = asked.enter();
    let upstreams = asked.shared.upstreams.clone();
    let mut work = Work::new(asked.era, async move {
        let reply = upstreams.call(permit, forward).await;
        record.finish(ending(&reply));
        reply
    });
    let begun = tokio::select! {
        biased;
        reply = &mut work => Begun::Done(reply),
        Some(note) = notes.next() => Begun::Note(note),
        () = tokio::time::sleep(PLAIN_WAIT) => Begun::Slow,
        () = cancelled(in_flight.as_ref()) => {
            work.abandon();
            return reply::accepted();
        }
    };

    let first = match begun {
        Begun::Done(reply) => return at_once(&answer, reply, notes, asked.progress_token()),
        Begun::Note(note) => Some(note),
        Begun::Slow => None,
    };
    let token = asked.progress_token().cloned();
    let streamed = Streamed { answer, token, notes, in_flight, _running: running };
    reply::stream(Body::stream(move |events| async move {
        // The reader may leave at any time; the record is kept by the work itself.
        let _ = streamed.relay(work, first, &events).await;
    }))
}

enum Begun {
    Done(Result<Reply, Failure>),
    Note(Note),
    Slow,
}

// The answer is there; what was said before it goes before it.
fn at_once(
    answer: &Answer,
    reply: Result<Reply, Failure>,
    mut notes: Notes,
    token: Option<&Raw>,
) -> Response<Body> {
    let said: Vec<Bytes> = notes.waiting().filter_map(|note| note.message(token)).collect();
    let status = answer.status(&reply);
    let message = answer.write(reply);
    if said.is_empty() {
        return reply::error(status, message);
    }
    let mut events = BytesMut::new();
    for message in said.iter().chain([&message]) {
        events.extend_from_slice(&sse::event(message));
    }
    reply::stream(Body::full(events.freeze()))
}

async fn cancelled(in_flight: Option<&InFlight>) {
    match in_flight {
        Some(in_flight) => in_flight.cancelled().await,
        None => std::future::pending().await,
    }
}

/// What an upstream says while it works.
enum Note {
    Progress(Bytes),
    Log(Bytes),
}

struct Notes {
    progress: mpsc::Receiver<Bytes>,
    log: mpsc::Receiver<Bytes>,
}

impl Notes {
    async fn next(&mut self) -> Option<Note> {
        tokio::select! {
            Some(progress) = self.progress.recv() => Some(Note::Progress(progress)),
            Some(log) = self.log.recv() => Some(Note::Log(log)),
            else => None,
        }
    }

    fn waiting(&mut self) -> impl Iterator<Item = Note> + '_ {
        let Self { progress, log } = self;
        let progress = std::iter::from_fn(|| progress.try_recv().ok()).map(Note::Progress);
        progress.chain(std::iter::from_fn(|| log.try_recv().ok()).map(Note::Log))
    }
}

fn forward(asked: &Asked, kind: Kind) -> (Forward, Notes) {
    let (progress_sender, progress) = mpsc::channel(NOTES_QUEUED_MAX);
    let (log_sender, log) = mpsc::channel(NOTES_QUEUED_MAX);
    let known: &[&str] = match kind {
        Kind::Tool => &["name", "arguments"],
        Kind::Other => &["name", "uri", "ref"],
    };
    let forward = Forward {
        params: asked.other_params(known),
        meta: asked.passing_meta(),
        progress: asked.progress_token().map(|_| progress_sender),
        log: asked.log_level().map(|level| Log { level, to: log_sender }),
    };
    (forward, Notes { progress, log })
}

struct Streamed {
    answer: Answer,
    token: Option<Raw>,
    notes: Notes,
    in_flight: Option<InFlight>,
    _running: Running,
}

impl Streamed {
    async fn relay(
        mut self,
        mut work: Work,
        first: Option<Note>,
        events: &EventSender,
    ) -> Result<(), Gone> {
        if let Some(note) = first {
            note.send(self.token.as_ref(), events).await?;
        }
        loop {
            tokio::select! {
                biased;
                Some(note) = self.notes.next() => note.send(self.token.as_ref(), events).await?,
                reply = &mut work => {
                    // What was said before the answer goes before the answer.
                    let waiting: Vec<Note> = self.notes.waiting().collect();
                    for note in waiting {
                        note.send(self.token.as_ref(), events).await?;
                    }
                    return events.message(&self.answer.write(reply)).await;
                }
                () = tokio::time::sleep(KEEP_ALIVE) => events.comment().await?,
                () = cancelled(self.in_flight.as_ref()) => {
                    work.abandon();
                    return Ok(());
                }
            }
        }
    }
}

impl Note {
    fn message(self, token: Option<&Raw>) -> Option<Bytes> {
        match (self, token) {
            (Self::Progress(params), Some(token)) => progress::relayed(&params, token),
            (Self::Progress(_), None) => None,
            (Self::Log(params), _) => Some(logged(&params)),
        }
    }

    async fn send(self, token: Option<&Raw>, events: &EventSender) -> Result<(), Gone> {
        match self.message(token) {
            Some(message) => events.message(&message).await,
            None => Ok(()),
        }
    }
}

fn logged(params: &Bytes) -> Bytes {
    let mut out = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":".to_vec();
    out.extend_from_slice(params);
    out.push(b'}');
    Bytes::from(out)
}

fn ending(reply: &Result<Reply, Failure>) -> Ending {
    match reply {
        Ok(Reply::Result(raw)) if is_tool_error(raw) => Ending::ToolError,
        Ok(Reply::Result(_)) => Ending::Ok,
        Ok(Reply::Error(_)) => Ending::RpcError,
        Err(failure) if failure.may_have_run() => Ending::Unknown,
        Err(_) => Ending::NotSent,
    }
}

/// True if a tool result says `isError`.
pub(crate) fn is_tool_error(result: &Bytes) -> bool {
    top_member(result, "isError").as_deref() == Some("true")
}

// The source text of a member of a result. Most results lack the word, and are not read.
fn top_member(result: &Bytes, wanted: &str) -> Option<String> {
    let text = std::str::from_utf8(result).ok()?;
    if !text.contains(wanted) {
        return None;
    }
    let limits = JsonLimits { items_max: usize::MAX, ..JsonLimits::default() };
    let mut found = None;
    let mut reader = Reader::new(result, limits).ok()?;
    reader
        .object(|reader, name| {
            let value = reader.value()?;
            if name == wanted {
                found = Some(value.to_owned());
            }
            Ok(())
        })
        .ok()?;
    found
}

/// How replies are written for one request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The request's id.
    pub(crate) id: Raw,
    /// The agent's era.
    pub(crate) era: Era,
    /// What was run.
    pub(crate) kind: Kind,
    /// The server it was sent to.
    pub(crate) server: ServerName,
}

impl Answer {
    /// The response to a request that was run.
    pub(crate) fn write(&self, reply: Result<Reply, Failure>) -> Bytes {
        match reply {
            Ok(Reply::Result(raw)) => self.result(&raw),
            Ok(Reply::Error(raw)) => answer::upstream_error(&self.id, &raw),
            Err(failure) => {
                tracing::warn!(%failure, server = %self.server, "an upstream did not answer");
                self.failed(&failure.text(&self.server))
            }
        }
    }

    /// The HTTP status that revision 2026-07-28 wants beside some error codes.
    fn status(&self, reply: &Result<Reply, Failure>) -> StatusCode {
        let Ok(Reply::Error(raw)) = reply else { return StatusCode::OK };
        let code = top_member(raw, "code").and_then(|code| code.parse::<i64>().ok());
        match (self.era, code) {
            (Era::Modern, Some(-32_099..=-32_020)) => StatusCode::BAD_REQUEST,
            (Era::Modern, Some(answer::METHOD_NOT_FOUND)) => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        }
    }

    /// A result of an upstream, unchanged but for members that the agent's era demands.
    pub(crate) fn result(&self, raw: &Bytes) -> Bytes {
        match top_member(raw, "resultType").as_deref() {
            None | Some("\"complete\"") => {}
            Some(_) => {
                return self.failed(
                    "The server asked for input or began a task, which this gateway does not pass on yet. \
                     It may have run in part.",
                );
            }
        }
        if self.era == Era::Legacy {
            return answer::result(&self.id, raw);
        }
        let mut missing = String::new();
        if top_member(raw, "resultType").is_none() {
            missing.push_str("\"resultType\":\"complete\"");
        }
        if self.kind == Kind::Other
            && top_member(raw, "contents").is_some()
            && top_member(raw, "ttlMs").is_none()
        {
            let comma = if missing.is_empty() { "" } else { "," };
            missing.push_str(comma);
            missing.push_str(crate::handshake::CACHE_HINTS);
        }
        if missing.is_empty() {
            return answer::result(&self.id, raw);
        }
        answer::result(&self.id, &with_members(raw, &missing))
    }

    /// A failure in the gateway's words.
    pub(crate) fn failed(&self, text: &str) -> Bytes {
        match self.kind {
            Kind::Tool => answer::result(&self.id, tool_error(text, Remedy::None, None).as_bytes()),
            Kind::Other => answer::error(Some(&self.id), answer::UPSTREAM_UNAVAILABLE, text, None),
        }
    }
}

type Sent = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// A call in flight. Dropping it ends the call in the modern era, where leaving is cancelling;
/// in the legacy era it goes on without a reader (MCP 2025-11-25, transports: a disconnect
/// should not be taken for a cancellation).
struct Work {
    era: Era,
    future: Option<Sent>,
}

impl Work {
    fn new(
        era: Era,
        future: impl Future<Output = Result<Reply, Failure>> + Send + 'static,
    ) -> Self {
        Self { era, future: Some(Box::pin(future)) }
    }

    fn abandon(&mut self) {
        self.future = None;
    }
}

impl Future for Work {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let reply = std::task::ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(reply)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.era == Era::Legacy
            && let Some(future) = self.future.take()
        {
            // It ends by its own deadline; nobody reads its answer.
            tokio::spawn(future);
        }
    }
}
