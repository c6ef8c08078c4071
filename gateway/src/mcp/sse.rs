//! Server-sent events towards agents, and the body type of all answers.

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

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

/// An event of that name; whoever comes back names its `id`.
pub(crate) fn named_event(id: Option<&str>, name: &str, data: &str) -> Bytes {
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    let data = data.replace(['\n', '\r'], " ");
    Bytes::from(format!("{id}event: {name}\ndata: {data}\n\n"))
}

/// Tells a reader where it is, and nothing else: no event comes of it.
pub(crate) fn place(id: &str) -> Bytes {
    Bytes::from(format!("id: {id}\n\n"))
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

    /// Sends bytes that are whole events.
    pub(crate) async fn raw(&self, events: Bytes) -> Result<(), Gone> {
        self.0.send(events).await.map_err(|_| Gone)
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
    /// A stream, and the work that feeds it. The work is dropped with the body, so a reader that
    /// leaves ends the work.
    Stream {
        /// The work.
        work: Work,
        /// What the work sent.
        events: mpsc::Receiver<Bytes>,
    },
}

/// What feeds a stream.
pub(crate) enum Work {
    /// It runs while the body is read.
    Read(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// It runs by itself, so that its end does not wait for a reader.
    Runs {
        /// Ended with the body.
        _task: Task,
    },
    /// It ended.
    Ended,
}

/// A task that ends with its owner.
pub(crate) struct Task {
    task: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
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
        Self::Stream { work: Work::Read(Box::pin(work(EventSender(sender)))), events }
    }

    /// The same body, whose work ends early if `over` resolves, whether somebody reads or not.
    /// What it had sent by then is still delivered.
    pub(crate) fn until(self, over: impl Future<Output = ()> + Send + 'static) -> Self {
        let Self::Stream { mut work, events } = self else { return self };
        if let Work::Read(running) = std::mem::replace(&mut work, Work::Ended) {
            let task = tokio::spawn(async move {
                tokio::select! {
                    // First, so that what has an end by now says so.
                    biased;
                    () = running => {}
                    () = over => {}
                }
            });
            work = Work::Runs { _task: Task { task } };
        }
        Self::Stream { work, events }
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
                if let Work::Read(running) = work
                    && running.as_mut().poll(cx).is_ready()
                {
                    *work = Work::Ended;
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

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::time::Duration;
    use tokio::sync::{Notify, oneshot};

    // More than fits: a reader that does not read stops it.
    async fn chatter(events: &EventSender) {
        while events.message(b"{}").await.is_ok() {}
    }

    async fn text(body: Body) -> String {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn work_ends_with_its_time_though_nobody_reads_and_what_it_said_is_delivered() {
        let (over, ended) = oneshot::channel::<()>();
        let (held, gone) = oneshot::channel::<()>();
        let body = Body::stream(|events| async move {
            let _held = held;
            chatter(&events).await;
        });
        let body = body.until(async move { drop(ended.await) });
        for _ in 0..EVENTS_QUEUED_MAX * 4 {
            tokio::task::yield_now().await;
        }
        over.send(()).unwrap();
        // The work was dropped, and with it what it held.
        assert!(tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap().is_err());
        assert_eq!(text(body).await.matches("data: {}").count(), EVENTS_QUEUED_MAX);
    }

    #[tokio::test]
    async fn what_has_an_end_by_now_says_so() {
        let told = std::sync::Arc::new(Notify::new());
        let (waits, ends) = (std::sync::Arc::clone(&told), std::sync::Arc::clone(&told));
        let body = Body::stream(|events| async move {
            waits.notified().await;
            events.message(b"{\"settled\":true}").await.unwrap();
        });
        let (over, ended) = oneshot::channel::<()>();
        let body = body.until(async move { drop(ended.await) });
        tokio::task::yield_now().await;
        ends.notify_one();
        over.send(()).unwrap();
        assert!(text(body).await.contains("settled"));
    }

    #[tokio::test]
    async fn a_reader_that_leaves_ends_the_work() {
        let (held, gone) = oneshot::channel::<()>();
        let body = Body::stream(|_| async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        let body = body.until(std::future::pending());
        tokio::task::yield_now().await;
        drop(body);
        assert!(tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap().is_err());
    }
}
