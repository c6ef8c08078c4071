//! Sends what a permit opens and brings the answer back, as plain JSON when it comes at once and
//! as a stream when there is progress to show or time passes.

use crate::answer::{Answer, Kind, is_tool_error, is_withheld, top_member};
use crate::asked::Asked;
use crate::handshake::LEVELS;
use crate::identity::Pass;
use crate::mcp::answer;
use crate::mcp::envelope::Raw;
use crate::mcp::era::Era;
use crate::mcp::progress;
use crate::mcp::sse::{self, Body, EventSender, Gone};
use crate::record::{Ending, Record};
use crate::reply;
use crate::sessions::InFlight;
use crate::shared::Shared;
use crate::upstream::{Failure, Forward, Log, Reply};
use crate::usage::Running;
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use portcullis_policy::decide::Permit;
use portcullis_policy::json::decode;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// An answer that takes longer becomes a stream, so that clients see the headers in time.
const PLAIN_WAIT: Duration = Duration::from_secs(5);
/// How often a quiet stream gets a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(12);
/// Notifications of one call that may wait for its stream; more are dropped and counted.
pub(crate) const NOTES_QUEUED_MAX: usize = 64;

/// Runs `permit` and answers.
pub(crate) async fn run(
    asked: Asked,
    permit: Permit,
    (mut record, running): (Record, Running),
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
    running.starts();
    let in_flight = asked.enter();
    let upstreams = asked.shared.upstreams.clone();
    let mut work = Work::new(&asked, async move {
        let reply = upstreams.call(permit, forward).await;
        record.finish(ending(&reply));
        // The place among the calls in flight is the call's, not its reader's.
        drop(running);
        reply
    });
    let begun = tokio::select! {
        biased;
        reply = &mut work => Begun::Done(reply),
        Some(note) = notes.next(), if asked.streams => Begun::Note(note),
        () = tokio::time::sleep(PLAIN_WAIT), if asked.streams => Begun::Slow,
        () = cancelled(in_flight.as_ref()) => {
            work.abandon();
            return reply::accepted();
        }
    };

    let first = match begun {
        Begun::Done(reply) => return at_once(&asked, &answer, reply, notes),
        Begun::Note(note) => Some(note),
        Begun::Slow => None,
    };
    let token = asked.progress_token().cloned();
    let streamed = Streamed { answer, token, notes, in_flight };
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
    asked: &Asked,
    answer: &Answer,
    reply: Result<Reply, Failure>,
    mut notes: Notes,
) -> Response<Body> {
    let token = asked.progress_token();
    let said: Vec<Bytes> = notes.waiting().filter_map(|note| note.message(token)).collect();
    let status = answer.status(&reply);
    let message = answer.write(reply);
    if said.is_empty() || !asked.streams {
        return reply::error(status, message);
    }
    let mut events = BytesMut::new();
    for message in said.iter().chain([&message]) {
        events.extend_from_slice(&sse::event(message));
    }
    reply::stream(Body::full(events.freeze()))
}

/// Resolves when the agent cancels the request.
pub(crate) async fn cancelled(in_flight: Option<&InFlight>) {
    match in_flight {
        Some(in_flight) => in_flight.cancelled().await,
        None => std::future::pending().await,
    }
}

/// What an upstream says while it works.
enum Note {
    Progress(Bytes),
    Log(Bytes),
    /// Below the level that the agent asked for.
    Quiet,
}

impl Note {
    // A server that was not told the level, or does not keep to it, is kept to it here.
    fn log(params: Bytes, wanted: Option<&str>) -> Self {
        let level = top_member(&params, "level").and_then(|raw| Some(decode(&raw)?.into_owned()));
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
        match (wanted.and_then(rank), level.as_deref().and_then(rank)) {
            (Some(wanted), Some(level)) if level < wanted => Self::Quiet,
            _ => Self::Log(params),
        }
    }
}

struct Notes {
    progress: mpsc::Receiver<Bytes>,
    log: mpsc::Receiver<Bytes>,
    // The lowest level of log messages that the agent takes.
    level: Option<String>,
}

impl Notes {
    async fn next(&mut self) -> Option<Note> {
        tokio::select! {
            Some(progress) = self.progress.recv() => Some(Note::Progress(progress)),
            Some(log) = self.log.recv() => Some(Note::log(log, self.level.as_deref())),
            else => None,
        }
    }

    fn waiting(&mut self) -> impl Iterator<Item = Note> + '_ {
        let Self { progress, log, level } = self;
        let progress = std::iter::from_fn(|| progress.try_recv().ok()).map(Note::Progress);
        let level = level.as_deref();
        progress
            .chain(std::iter::from_fn(|| log.try_recv().ok()).map(move |log| Note::log(log, level)))
    }
}

fn forward(asked: &Asked, kind: Kind) -> (Forward, Notes) {
    let (progress_sender, progress) = mpsc::channel(NOTES_QUEUED_MAX);
    let (log_sender, log) = mpsc::channel(NOTES_QUEUED_MAX);
    let level = asked.log_level();
    let known: &[&str] = match kind {
        Kind::Tool => &["name", "arguments"],
        Kind::Other => &["name", "uri", "ref"],
    };
    let forward = Forward {
        params: asked.other_params(known),
        meta: asked.passing_meta(),
        progress: asked.progress_token().map(|_| progress_sender),
        log: level.clone().map(|level| Log { level, to: log_sender }),
    };
    (forward, Notes { progress, log, level })
}

struct Streamed {
    answer: Answer,
    token: Option<Raw>,
    notes: Notes,
    in_flight: Option<InFlight>,
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
            (Self::Progress(_), None) | (Self::Quiet, _) => None,
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
        Ok(Reply::Result(raw)) if is_withheld(raw) => Ending::Unknown,
        Ok(Reply::Result(raw)) if is_tool_error(raw) => Ending::ToolError,
        Ok(Reply::Result(_)) => Ending::Ok,
        Ok(Reply::Error(_)) => Ending::RpcError,
        Err(failure) if failure.may_have_run() => Ending::Unknown,
        Err(_) => Ending::NotSent,
    }
}

type Sent = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// A call in flight. Dropping it ends the call in the modern era, where leaving is cancelling;
/// in the legacy era it goes on without a reader (MCP 2025-11-25, transports: a disconnect
/// should not be taken for a cancellation).
struct Work {
    era: Era,
    pass: Pass,
    shared: Arc<Shared>,
    future: Option<Sent>,
}

impl Work {
    fn new(
        asked: &Asked,
        future: impl Future<Output = Result<Reply, Failure>> + Send + 'static,
    ) -> Self {
        Self {
            era: asked.era,
            pass: asked.visit.pass.clone(),
            shared: Arc::clone(&asked.shared),
            future: Some(Box::pin(future)),
        }
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
            && !self.pass.is_over()
            && let Some(future) = self.future.take()
        {
            let mut left = self.shared.left.lock();
            while left.try_join_next().is_some() {}
            let pass = self.pass.clone();
            left.spawn(async move {
                // It ends by its own deadline, or with its credential or run; nobody reads its
                // answer.
                tokio::select! {
                    answer = future => drop(answer),
                    () = pass.over() => {}
                }
            });
        }
    }
}
