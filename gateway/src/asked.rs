//! A request with everything that is known about it, handed from serve to the request files.

use crate::door::Visit;
use crate::handshake::CLIENT_NAME_CHARS_MAX;
use crate::mcp::envelope::{Call, Raw, member_of};
use crate::mcp::era::Era;
use crate::sessions::{InFlight, Session};
use crate::shared::Shared;
use bytes::Bytes;
use portcullis_policy::json::{JsonLimits, Kind};
use portcullis_policy::scope::View;
use std::sync::Arc;

// Answers to questions and states that the gateway did not hand out, and the legacy task option.
const NOT_PASSED: &[&str] = &["_meta", "task", "inputResponses", "requestState"];

/// A request of an agent.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The gateway.
    pub(crate) shared: Arc<Shared>,
    /// Who asks, where, judged by which generation.
    pub(crate) visit: Visit,
    /// Which era the request speaks.
    pub(crate) era: Era,
    /// Its session, in the legacy era.
    pub(crate) session: Option<Arc<Session>>,
    /// The request.
    pub(crate) call: Call,
    /// True if the client takes an event stream as an answer.
    pub(crate) streams: bool,
}

impl Asked {
    /// Puts a request together.
    pub(crate) fn new(
        shared: Arc<Shared>,
        visit: Visit,
        era: Era,
        session: Option<Arc<Session>>,
        (call, streams): (Call, bool),
    ) -> Self {
        Self { shared, visit, era, session, call, streams }
    }

    /// What the agent sees here.
    pub(crate) fn view(&self) -> &View {
        self.visit.view()
    }

    /// The name the client gives itself; for timing only.
    pub(crate) fn client(&self) -> String {
        if let Some(session) = &self.session {
            return session.client.clone();
        }
        let name = self
            .call
            .meta
            .value("io.modelcontextprotocol/clientInfo")
            .and_then(|client| member_of(client, "name", self.shared.limits.json));
        let name = name.as_ref().and_then(Raw::text);
        name.map(|name| name.chars().take(CLIENT_NAME_CHARS_MAX).collect()).unwrap_or_default()
    }

    /// The progress token, if the agent gave a usable one.
    pub(crate) fn progress_token(&self) -> Option<&Raw> {
        self.call
            .meta
            .value("progressToken")
            .filter(|token| matches!(token.kind(), Kind::String | Kind::Number))
    }

    /// True if this request declares that its client can have its user open a URL.
    pub(crate) fn opens_urls(&self) -> bool {
        match &self.session {
            Some(session) => session.opens_urls,
            None => self.declares("elicitation", "url"),
        }
    }

    /// True if a modern request declares the client capability `name` with the member `part`.
    pub(crate) fn declares(&self, name: &str, part: &str) -> bool {
        self.call
            .meta
            .value("io.modelcontextprotocol/clientCapabilities")
            .is_some_and(|capabilities| has_part(capabilities, name, part, self.shared.limits.json))
    }

    /// The lowest level of log messages that this request's stream takes; `None` takes none.
    pub(crate) fn log_level(&self) -> Option<String> {
        match &self.session {
            Some(session) => Some(session.log_level.lock().clone()),
            None => {
                let level = self.call.meta.value("io.modelcontextprotocol/logLevel")?;
                level.text().map(std::borrow::Cow::into_owned)
            }
        }
    }

    /// Notes the request in its session, so that it can be cancelled.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        self.session.as_ref().map(|session| session.enter(&self.call.id))
    }

    /// Members of `params` that pass through untouched, without `known` and `_meta`.
    pub(crate) fn other_params(&self, known: &[&str]) -> Vec<(String, Bytes)> {
        self.call
            .params
            .iter()
            .filter(|(name, _)| !NOT_PASSED.contains(name) && !known.contains(name))
            .map(|(name, raw)| (name.to_owned(), raw.bytes().clone()))
            .collect()
    }

    /// Members of `_meta` that pass through: all but what the protocol says about this hop.
    pub(crate) fn passing_meta(&self) -> Vec<(String, Bytes)> {
        self.call
            .meta
            .iter()
            .filter(|(name, _)| {
                *name != "progressToken" && !name.starts_with("io.modelcontextprotocol/")
            })
            .map(|(name, raw)| (name.to_owned(), raw.bytes().clone()))
            .collect()
    }
}

/// True if client capabilities hold `name` with the member `part`, an object.
pub(crate) fn has_part(capabilities: &Raw, name: &str, part: &str, limits: JsonLimits) -> bool {
    let found = member_of(capabilities, name, limits);
    let found = found.and_then(|found| member_of(&found, part, limits));
    found.is_some_and(|found| found.kind() == Kind::Object)
}
