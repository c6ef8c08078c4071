//! The socket agents connect to: accept, limit, drain.

use crate::mcp::sse::Body;
use crate::serve;
use crate::shared::Shared;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Time for a client to send the head of a request.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest request head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers in a request.
const HEADERS_MAX: usize = 100;
/// How long to wait before accepting again when accepting fails.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves agents until `stop` turns true, then lets requests in flight end for at most `drain`.
pub(crate) async fn serve_agents(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let slots = Arc::new(Semaphore::new(shared.limits.connections));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = stopped(&mut stop) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (shared, stop) = (Arc::clone(&shared), stop.clone());
                connections.spawn(async move {
                    connection((stream, peer.ip()), shared, stop).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let ended =
        tokio::time::timeout(drain, async { while connections.join_next().await.is_some() {} });
    if ended.await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "connections still open after the drain time were cut"
        );
    }
}

// The sender is gone only when the gateway is.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}

async fn connection(
    (stream, peer): (TcpStream, IpAddr),
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        // Boxed: the future of a request is large, and would be moved several times.
        Box::pin(async move {
            Ok::<http::Response<Body>, Infallible>(serve::serve(shared, peer, request).await)
        })
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = stopped(&mut stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}
