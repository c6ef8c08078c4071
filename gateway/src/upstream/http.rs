//! Streamable HTTP.

use crate::upstream::keeper::Upstream;
use crate::upstream::link::{Fault, Heard};
use crate::upstream::message::{Failure, Outgoing};
use crate::upstream::session::Session;
use crate::upstream::settings::{UpstreamError, UpstreamSettings};
use std::sync::Arc;
use tokio::time::Instant;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint;

impl Endpoint {
    /// An endpoint.
    pub(crate) fn new(
        _: &Arc<Upstream>,
        _: &str,
        _: &[(String, String)],
        _: &UpstreamSettings,
    ) -> Result<Arc<Self>, UpstreamError> {
        Ok(Arc::new(Self))
    }

    /// Sends a request.
    pub(crate) async fn request(
        &self,
        _: &Outgoing,
        _: &Arc<Session>,
        _: Instant,
    ) -> Result<Heard, Fault> {
        Err(Failure::NotSent("HTTP is not there yet".to_owned()).into())
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, _: &str, _: &Session) {}

    /// Ends a session.
    pub(crate) async fn end_session(&self, _: &Session) {}
}
