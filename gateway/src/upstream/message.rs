//! What goes to an upstream and what comes back: a request is spliced from raw bytes and never
//! rebuilt from values, so that what was judged is what is sent.

use crate::upstream::session::Era;
use bytes::Bytes;
use portcullis_policy::decide::{Permit, Target};
use portcullis_policy::json::quote;
use portcullis_policy::name::ServerName;
use std::borrow::Cow;
use std::io::Write as _;
use tokio::sync::mpsc;

use super::mirror;

/// What an agent's request carries beside the parts that were judged.
#[derive(Debug, Default)]
pub struct Forward {
    /// Raw members of the agent's `params` other than `name`, `uri`, `ref`, `arguments` of a tool
    /// and `_meta`. For a prompt and a completion, `arguments`, `argument` and `context` are here.
    pub params: Vec<(String, Bytes)>,
    /// Raw members of the agent's `_meta` without the gateway's own keys.
    pub meta: Vec<(String, Bytes)>,
    /// Gets the raw `params` of `notifications/progress`, with the token the upstream was given.
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// Gets the raw `params` of `notifications/message`.
    pub log: Option<Log>,
}

/// Where log messages of one call go, if the agent asked for them.
#[derive(Debug, Clone)]
pub struct Log {
    /// The lowest level the agent asked for.
    pub level: String,
    /// Gets the messages.
    pub to: mpsc::Sender<Bytes>,
}

/// An answer: the exact bytes of its `result` or `error` member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The request was carried out.
    Result(Bytes),
    /// The server answered with a JSON-RPC error.
    Error(Bytes),
}

/// Why there is no answer. The text inside is the cause, for the operator alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server has not come up yet; nothing was sent.
    #[error("the server is still starting")]
    Starting,
    /// Too many calls wait for the server; nothing was sent.
    #[error("too many calls are waiting for the server")]
    Busy,
    /// The server cannot be reached; nothing was sent.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The server turned the request away without carrying it out.
    #[error("turned away: {0}")]
    Refused(String),
    /// The request left and no answer came: it may have run.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The request left and the time for an answer is over: it may have run.
    #[error("no answer in time: {0}")]
    Timeout(String),
}

impl Failure {
    /// True if the request may have been carried out.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Starting | Self::Busy | Self::NotSent(_) | Self::Refused(_) => false,
            Self::Unknown(_) | Self::Timeout(_) => true,
        }
    }

    /// The word in audit and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Busy => "busy",
            Self::NotSent(_) => "not_sent",
            Self::Refused(_) => "refused",
            Self::Unknown(_) => "unknown",
            Self::Timeout(_) => "timeout",
        }
    }

    /// What the agent is told: what happened and what to do. It names no host, path or cause.
    #[must_use]
    pub fn text(&self, server: &ServerName) -> String {
        match self {
            Self::Starting => format!(
                "Server `{server}` is still starting. Nothing was sent. Repeat the call in a moment."
            ),
            Self::Busy => format!(
                "Server `{server}` has too many calls waiting. Nothing was sent. Repeat the call later."
            ),
            Self::NotSent(_) => format!(
                "Server `{server}` cannot be reached at the moment. Nothing was sent. The gateway \
                 keeps trying; repeat the call later or go on without it."
            ),
            Self::Refused(_) => format!(
                "Server `{server}` turned the request away before carrying it out. Tell the \
                 operator; repeating the call will hardly help."
            ),
            Self::Unknown(_) => format!(
                "The request was sent to server `{server}`, but no usable answer came back. The outcome \
                 is unknown: it may have run. Check before repeating it."
            ),
            Self::Timeout(_) => format!(
                "The request was sent to server `{server}`, but no answer came in time. The outcome \
                 is unknown: it may have run. Check before repeating it."
            ),
        }
    }
}

/// One request to an upstream, not yet bound to a connection.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The method.
    pub(crate) method: &'static str,
    /// What `Mcp-Name` mirrors.
    pub(crate) name: Option<String>,
    /// Members of `params`, without `_meta`.
    pub(crate) params: Vec<(Cow<'static, str>, Bytes)>,
    /// Members of `_meta`, without the gateway's own.
    pub(crate) meta: Vec<(String, Bytes)>,
    /// Headers `Mcp-Param-*` with their encoded values.
    pub(crate) mirrored: Vec<(String, String)>,
    /// Gets progress.
    pub(crate) progress: Option<mpsc::Sender<Bytes>>,
    /// Gets log messages.
    pub(crate) log: Option<Log>,
}

/// Members of `_meta` that only the gateway writes.
const OWN_META: [&str; 5] = [
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];

impl Outgoing {
    /// A request of the gateway itself.
    pub(crate) fn own(method: &'static str) -> Self {
        Self { method, ..Self::default() }
    }

    /// Adds a member to `params`.
    pub(crate) fn with(mut self, name: &'static str, raw: impl Into<Bytes>) -> Self {
        self.params.push((Cow::Borrowed(name), raw.into()));
        self
    }

    /// The request a permit opens the way for.
    pub(crate) fn permitted(permit: Permit, forward: Forward) -> Result<Self, Failure> {
        let mut out = match permit.spend() {
            Target::Tool { tool, arguments } => {
                let name = tool.name.as_str();
                let mut out = Self::own("tools/call").with("name", quote(name));
                if let Some(arguments) = arguments {
                    out.mirrored = mirror::headers(&tool.offer.headers, &arguments)?;
                    out = out.with("arguments", arguments);
                }
                out.name = Some(name.to_owned());
                out
            }
            // Not to be sent anywhere; whoever has such a permit answers it.
            Target::Permission { .. } => {
                return Err(Failure::NotSent("a harness runs its own tools itself".to_owned()));
            }
            Target::Resource { uri, .. } => {
                let out = Self::own("resources/read").with("uri", quote(&uri));
                Self { name: Some(uri), ..out }
            }
            Target::Prompt { name, .. } => {
                let out = Self::own("prompts/get").with("name", quote(&name));
                Self { name: Some(name), ..out }
            }
            Target::CompletePrompt { name, .. } => {
                let reference = format!("{{\"type\":\"ref/prompt\",\"name\":{}}}", quote(&name));
                Self::own("completion/complete").with("ref", reference)
            }
            Target::CompleteTemplate { template, .. } => {
                let reference =
                    format!("{{\"type\":\"ref/resource\",\"uri\":{}}}", quote(&template));
                Self::own("completion/complete").with("ref", reference)
            }
        };
        let judged: Vec<Cow<'static, str>> =
            out.params.iter().map(|(name, _)| name.clone()).collect();
        let kept = |name: &str| {
            let tool_arguments = out.method == "tools/call" && name == "arguments";
            name != "_meta" && !tool_arguments && !judged.iter().any(|taken| taken == name)
        };
        let more: Vec<_> = forward.params.into_iter().filter(|(name, _)| kept(name)).collect();
        out.params.extend(more.into_iter().map(|(name, raw)| (Cow::Owned(name), raw)));
        out.meta = forward.meta;
        out.meta.retain(|(name, _)| !OWN_META.contains(&name.as_str()));
        out.progress = forward.progress;
        out.log = forward.log;
        Ok(out)
    }

    /// The message with `id`, which is also the progress token if progress is wanted.
    pub(crate) fn encode(&self, id: u64, voice: &Voice) -> Vec<u8> {
        let raw = self.params.iter().map(|(name, raw)| name.len() + raw.len() + 4).sum::<usize>();
        let meta = self.meta.iter().map(|(name, raw)| name.len() + raw.len() + 4).sum::<usize>();
        let mut out = Vec::with_capacity(raw + meta + voice.modern_meta.len() + 192);
        // Writing into a Vec cannot fail.
        let _ = write!(
            out,
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{",
            self.method
        );
        let mut comma = "";
        for (name, raw) in &self.params {
            member(&mut out, comma, &quote(name), raw);
            comma = ",";
        }
        self.encode_meta(&mut out, comma, id, voice);
        out.extend_from_slice(b"}}");
        out
    }

    fn encode_meta(&self, out: &mut Vec<u8>, comma: &str, id: u64, voice: &Voice) {
        let modern = voice.era == Era::Modern;
        if !modern && self.meta.is_empty() && self.progress.is_none() {
            return;
        }
        out.extend_from_slice(comma.as_bytes());
        out.extend_from_slice(b"\"_meta\":{");
        let mut comma = "";
        if modern {
            out.extend_from_slice(voice.modern_meta.as_bytes());
            comma = ",";
        }
        if let (true, Some(log)) = (modern, &self.log) {
            member(
                out,
                comma,
                "\"io.modelcontextprotocol/logLevel\"",
                quote(&log.level).as_bytes(),
            );
        }
        if self.progress.is_some() {
            member(out, comma, "\"progressToken\"", id.to_string().as_bytes());
            comma = ",";
        }
        for (name, raw) in &self.meta {
            member(out, comma, &quote(name), raw);
            comma = ",";
        }
        out.push(b'}');
    }
}

fn member(out: &mut Vec<u8>, comma: &str, quoted: &str, raw: &[u8]) {
    out.extend_from_slice(comma.as_bytes());
    out.extend_from_slice(quoted.as_bytes());
    out.push(b':');
    out.extend_from_slice(raw);
}

/// How the gateway introduces itself on one connection.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    /// The era of the message.
    pub(crate) era: Era,
    // Members of `_meta` every modern request carries.
    modern_meta: std::sync::Arc<str>,
}

impl Voice {
    /// The voice of a gateway of `version`, before the era is known.
    pub(crate) fn new(version: &str) -> Self {
        let modern_meta = format!(
            "\"io.modelcontextprotocol/protocolVersion\":\"{}\",\
             \"io.modelcontextprotocol/clientInfo\":{},\
             \"io.modelcontextprotocol/clientCapabilities\":{{}}",
            super::session::MODERN,
            client_info(version)
        );
        Self { era: Era::Legacy, modern_meta: modern_meta.into() }
    }

    /// The same voice in another era.
    pub(crate) fn of(&self, era: Era) -> Self {
        Self { era, modern_meta: self.modern_meta.clone() }
    }
}

/// The value of `clientInfo`.
pub(crate) fn client_info(version: &str) -> String {
    format!("{{\"name\":\"portcullis\",\"version\":{}}}", quote(version))
}

/// A notification that a request is over.
pub(crate) fn cancelled(id: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\
         \"params\":{{\"requestId\":{id},\"reason\":\"the caller no longer waits\"}}}}"
    )
}

/// The answer to a request of the server with the source text `id`. The gateway offers an
/// upstream no sampling, roots or elicitation: only `ping` has an answer.
pub(crate) fn answer(id: &[u8], method: &str) -> Vec<u8> {
    let mut out = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    out.extend_from_slice(id);
    out.extend_from_slice(match method {
        "ping" => b",\"result\":{}}".as_slice(),
        _ => b",\"error\":{\"code\":-32601,\"message\":\"the gateway answers no requests of a server\"}}",
    });
    out
}
