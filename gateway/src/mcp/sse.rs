//! Server-sent events towards agents, and the body type of all answers.

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Events that may wait for a slow reader.
pub(crate) const EVENTS_QUEUED_MAX: usize = 64;

/// One JSON-RPC message as an event.
pub(crate) fn event(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 24);
    out.put_slice(b"event: message\ndata: ");
    let start = out.len();
    out.put_slice(message);
    // In JSON a raw line end is white space, in an event it ends the line.
    for byte in out.iter_mut().skip(start) {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    out.put_slice(b"\n\n");
    out.freeze()
}

/// A comment: keeps the connection alive, means nothing.
pub(crate) fn comment() -> Bytes {
    Bytes::from_static(b": waiting\n\n")
}

/// Writes events of one stream; fails when the reader is gone.
#[derive(Debug, Clone)]
pub(crate) struct EventSender(mpsc::Sender<Bytes>);

/// The reader of a stream is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl EventSender {
    /// Sends a JSON-RPC message.
    pub(crate) async fn message(&self, message: &[u8]) -> Result<(), Gone> {
        self.0.send(event(message)).await.map_err(|_| Gone)
    }

    /// Waits until the connection took all that was sent.
    pub(crate) async fn drained(&self) {
        // A sender that is gone took nothing more; the caller is dropped with the body then.
        let _ = self.0.reserve_many(EVENTS_QUEUED_MAX).await;
    }

    /// Sends a comment.
    pub(crate) async fn comment(&self) -> Result<(), Gone> {
        self.0.send(comment()).await.map_err(|_| Gone)
    }
}

/// The body of an answer.
pub(crate) enum Body {
    /// Complete bytes.
    Full(Option<Bytes>),
    /// A stream, and the work that feeds it. The work runs while the body is read and is
    /// dropped with it, so a reader that leaves ends the work.
    Stream {
        /// The work; `None` once it ended.
        work: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        /// What the work sent.
        events: mpsc::Receiver<Bytes>,
    },
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) => {
                f.debug_tuple("Full").field(&bytes.as_ref().map(Bytes::len)).finish()
            }
            Self::Stream { .. } => f.write_str("Stream"),
        }
    }
}

impl Body {
    /// A body of complete bytes.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Full(if bytes.is_empty() { None } else { Some(bytes) })
    }

    /// A stream fed by the future that `work` makes.
    pub(crate) fn stream<F>(work: impl FnOnce(EventSender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(EVENTS_QUEUED_MAX);
        Self::Stream { work: Some(Box::pin(work(EventSender(sender)))), events }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream { work, events } => {
                if let Some(running) = work
                    && running.as_mut().poll(cx).is_ready()
                {
                    *work = None;
                }
                events.poll_recv(cx).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}
