//! One JSON-RPC message, read strictly and once, kept as slices of the bytes received.
//!
//! What is judged here is what is forwarded: no typed message stands between the bytes and the
//! decision. Duplicate members at any depth, look-alikes of protocol members, wrong types and
//! shapes that are neither request, notification nor response are refused.

use super::look_alike::{self, is_look_alike};
use bytes::Bytes;
use portcullis_policy::json::{JsonError, JsonFault, JsonLimits, Kind, Reader, decode, kind_of};
use std::borrow::Cow;

/// Longest id, in bytes of source text.
const ID_BYTES_MAX: usize = 256;
/// Most members of `params` and of `_meta` each.
const MEMBERS_MAX: usize = 64;

/// A slice of a message: the exact source text of one JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw(
    // INVARIANT: UTF-8, one complete JSON value without white space around it.
    Bytes,
);

impl Raw {
    /// The source text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The kind of value.
    pub(crate) fn kind(&self) -> Kind {
        kind_of(self.as_str())
    }

    /// The decoded value if it is a string.
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        decode(self.as_str())
    }
}

/// Members of an object, in the order they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members(Vec<(String, Raw)>);

impl Members {
    /// The value of a member.
    pub(crate) fn value(&self, name: &str) -> Option<&Raw> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, raw)| raw)
    }

    /// All members.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Raw)> {
        self.0.iter().map(|(name, raw)| (name.as_str(), raw))
    }
}

/// A message.
#[derive(Debug)]
pub(crate) enum Message {
    /// Wants an answer.
    Request(Call),
    /// Wants none.
    Notification {
        /// The method as written.
        method: String,
        /// Its `params`.
        params: Members,
    },
    /// Answers a request of ours.
    Response,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    /// The id as written.
    pub(crate) id: Raw,
    /// The method as written.
    pub(crate) method: String,
    /// The members of `params`; none if there are no params.
    pub(crate) params: Members,
    /// The members of `params._meta`.
    pub(crate) meta: Members,
}

/// Why a message was refused. Nothing of it was forwarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeError {
    /// Not JSON, or not strict JSON.
    #[error("the body is not acceptable JSON: {0}")]
    Json(#[from] JsonError),
    /// An array of messages.
    #[error("batches are not accepted; send each message in a request of its own")]
    Batch,
    /// Not a JSON-RPC message.
    #[error("the body is not one JSON-RPC 2.0 message: {0}")]
    Shape(&'static str),
    /// A member that another reader could take for a protocol member.
    #[error("member `{0}` looks like a protocol member but is not spelled like one")]
    LookAlike(String),
    /// `params` of a wrong type.
    #[error("`params` must be an object")]
    Params(Raw),
}

impl EnvelopeError {
    /// The JSON-RPC error code.
    pub(crate) fn code(&self) -> i64 {
        match self {
            Self::Json(error) => match error.fault {
                JsonFault::Duplicate | JsonFault::Refused | JsonFault::Items => -32600,
                JsonFault::Utf8
                | JsonFault::End
                | JsonFault::Character
                | JsonFault::Trailing
                | JsonFault::Escape
                | JsonFault::Control
                | JsonFault::Number
                | JsonFault::Depth
                | JsonFault::Type => -32700,
            },
            Self::Batch | Self::Shape(_) | Self::LookAlike(_) => -32600,
            Self::Params(_) => -32602,
        }
    }

    /// The word in audit and metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Json(error) if error.fault == JsonFault::Duplicate => "duplicate_key",
            Self::Json(_) => "malformed",
            Self::Batch => "batch",
            Self::Shape(_) => "shape",
            Self::LookAlike(_) => "look_alike",
            Self::Params(_) => "params",
        }
    }
}

#[derive(Default)]
struct Found {
    version: bool,
    id: Option<Raw>,
    method: Option<String>,
    params: Option<Raw>,
    members: Members,
    meta: Members,
    result: bool,
    error: bool,
}

/// Reads one message.
///
/// # Errors
/// [`EnvelopeError`].
pub(crate) fn read(body: &Bytes, limits: JsonLimits) -> Result<Message, EnvelopeError> {
    let mut reader = Reader::new(body, limits)?;
    if reader.peek()? == Kind::Array {
        return Err(EnvelopeError::Batch);
    }
    let mut found = Found::default();
    let mut refused = None;
    let read = reader.object(|reader, name| {
        found.member(body, reader, name).map_err(|error| match error {
            EnvelopeError::Json(error) => error,
            other @ (EnvelopeError::Batch
            | EnvelopeError::Shape(_)
            | EnvelopeError::LookAlike(_)
            | EnvelopeError::Params(_)) => {
                refused = Some(other);
                reader.refuse(JsonFault::Refused)
            }
        })
    });
    match (refused, read) {
        (Some(refused), _) => return Err(refused),
        (None, read) => read?,
    };
    reader.end()?;
    found.message()
}

fn params(found: &mut Found, body: &Bytes, reader: &mut Reader<'_>) -> Result<(), EnvelopeError> {
    let mut refused = None;
    let read = reader.object(|reader, name| {
        if is_look_alike(name, look_alike::PARAMS) || found.members.0.len() == MEMBERS_MAX {
            refused = Some(look_alike_error(name));
            return Err(reader.refuse(JsonFault::Refused));
        }
        if name == "_meta" && reader.peek()? == Kind::Object {
            return meta(&mut found.meta, body, reader, &mut refused);
        }
        let value = reader.value()?;
        found.members.0.push((name.to_string(), raw(body, value)));
        Ok(())
    });
    match (refused, read) {
        (Some(refused), _) => Err(refused),
        (None, read) => read.map(|_| ()).map_err(EnvelopeError::from),
    }
}

fn meta(
    members: &mut Members,
    body: &Bytes,
    reader: &mut Reader<'_>,
    refused: &mut Option<EnvelopeError>,
) -> Result<(), JsonError> {
    reader.object(|reader, name| {
        if is_look_alike(name, look_alike::META) || members.0.len() == MEMBERS_MAX {
            *refused = Some(look_alike_error(name));
            return Err(reader.refuse(JsonFault::Refused));
        }
        let value = reader.value()?;
        members.0.push((name.to_string(), raw(body, value)));
        Ok(())
    })?;
    Ok(())
}

fn look_alike_error(name: &str) -> EnvelopeError {
    EnvelopeError::LookAlike(name.chars().take(64).collect::<String>().escape_default().to_string())
}

fn raw(body: &Bytes, value: &str) -> Raw {
    Raw(body.slice_ref(value.as_bytes()))
}

impl Found {
    fn member(
        &mut self,
        body: &Bytes,
        reader: &mut Reader<'_>,
        name: &str,
    ) -> Result<(), EnvelopeError> {
        match name {
            "jsonrpc" => self.version = reader.value()? == "\"2.0\"",
            "id" => self.id = Some(raw(body, reader.value()?)),
            "method" => {
                let value = reader.value()?;
                let method = decode(value).ok_or(EnvelopeError::Shape("`method` is no string"))?;
                self.method = Some(method.into_owned());
            }
            "params" if reader.peek()? == Kind::Object => params(self, body, reader)?,
            "params" => self.params = Some(raw(body, reader.value()?)),
            "result" => {
                self.result = true;
                reader.value()?;
            }
            "error" => {
                self.error = true;
                reader.value()?;
            }
            other if is_look_alike(other, look_alike::ENVELOPE) => {
                return Err(look_alike_error(other));
            }
            // A really different member is data: it takes no part and is not forwarded.
            _ => drop(reader.value()?),
        }
        Ok(())
    }

    fn message(self) -> Result<Message, EnvelopeError> {
        if !self.version {
            return Err(EnvelopeError::Shape("`jsonrpc` must be \"2.0\""));
        }
        let answer = self.result || self.error;
        let Some(method) = self.method else {
            return match (self.result, self.error, &self.id) {
                (true, false, Some(_)) | (false, true, Some(_)) => Ok(Message::Response),
                _ => Err(EnvelopeError::Shape(
                    "it has neither `method` nor exactly one of `result` and `error`",
                )),
            };
        };
        if answer {
            return Err(EnvelopeError::Shape("it has both `method` and `result` or `error`"));
        }
        let params_fault = self.params.is_some();
        let Some(id) = self.id else {
            if params_fault {
                return Err(EnvelopeError::Shape("`params` must be an object"));
            }
            return Ok(Message::Notification { method, params: self.members });
        };
        if !matches!(id.kind(), Kind::String | Kind::Number) || id.bytes().len() > ID_BYTES_MAX {
            return Err(EnvelopeError::Shape(
                "`id` must be a string or an integer of at most 256 bytes",
            ));
        }
        if id.kind() == Kind::Number && id.as_str().contains(['.', 'e', 'E']) {
            return Err(EnvelopeError::Shape(
                "`id` must be a string or an integer of at most 256 bytes",
            ));
        }
        if params_fault {
            return Err(EnvelopeError::Params(id));
        }
        Ok(Message::Request(Call { id, method, params: self.members, meta: self.meta }))
    }
}

/// The raw text of a member of a JSON object; `None` if it is not there or `object` is none.
pub(crate) fn member_of(object: &Raw, wanted: &str, limits: JsonLimits) -> Option<Raw> {
    let mut found = None;
    let mut reader = Reader::new(object.bytes(), limits).ok()?;
    reader
        .object(|reader, name| {
            let value = reader.value()?;
            if name == wanted {
                found = Some(raw(object.bytes(), value));
            }
            Ok(())
        })
        .ok()?;
    found
}
