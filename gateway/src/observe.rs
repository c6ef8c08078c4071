//! The observe listener: whether the gateway lives, whether it is ready, and its metrics.
//!
//! It answers without a credential and therefore says nothing about agents, calls or arguments
//! beyond the closed set of label values.

use crate::hosts::Hosts;
use crate::telemetry::{CONTENT_TYPE, Metrics};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// What keeps the gateway from being ready, in words for the operator; empty when it is ready.
pub type NotReady = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// What the observe listener tells.
pub struct Observe {
    /// Asked for every `/readyz`: is the store writable, the catalogue settled, no drain begun.
    pub not_ready: NotReady,
    /// The series of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Names by which the listener may be addressed.
    pub hosts: Hosts,
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    reasons: Vec<String>,
}

/// The routes of the observe listener.
pub fn router(observe: Observe) -> Router {
    let observe = Arc::new(observe);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(Arc::clone(&observe), guard))
        .with_state(observe)
}

async fn guard(State(observe): State<Arc<Observe>>, request: Request, next: Next) -> Response {
    let mut response = if observe.hosts.admit(request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "this listener is not known by that name\n").into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

async fn ready(State(observe): State<Arc<Observe>>) -> Response {
    let reasons = (observe.not_ready)();
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, reasons })).into_response()
}

async fn metrics(State(observe): State<Arc<Observe>>) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], observe.metrics.text()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    async fn open(draining: &Arc<AtomicBool>) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let draining = Arc::clone(draining);
        let not_ready: NotReady = Box::new(move || {
            let reason = "the gateway is draining".to_owned();
            if draining.load(Ordering::SeqCst) { vec![reason] } else { Vec::new() }
        });
        let metrics = Arc::new(Metrics::new());
        let routes = router(Observe { not_ready, metrics, hosts: Hosts::of_scrapes(address) });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        address
    }

    #[tokio::test]
    async fn health_readiness_and_metrics() {
        let draining = Arc::new(AtomicBool::new(false));
        let address = open(&draining).await;
        let http = reqwest::Client::new();
        let fetch = |path: &str| http.get(format!("http://{address}{path}")).send();
        assert_eq!(fetch("/healthz").await.unwrap().text().await.unwrap(), "ok\n");
        let ready = fetch("/readyz").await.unwrap();
        assert_eq!(ready.status(), 200);
        assert_eq!(ready.text().await.unwrap(), r#"{"ready":true,"reasons":[]}"#);
        draining.store(true, Ordering::SeqCst);
        let ready = fetch("/readyz").await.unwrap();
        assert_eq!(ready.status(), 503);
        assert_eq!(
            ready.text().await.unwrap(),
            r#"{"ready":false,"reasons":["the gateway is draining"]}"#
        );
        let metrics = fetch("/metrics").await.unwrap();
        assert_eq!(metrics.headers()["content-type"], CONTENT_TYPE);
        assert!(metrics.text().await.unwrap().contains("portcullis_parked_calls 0"));
    }

    #[tokio::test]
    async fn reads_only_and_only_under_its_own_name() {
        let address = open(&Arc::new(AtomicBool::new(false))).await;
        let http = reqwest::Client::new();
        let url = format!("http://{address}/metrics");
        assert_eq!(http.post(&url).send().await.unwrap().status(), 405);
        for (host, status) in [
            ("evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("localhost", 200),
            ("10.0.0.7:9", 200),
            ("[::1]:1", 200),
        ] {
            let response = http.get(&url).header("host", host).send().await.unwrap();
            assert_eq!(response.status(), status, "{host}");
        }
        let foreign = http.get(&url).header("origin", "http://evil.example").send().await.unwrap();
        assert_eq!(foreign.status(), 403);
    }
}
