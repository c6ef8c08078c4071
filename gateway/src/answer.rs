//! How the reply of an upstream is written for an agent: unchanged but for members that the
//! agent's era demands, and never in the gateway's own voice.

use crate::mcp::answer::{
    self, HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, Remedy, UNSUPPORTED_VERSION, tool_error,
    with_members,
};
use crate::mcp::envelope::Raw;
use crate::mcp::era::Era;
use crate::upstream::{Failure, Reply};
use bytes::Bytes;
use http::StatusCode;
use portcullis_policy::json::{JsonLimits, Reader, decode};
use portcullis_policy::name::ServerName;

/// What is being run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tool: failures are results the model reads.
    Tool,
    /// A resource, prompt or completion: failures are JSON-RPC errors.
    Other,
}

/// True if a tool result says `isError`.
pub(crate) fn is_tool_error(result: &Bytes) -> bool {
    top_member(result, "isError").as_deref() == Some("true")
}

/// True if a result asks for input or begins a task: it is not passed on, and not all ran.
pub(crate) fn is_withheld(result: &Bytes) -> bool {
    let kind = top_member(result, "resultType").and_then(|raw| Some(decode(&raw)?.into_owned()));
    kind.is_some_and(|kind| kind != "complete")
}

// The source text of a member of a result. Most results lack the word, and are not read.
pub(crate) fn top_member(result: &Bytes, wanted: &str) -> Option<String> {
    let text = std::str::from_utf8(result).ok()?;
    // A name may be spelled with escapes; then it has to be read.
    if !text.contains(wanted) && !text.contains("\\u") {
        return None;
    }
    let limits = JsonLimits { items_max: usize::MAX, ..JsonLimits::default() };
    let mut found = None;
    let mut reader = Reader::new(result, limits).ok()?;
    reader
        .object(|reader, name| {
            let value = reader.value()?;
            if name == wanted {
                found = Some(value.to_owned());
            }
            Ok(())
        })
        .ok()?;
    found
}

/// What a caller reads whose call was answered with a question or a task.
pub(crate) const WITHHELD: &str = "The server asked for input or began a task, which this gateway does not pass on yet. It may \
     have run in part.";

/// A result with the members that revision 2026-07-28 demands.
pub(crate) fn modern(raw: &Bytes, kind: Kind) -> Bytes {
    let mut missing = String::new();
    if top_member(raw, "resultType").is_none() {
        missing.push_str("\"resultType\":\"complete\"");
    }
    if kind == Kind::Other
        && top_member(raw, "contents").is_some()
        && top_member(raw, "ttlMs").is_none()
    {
        let comma = if missing.is_empty() { "" } else { "," };
        missing.push_str(comma);
        missing.push_str(crate::handshake::CACHE_HINTS);
    }
    if missing.is_empty() { raw.clone() } else { with_members(raw, &missing) }
}

/// The `error` member of an upstream. Codes that are the gateway's own voice, or that the agent's
/// era does not know, become plain ones; the message and data stay.
pub(crate) fn allowed_error(raw: &Bytes, era: Era) -> Bytes {
    let code = top_member(raw, "code");
    let replaced = match (era, code.as_deref().and_then(|code| code.parse::<i64>().ok())) {
        (_, Some(4_600..=4_699 | HEADER_MISMATCH | UNSUPPORTED_VERSION)) => INTERNAL_ERROR,
        // MCP 2026-07-28, error codes: must not be emitted.
        (Era::Modern, Some(-32_002)) => INVALID_PARAMS,
        (Era::Modern, Some(-32_042)) => INTERNAL_ERROR,
        _ => return raw.clone(),
    };
    let message = top_member(raw, "message").and_then(|raw| Some(decode(&raw)?.into_owned()));
    let message = message.unwrap_or_else(|| "the server reported an error".to_owned());
    answer::error_member(replaced, &message, top_member(raw, "data").as_deref())
}

/// How replies are written for one request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The request's id.
    pub(crate) id: Raw,
    /// The agent's era.
    pub(crate) era: Era,
    /// What was run.
    pub(crate) kind: Kind,
    /// The server it was sent to.
    pub(crate) server: ServerName,
}

impl Answer {
    /// The response to a request that was run.
    pub(crate) fn write(&self, reply: Result<Reply, Failure>) -> Bytes {
        match reply {
            Ok(Reply::Result(raw)) => self.result(&raw),
            Ok(Reply::Error(raw)) => self.error(&raw),
            Err(failure) => {
                tracing::warn!(%failure, server = %self.server, "an upstream did not answer");
                self.failed(&failure.text(&self.server))
            }
        }
    }

    /// The HTTP status that revision 2026-07-28 wants beside the one error code of a server that
    /// is about the agent's own request: a client capability is missing.
    pub(crate) fn status(&self, reply: &Result<Reply, Failure>) -> StatusCode {
        let Ok(Reply::Error(raw)) = reply else { return StatusCode::OK };
        let missing = top_member(raw, "code").as_deref() == Some("-32021");
        if missing && self.era == Era::Modern { StatusCode::BAD_REQUEST } else { StatusCode::OK }
    }

    /// A result of an upstream, unchanged but for members that the agent's era demands.
    pub(crate) fn result(&self, raw: &Bytes) -> Bytes {
        if is_withheld(raw) {
            return self.failed(WITHHELD);
        }
        match self.era {
            Era::Legacy => answer::result(&self.id, raw),
            Era::Modern => answer::result(&self.id, &modern(raw, self.kind)),
        }
    }

    /// An error of an upstream.
    pub(crate) fn error(&self, raw: &Bytes) -> Bytes {
        answer::upstream_error(&self.id, &allowed_error(raw, self.era))
    }

    /// A failure in the gateway's words.
    pub(crate) fn failed(&self, text: &str) -> Bytes {
        match self.kind {
            Kind::Tool => answer::result(&self.id, tool_error(text, Remedy::None, None).as_bytes()),
            Kind::Other => answer::error(Some(&self.id), answer::UPSTREAM_UNAVAILABLE, text, None),
        }
    }
}
