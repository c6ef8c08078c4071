//! What the upstream servers offer at this moment, and why something is not there.

use crate::canonical::{Digest, canonical};
use crate::json::{JsonError, JsonFault, JsonLimits, Kind, Reader, decode, kind_of};
use crate::name::ServerName;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The offers of all configured servers.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// One entry a server that some file defines.
    pub servers: BTreeMap<ServerName, Arc<Offer>>,
}

/// What one server offers.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Whether it can be reached.
    pub status: Status,
    /// Its tools, in its own order. Kept, as stale, while the server is away.
    pub tools: Vec<Arc<ToolOffer>>,
    /// Its resources: exact URI and the source text of the entry.
    pub resources: Vec<Arc<EntryOffer>>,
    /// Its resource templates: URI template and the source text of the entry.
    pub templates: Vec<Arc<EntryOffer>>,
    /// Its prompts: name and the source text of the entry.
    pub prompts: Vec<Arc<EntryOffer>>,
    /// Entries that were left out, each with the reason.
    pub problems: Vec<String>,
    /// True if the server takes `completion/complete`.
    pub completes: bool,
}

/// Whether a server can be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Status {
    /// Not asked yet.
    #[default]
    Starting,
    /// It answered.
    Ready,
    /// Switched off by the operator.
    Disabled,
    /// It does not answer.
    Unreachable {
        /// Since when, in milliseconds since 1970.
        since_ms: i64,
        /// Why, for the operator.
        reason: String,
    },
}

/// One tool as its server registered it.
#[derive(Debug, Clone)]
pub struct ToolOffer {
    /// The name on the wire, case-sensitive. Not yet checked against the alphabet.
    pub name: String,
    /// The source text of the definition, byte for byte.
    pub json: Arc<str>,
    /// Where in `json` the value of `name` stands, with its quotes.
    pub name_span: Range<usize>,
    /// Digest of the definition in canonical form 1.
    pub hash: Digest,
    /// `title`, or `annotations.title`.
    pub title: Option<String>,
    /// `description`.
    pub description: String,
    /// Input properties: name and description, for search.
    pub parameters: Vec<(String, String)>,
    /// Input properties mirrored into headers (`x-mcp-header`), MCP 2026-07-28: the path of the
    /// property and the header's name.
    pub headers: Vec<(Vec<String>, String)>,
    /// Input properties whose values are secret by the schema, as a policy would name them.
    pub secret: Vec<String>,
}

/// A resource, template or prompt as its server registered it.
#[derive(Debug, Clone)]
pub struct EntryOffer {
    /// URI, URI template or name.
    pub key: String,
    /// The source text of the entry.
    pub json: Arc<str>,
    /// Where in `json` the value of the key stands, with its quotes.
    pub key_span: Range<usize>,
}

/// Why a tool definition was left out of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The entry is no object with the members a tool needs.
    #[error("an entry is not a tool definition: {0}")]
    Shape(#[from] JsonError),
    /// The entry lacks a member.
    #[error("an entry has no `{0}`")]
    Missing(&'static str),
    /// `x-mcp-header` is used in a way MCP 2026-07-28 forbids.
    #[error("tool `{tool}`: {fault}")]
    Header {
        /// The tool, escaped.
        tool: String,
        /// What is wrong.
        fault: String,
    },
}

impl ToolOffer {
    /// Reads one entry of `tools` from `tools/list`.
    ///
    /// # Errors
    /// [`OfferError`] if it is not a tool definition; the caller keeps it as a problem.
    pub fn parse(json: &str, limits: JsonLimits) -> Result<Self, OfferError> {
        let mut found = Found::default();
        let mut reader = Reader::new(json.as_bytes(), limits)?;
        reader.object(|reader, member| {
            match &**member {
                "name" => found.name = Some(reader.string()?.0),
                "title" => found.title = text(reader)?,
                "description" => found.description = text(reader)?,
                "annotations" => found.annotations = Some(reader.value()?),
                "inputSchema" => found.schema = Some(reader.value()?),
                _ => drop(reader.value()?),
            }
            Ok(())
        })?;
        reader.end()?;
        let raw_name = found.name.ok_or(OfferError::Missing("name"))?;
        let name = decode(raw_name).ok_or(OfferError::Missing("name"))?.into_owned();
        let start = offset(json, raw_name).ok_or(OfferError::Missing("name"))?;
        let schema = found.schema.ok_or(OfferError::Missing("inputSchema"))?;
        let title = found.title.or_else(|| annotated_title(found.annotations?, limits));
        let hash = Digest::of(canonical(json.as_bytes(), limits)?.as_bytes());
        let mut properties = crate::catalogue::schema::Properties::default();
        properties.read(schema, limits)?;
        let headers = properties
            .headers()
            .map_err(|fault| OfferError::Header { tool: name.escape_debug().to_string(), fault })?;
        Ok(Self {
            name_span: start..start + raw_name.len(),
            json: json.into(),
            name,
            hash,
            title,
            description: found.description.unwrap_or_default(),
            parameters: properties.described(),
            headers,
            secret: properties.secret(),
        })
    }
}

impl EntryOffer {
    /// Reads one entry of a list whose key is the member `key`.
    ///
    /// # Errors
    /// [`OfferError`] if it is not an object or lacks the member.
    pub fn parse(json: &str, key: &'static str, limits: JsonLimits) -> Result<Self, OfferError> {
        let mut found = None;
        let mut reader = Reader::new(json.as_bytes(), limits)?;
        reader.object(|reader, member| {
            if member == key {
                found = Some(reader.string()?);
                return Ok(());
            }
            reader.value().map(drop)
        })?;
        reader.end()?;
        let (raw, decoded) = found.ok_or(OfferError::Missing(key))?;
        let start = offset(json, raw).ok_or(OfferError::Missing(key))?;
        Ok(Self {
            key: decoded.into_owned(),
            json: json.into(),
            key_span: start..start + raw.len(),
        })
    }
}

#[derive(Default)]
struct Found<'a> {
    name: Option<&'a str>,
    title: Option<String>,
    description: Option<String>,
    annotations: Option<&'a str>,
    schema: Option<&'a str>,
}

fn text(reader: &mut Reader<'_>) -> Result<Option<String>, JsonError> {
    let raw = reader.value()?;
    Ok(decode(raw).map(std::borrow::Cow::into_owned))
}

fn annotated_title(raw: &str, limits: JsonLimits) -> Option<String> {
    if kind_of(raw) != Kind::Object {
        return None;
    }
    let mut title = None;
    let mut reader = Reader::new(raw.as_bytes(), limits).ok()?;
    reader
        .object(|reader, member| {
            let value = reader.value()?;
            if member == "title" {
                title = decode(value).map(std::borrow::Cow::into_owned);
            }
            Ok(())
        })
        .ok()?;
    title
}

// `part` is a slice of `whole` that a reader returned.
fn offset(whole: &str, part: &str) -> Option<usize> {
    (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize).filter(|&at| at <= whole.len())
}

mod schema;

impl From<JsonFault> for OfferError {
    fn from(fault: JsonFault) -> Self {
        Self::Shape(JsonError { fault, at: 0 })
    }
}
