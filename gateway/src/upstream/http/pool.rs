//! Keep-alive connections to one origin, each polled by the task that uses it: no task and no
//! channel stands between a call and its socket.

use crate::upstream::http::connect::{Origin, Stream};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Most idle connections that are kept.
const IDLE_MAX: usize = 256;
/// How long a connection is kept idle. Shorter than the five seconds after which common servers
/// close theirs: a request must not meet a close on its way.
const IDLE_FOR: Duration = Duration::from_secs(4);
/// Longest such time that a server may ask for with `Keep-Alive: timeout`.
const IDLE_FOR_MAX: Duration = Duration::from_secs(60);
/// Most headers of a response.
const HEADERS_MAX: usize = 100;
/// Largest head of a response, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

type Driver = Pin<Box<http1::Connection<TokioIo<Stream>, Full<Bytes>>>>;

/// The idle connections of one origin.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    // A response whose end had not arrived when its answer was complete.
    rest: Option<Incoming>,
    until: Instant,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    // `None` once the connection is closed.
    driver: Option<Driver>,
    idle_for: Duration,
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum SendFault {
    /// No connection could be opened.
    Unreached(String),
    /// No byte of it left; here it is again.
    Returned(Box<Request<Full<Bytes>>>, String),
    /// It may have arrived.
    Unknown(String),
}

impl Pool {
    /// An open connection, if one is idle.
    pub(crate) async fn take(&self) -> Option<Connection> {
        loop {
            let idle = self.idle.lock().pop()?;
            if idle.until <= Instant::now() {
                continue;
            }
            let (mut connection, mut rest) = (idle.connection, idle.rest);
            if poll_fn(|cx| Poll::Ready(connection.is_reusable(cx, &mut rest))).await {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last response is complete, or all but its end.
    pub(crate) async fn put(&self, mut connection: Connection, rest: Option<Incoming>) {
        let mut rest = rest;
        let reusable = poll_fn(|cx| Poll::Ready(connection.is_reusable(cx, &mut rest))).await;
        if !reusable && (rest.is_none() || connection.driver.is_none()) {
            return;
        }
        let now = Instant::now();
        let until = now + connection.idle_for;
        let expired = {
            let mut idle = self.idle.lock();
            let alive = idle.iter().position(|idle| idle.until > now).unwrap_or(idle.len());
            let expired: Vec<Idle> = idle.drain(..alive).collect();
            if idle.len() < IDLE_MAX {
                idle.push(Idle { connection, rest, until });
            }
            expired
        };
        // Sockets are closed outside the lock.
        drop(expired);
    }

    /// Closes what was idle for too long.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let expired: Vec<Idle> = {
            let mut idle = self.idle.lock();
            let (kept, expired) =
                std::mem::take(&mut *idle).into_iter().partition(|idle| idle.until > now);
            *idle = kept;
            expired
        };
        drop(expired);
    }
}

impl Connection {
    /// Opens a connection to `origin`.
    pub(crate) async fn open(origin: &Origin) -> Result<Self, String> {
        let io = origin.connect().await?;
        let mut builder = http1::Builder::new();
        builder.max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX);
        let (sender, driver) = builder.handshake(io).await.map_err(|error| error.to_string())?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), idle_for: IDLE_FOR })
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendFault> {
        let sent = self.sender.try_send_request(request);
        match drive(&mut self.driver, sent).await {
            Ok(response) => {
                self.idle_for = idle_for(&response);
                Ok(response)
            }
            Err(mut error) => {
                let returned = error.take_message();
                let cause = described(&error.into_error());
                Err(match returned {
                    Some(request) => SendFault::Returned(Box::new(request), cause),
                    None => SendFault::Unknown(cause),
                })
            }
        }
    }

    /// The next piece of a body; `None` at its end.
    pub(crate) async fn piece(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, String> {
        loop {
            let Some(frame) = drive(&mut self.driver, body.frame()).await else { return Ok(None) };
            if let Ok(data) = frame.map_err(|error| described(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    // Takes what has arrived of `rest` without waiting, then says whether a request can be sent.
    fn is_reusable(&mut self, cx: &mut Context<'_>, rest: &mut Option<Incoming>) -> bool {
        poll_driver(&mut self.driver, cx);
        while let Some(body) = rest {
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => *rest = None,
                // More data after the answer: a server that goes on talking is not used again.
                Poll::Ready(Some(_)) => {
                    self.driver = None;
                    return false;
                }
            }
            poll_driver(&mut self.driver, cx);
        }
        self.driver.is_some() && self.sender.is_ready()
    }
}

// Polls the connection and what waits for it by turns, in this task.
async fn drive<F: Future>(driver: &mut Option<Driver>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        poll_driver(driver, cx);
        work.as_mut().poll(cx)
    })
    .await
}

// A driver that is done is dropped, which ends whatever still waits for it.
fn poll_driver(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}

fn idle_for(response: &Response<Incoming>) -> Duration {
    let header = response.headers().get("keep-alive").and_then(|value| value.to_str().ok());
    let asked = header
        .into_iter()
        .flat_map(|value| value.split(','))
        .find_map(|part| part.trim().strip_prefix("timeout=")?.parse().ok())
        .map(Duration::from_secs);
    match asked {
        // One second less, for the way there.
        Some(asked) => asked.saturating_sub(Duration::from_secs(1)).min(IDLE_FOR_MAX),
        None => IDLE_FOR,
    }
}

fn described(error: &hyper::Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
