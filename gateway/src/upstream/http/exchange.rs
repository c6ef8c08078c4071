//! One request over HTTP and what comes back: a JSON answer, a stream of messages that ends with
//! the answer, or a status that says why there is none.

use crate::upstream::counters::count;
use crate::upstream::frame::{self, Answer, Frame};
use crate::upstream::http::pool::{Connection, SendFault};
use crate::upstream::http::sse::Events;
use crate::upstream::http::{ERROR_BODY_BYTES_MAX, Endpoint, Errand, SESSION};
use crate::upstream::link::{Fault, Heard};
use crate::upstream::message::{self, Failure, Outgoing, Reply};
use crate::upstream::session::{Era, Session, cut};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// Messages nobody asked for in one stream before the connection is closed.
const STRAYS_MAX: u32 = 16;
/// Requests of a server that are answered in one stream.
const ASKS_MAX: u32 = 16;
/// Events in one stream.
const EVENTS_MAX: u32 = 100_000;
/// A stream may have so many times the bytes of one answer.
const STREAM_ANSWERS_MAX: usize = 4;
/// Longest session id, in bytes.
const SESSION_ID_BYTES_MAX: usize = 1024;

/// One request under way.
pub(super) struct Exchange<'a> {
    endpoint: &'a Endpoint,
    outgoing: &'a Outgoing,
    session: &'a Arc<Session>,
    id: u64,
    stage: Stage,
    strays: u32,
    asks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Leaving,
    Done,
}

impl<'a> Exchange<'a> {
    /// A request with `id`, not sent yet.
    pub(super) fn new(
        endpoint: &'a Endpoint,
        (outgoing, session): (&'a Outgoing, &'a Arc<Session>),
        id: u64,
    ) -> Self {
        Self { endpoint, outgoing, session, id, stage: Stage::Connecting, strays: 0, asks: 0 }
    }

    /// Sends it and waits for the answer until `deadline`.
    pub(super) async fn run(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Heard, Fault> {
        match timeout_at(deadline, self.carry(request)).await {
            Ok(ending) => {
                self.stage = Stage::Done;
                ending
            }
            Err(_) => Err(match self.stage {
                Stage::Connecting => Failure::NotSent("connecting takes too long".to_owned()),
                Stage::Leaving | Stage::Done => {
                    Failure::Timeout("the server did not answer".to_owned())
                }
            }
            .into()),
        }
    }

    async fn carry(&mut self, request: Request<Full<Bytes>>) -> Result<Heard, Fault> {
        let endpoint = self.endpoint;
        let stage = &mut self.stage;
        let mut leaving = |leaves| *stage = if leaves { Stage::Leaving } else { Stage::Connecting };
        let (connection, response) = match endpoint.send(request, &mut leaving).await {
            Ok(sent) => sent,
            Err(SendFault::Unreached(cause) | SendFault::Returned(_, cause)) => {
                return Err(Failure::NotSent(cause).into());
            }
            Err(SendFault::Unknown(cause)) => return Err(Failure::Unknown(cause).into()),
        };
        let status = response.status().as_u16();
        match status {
            200 => self.read(connection, response).await,
            // MCP 2025-11-25, transports: 404 says that the session is gone and nothing ran. An
            // error that answers this very request is an answer all the same.
            404 if self.session.id.is_some() => match self.read_error(connection, response).await {
                Err(Fault::TurnedAway { .. }) => Err(Fault::SessionGone),
                read => read,
            },
            300..=399 => {
                Err(Failure::Refused(format!("HTTP {status}: it redirects, which is not followed"))
                    .into())
            }
            400..=599 => self.read_error(connection, response).await,
            _ => Err(Failure::Unknown(format!("HTTP {status} instead of an answer")).into()),
        }
    }

    async fn read(
        &mut self,
        connection: Connection,
        response: Response<Incoming>,
    ) -> Result<Heard, Fault> {
        let session = session_id(response.headers());
        let answer = match media_type(response.headers()).as_str() {
            "application/json" => self.read_json(connection, response.into_body()).await?,
            "text/event-stream" => self.read_stream(connection, response.into_body()).await?,
            other => {
                let cause = format!("an answer of the media type `{}`", cut(other));
                return Err(Failure::Unknown(cause).into());
            }
        };
        Ok(Heard { answer, session })
    }

    async fn read_json(
        &mut self,
        mut connection: Connection,
        body: Incoming,
    ) -> Result<Answer, Failure> {
        let body = whole(&mut connection, body, self.endpoint.body_bytes_max).await;
        let body = body.map_err(Failure::Unknown)?;
        self.endpoint.pool.put(connection, None).await;
        match self.receive(&body).await? {
            Some(answer) => Ok(answer),
            None => Err(Failure::Unknown("the body is not the answer to the request".to_owned())),
        }
    }

    async fn read_stream(
        &mut self,
        mut connection: Connection,
        mut body: Incoming,
    ) -> Result<Answer, Failure> {
        let most = self.endpoint.body_bytes_max;
        let mut events = Events::new(most);
        let (mut bytes, mut seen) = (0_usize, 0_u32);
        loop {
            let piece = connection.piece(&mut body).await.map_err(Failure::Unknown)?;
            let Some(piece) = piece else {
                return Err(Failure::Unknown("the stream ended before the answer".to_owned()));
            };
            bytes = bytes.saturating_add(piece.len());
            if bytes > most.saturating_mul(STREAM_ANSWERS_MAX) {
                return Err(Failure::Unknown("the stream is larger than the limit".to_owned()));
            }
            events.feed(&piece);
            if let Some(answer) = self.next(&mut events, &mut seen).await? {
                self.endpoint.pool.put(connection, Some(body)).await;
                return Ok(answer);
            }
        }
    }

    // Takes the events that arrived; `Some` is the answer.
    async fn next(
        &mut self,
        events: &mut Events,
        seen: &mut u32,
    ) -> Result<Option<Answer>, Failure> {
        let most = self.endpoint.body_bytes_max;
        let too_long =
            |_| Failure::Unknown(format!("an event of the stream has more than {most} bytes"));
        while let Some(event) = events.take().map_err(too_long)? {
            *seen += 1;
            if *seen > EVENTS_MAX {
                return Err(Failure::Unknown(format!(
                    "the stream has more than {EVENTS_MAX} events"
                )));
            }
            // An event without data opens a stream; other kinds are not messages.
            if event.data.is_empty() || !matches!(event.kind.as_str(), "" | "message") {
                continue;
            }
            if let Some(answer) = self.receive(&event.data).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    // A status of 400 and more: an error of the server's, or one of what stands before it.
    async fn read_error(
        &mut self,
        mut connection: Connection,
        response: Response<Incoming>,
    ) -> Result<Heard, Fault> {
        let status = response.status().as_u16();
        let json = media_type(response.headers()) == "application/json";
        let body = whole(&mut connection, response.into_body(), ERROR_BODY_BYTES_MAX).await;
        let body = body.unwrap_or_default();
        self.endpoint.pool.put(connection, None).await;
        if let (true, Ok(Frame::Reply { id, answer })) = (json, frame::read(&body))
            && id == self.id
            && matches!(answer.reply, Reply::Error(_))
        {
            return Ok(Heard { answer, session: None });
        }
        // What an auth wall says may repeat the credential.
        let said = match status {
            401 | 403 | 407 => String::new(),
            _ => cut(String::from_utf8_lossy(&body).trim()),
        };
        let cause = format!("HTTP {status} {said}").trim_end().to_owned();
        match status {
            400..=499 => Err(Fault::TurnedAway { status, cause }),
            _ => Err(Failure::Unknown(cause).into()),
        }
    }

    // Takes one message; `Some` is the answer.
    async fn receive(&mut self, message: &Bytes) -> Result<Option<Answer>, Failure> {
        match frame::read(message) {
            Ok(Frame::Reply { id, answer }) if id == self.id => return Ok(Some(answer)),
            Ok(Frame::Notice { method, params }) => {
                self.hear(&method, params);
                return Ok(None);
            }
            Ok(Frame::Request { id, method })
                if self.session.era == Era::Legacy && self.asks < ASKS_MAX =>
            {
                self.asks += 1;
                let answer = message::answer(&id, &method);
                // The id is a slice of a message that was read as UTF-8.
                self.endpoint.notify(&String::from_utf8_lossy(&answer), self.session).await;
                return Ok(None);
            }
            Ok(Frame::Reply { .. } | Frame::Request { .. }) | Err(_) => {}
        }
        count(&self.endpoint.counters.dropped_frames);
        self.strays += 1;
        if self.strays > STRAYS_MAX {
            let cause = format!("it sent more than {STRAYS_MAX} messages nobody asked for");
            return Err(Failure::Unknown(cause));
        }
        Ok(None)
    }

    fn hear(&self, method: &str, params: Option<Bytes>) {
        let to = match method {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => {
                self.endpoint.changed.notify_one();
                return;
            }
            "notifications/progress" => {
                let own = params.as_deref().and_then(frame::progress_token) == Some(self.id);
                self.outgoing.progress.as_ref().filter(|_| own)
            }
            "notifications/message" => self.outgoing.log.as_ref().map(|log| &log.to),
            _ => return,
        };
        if let (Some(to), Some(params)) = (to, params)
            && to.try_send(params).is_err()
        {
            count(&self.endpoint.counters.dropped_notices);
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        // MCP 2026-07-28: closing the connection cancels. Before it does not, and `initialize`
        // must not be cancelled.
        let cancels = self.session.era == Era::Legacy && self.outgoing.method != "initialize";
        if self.stage == Stage::Leaving && cancels {
            let errand = Errand { id: self.id, session: Arc::clone(self.session) };
            if self.endpoint.errands.try_send(errand).is_err() {
                count(&self.endpoint.counters.dropped_notices);
            }
        }
    }
}

// The whole body, up to `most` bytes. One that came in one piece is not copied.
async fn whole(
    connection: &mut Connection,
    mut body: Incoming,
    most: usize,
) -> Result<Bytes, String> {
    let first = connection.piece(&mut body).await?.unwrap_or_default();
    let Some(second) = connection.piece(&mut body).await? else {
        return if first.len() > most { Err(too_large(most)) } else { Ok(first) };
    };
    let mut all = BytesMut::from(first);
    let mut piece = second;
    loop {
        if all.len() + piece.len() > most {
            return Err(too_large(most));
        }
        all.extend_from_slice(&piece);
        match connection.piece(&mut body).await? {
            Some(next) => piece = next,
            None => return Ok(all.freeze()),
        }
    }
}

fn too_large(most: usize) -> String {
    format!("the answer has more than {most} bytes")
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn session_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(SESSION)?;
    let visible = id.as_bytes().iter().all(|byte| (0x21..=0x7e).contains(byte));
    (visible && (1..=SESSION_ID_BYTES_MAX).contains(&id.len())).then(|| id.clone())
}
