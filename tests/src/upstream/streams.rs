//! Event streams of the recording upstream.

use axum::body::{Body, Bytes};
use axum::http::Response;

pub(super) type Chunk =
    std::pin::Pin<Box<dyn Future<Output = Result<Bytes, std::io::Error>> + Send>>;

pub(super) fn stream(chunk: Chunk) -> Response<Body> {
    let body = Body::from_stream(Once(Some(chunk)));
    events(body)
}

pub(super) fn flood() -> Response<Body> {
    events(Body::from_stream(Endless))
}

pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    if let Ok(kind) = "text/event-stream".parse() {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

struct Once(Option<Chunk>);

impl futures_core::Stream for Once {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let Some(chunk) = &mut self.0 else { return std::task::Poll::Ready(None) };
        let item = std::task::ready!(chunk.as_mut().poll(cx));
        self.0 = None;
        std::task::Poll::Ready(Some(item))
    }
}

struct Endless;

impl futures_core::Stream for Endless {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(Some(Ok(Bytes::from_static(&[b':'; 16 * 1024]))))
    }
}
