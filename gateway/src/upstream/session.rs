//! What the gateway and one upstream agreed on: the era, the revision, the session id and what
//! the server can do.

use crate::upstream::frame;
use http::HeaderValue;
use portcullis_policy::json::{JsonError, Kind, decode, kind_of};

/// The modern revision the gateway speaks.
pub(crate) const MODERN: &str = "2026-07-28";
/// The legacy revisions the gateway speaks, newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The two eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With a handshake: 2025-11-25 and earlier.
    Legacy,
    /// Without: 2026-07-28.
    Modern,
}

impl Era {
    /// The word in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// An agreement with an upstream. It ends with the process or with a 404 of the server.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// The era.
    pub(crate) era: Era,
    /// The revision; `None` before the handshake.
    pub(crate) version: Option<&'static str>,
    /// `Mcp-Session-Id`, if the server gave one.
    pub(crate) id: Option<HeaderValue>,
    /// What the server can do.
    pub(crate) capabilities: Capabilities,
}

impl Session {
    /// Before anything is agreed.
    pub(crate) fn opening(era: Era) -> Self {
        let version = (era == Era::Modern).then_some(MODERN);
        Self { era, version, id: None, capabilities: Capabilities::default() }
    }
}

/// The capabilities of a server that the gateway uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// It has tools.
    pub(crate) tools: bool,
    /// It has resources.
    pub(crate) resources: bool,
    /// It has prompts.
    pub(crate) prompts: bool,
    /// It takes `completion/complete`.
    pub(crate) completions: bool,
    /// It sends log messages.
    pub(crate) logging: bool,
}

impl Capabilities {
    /// Reads the value of `capabilities`; unknown ones are ignored.
    pub(crate) fn read(raw: &str) -> Self {
        let mut found = Self::default();
        // The text was read before, as part of a frame.
        let _ = frame::members(raw.as_bytes(), |name, value| {
            let has = kind_of(value) == Kind::Object;
            match name {
                "tools" => found.tools = has,
                "resources" => found.resources = has,
                "prompts" => found.prompts = has,
                "completions" => found.completions = has,
                "logging" => found.logging = has,
                _ => {}
            }
        });
        found
    }
}

/// What the result of `initialize` or `server/discover` says.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    /// `protocolVersion` of `initialize`.
    pub(crate) version: Option<String>,
    /// `supportedVersions` of `server/discover`.
    pub(crate) supported: Vec<String>,
    /// `capabilities`.
    pub(crate) capabilities: Capabilities,
}

/// Most entries of `supportedVersions` that are looked at.
const VERSIONS_MAX: usize = 64;

impl Greeting {
    /// Reads a result.
    pub(crate) fn read(result: &[u8]) -> Result<Self, JsonError> {
        let mut greeting = Self::default();
        frame::members(result, |name, raw| match name {
            "protocolVersion" => greeting.version = decode(raw).map(std::borrow::Cow::into_owned),
            "supportedVersions" => greeting.supported = texts(raw),
            "capabilities" if kind_of(raw) == Kind::Object => {
                greeting.capabilities = Capabilities::read(raw);
            }
            _ => {}
        })?;
        Ok(greeting)
    }
}

fn texts(raw: &str) -> Vec<String> {
    let mut texts = Vec::new();
    if kind_of(raw) == Kind::Array {
        let _ = frame::elements(raw, |element| {
            if let (Some(text), true) = (decode(element), texts.len() < VERSIONS_MAX) {
                texts.push(text.into_owned());
            }
        });
    }
    texts
}

/// A JSON-RPC error, as far as era detection needs it.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    /// `code`; 0 if it is no integer.
    pub(crate) code: i64,
    /// `message`, cut and free of control characters.
    pub(crate) message: String,
    /// `data.supported` of -32022.
    pub(crate) supported: Vec<String>,
}

/// Longest piece of a foreign text that is kept for the operator, in characters.
const FOREIGN_CHARS_MAX: usize = 200;

impl Complaint {
    /// Reads the value of `error`.
    pub(crate) fn read(error: &[u8]) -> Self {
        let mut complaint = Self::default();
        let _ = frame::members(error, |name, raw| match name {
            "code" => complaint.code = raw.parse().unwrap_or(0),
            "message" => complaint.message = cut(&decode(raw).unwrap_or_default()),
            "data" if kind_of(raw) == Kind::Object => complaint.supported = supported(raw),
            _ => {}
        });
        complaint
    }

    /// True for the errors that only a modern server sends.
    pub(crate) fn is_modern(&self) -> bool {
        matches!(self.code, -32022..=-32020)
    }
}

fn supported(data: &str) -> Vec<String> {
    let mut versions = Vec::new();
    let _ = frame::members(data.as_bytes(), |name, raw| {
        if name == "supported" {
            versions = texts(raw);
        }
    });
    versions
}

/// A foreign text as logs and reasons show it: cut, and escaped where it is not plain.
pub(crate) fn cut(text: &str) -> String {
    let short: String = text.chars().take(FOREIGN_CHARS_MAX).collect();
    if short.chars().any(char::is_control) { short.escape_debug().to_string() } else { short }
}
