//! Reads one message of an upstream, once and strictly. What is not a message of JSON-RPC 2.0
//! with exactly the members its kind needs is a fault; the connection drops and counts it.

use crate::upstream::message::Reply;
use bytes::Bytes;
use portcullis_policy::json::{JsonError, JsonFault, JsonLimits, Kind, Reader, decode, kind_of};

/// Most members and elements in one message of an upstream.
const FRAME_ITEMS_MAX: usize = 2_000_000;

/// One message of an upstream.
#[derive(Debug)]
pub(crate) enum Frame {
    /// An answer to a request of the gateway.
    Reply {
        /// The id of the request.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// A request of the server.
    Request {
        /// Source text of the id.
        id: Bytes,
        /// The method.
        method: String,
    },
    /// A notification.
    Notice {
        /// The method.
        method: String,
        /// Source text of `params`.
        params: Option<Bytes>,
    },
}

/// An answer and the one member of it that says how to read it.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer.
    pub(crate) reply: Reply,
    /// `resultType` of MCP 2026-07-28; `None` if there is none.
    pub(crate) result_type: Option<String>,
}

/// Why a message was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameFault {
    /// Not JSON, or not an object.
    #[error("not a message: {0}")]
    Json(#[from] JsonError),
    /// JSON, but no message of JSON-RPC 2.0.
    #[error("not JSON-RPC 2.0: {0}")]
    Shape(&'static str),
    /// An answer to no request of the gateway.
    #[error("an answer with an id the gateway never used")]
    Id,
}

/// The limits messages of upstreams are read with.
pub(crate) fn limits() -> JsonLimits {
    JsonLimits { items_max: FRAME_ITEMS_MAX, ..JsonLimits::default() }
}

#[derive(Default)]
struct Parts<'a> {
    version: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<String>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    result_type: Option<&'a str>,
}

/// Reads one message. Slices of `frame` share its memory.
pub(crate) fn read(frame: &Bytes) -> Result<Frame, FrameFault> {
    let parts = scan(frame)?;
    if parts.version.and_then(decode).as_deref() != Some("2.0") {
        return Err(FrameFault::Shape("`jsonrpc` is not \"2.0\""));
    }
    let slice = |text: &str| frame.slice_ref(text.as_bytes());
    if let Some(method) = parts.method {
        if parts.result.is_some() || parts.error.is_some() {
            return Err(FrameFault::Shape("a method beside a result"));
        }
        return match parts.id {
            None => Ok(Frame::Notice { method, params: parts.params.map(slice) }),
            Some(id) if matches!(kind_of(id), Kind::Number | Kind::String) => {
                Ok(Frame::Request { id: slice(id), method })
            }
            Some(_) => Err(FrameFault::Shape("the id of a request is neither number nor string")),
        };
    }
    let reply = match (parts.result, parts.error) {
        (Some(result), None) => Reply::Result(slice(result)),
        (None, Some(error)) => Reply::Error(slice(error)),
        _ => return Err(FrameFault::Shape("not exactly one of `result` and `error`")),
    };
    let id = parts.id.and_then(own_id).ok_or(FrameFault::Id)?;
    let result_type =
        parts.result_type.map(|raw| decode(raw).map_or_else(|| raw.to_owned(), Into::into));
    Ok(Frame::Reply { id, answer: Answer { reply, result_type } })
}

fn scan(frame: &Bytes) -> Result<Parts<'_>, JsonError> {
    let mut parts = Parts::default();
    let mut reader = Reader::new(frame, limits())?;
    reader.object(|reader, member| {
        match &**member {
            "jsonrpc" => parts.version = Some(reader.value()?),
            "id" => parts.id = Some(reader.value()?),
            "method" => parts.method = Some(reader.string()?.1.into_owned()),
            "params" => parts.params = Some(reader.value()?),
            "error" => parts.error = Some(reader.object(|reader, _| reader.value().map(drop))?),
            "result" => parts.result = Some(result(reader, &mut parts.result_type)?),
            _ => drop(reader.value()?),
        }
        Ok(())
    })?;
    reader.end()?;
    Ok(parts)
}

fn result<'a>(
    reader: &mut Reader<'a>,
    result_type: &mut Option<&'a str>,
) -> Result<&'a str, JsonError> {
    reader.object(|reader, member| {
        let value = reader.value()?;
        if member == "resultType" {
            *result_type = Some(value);
        }
        Ok(())
    })
}

// Ids of the gateway are plain decimal numbers: another spelling of the same number is not its id.
fn own_id(raw: &str) -> Option<u64> {
    let plain =
        raw.bytes().all(|b| b.is_ascii_digit()) && (raw.len() == 1 || !raw.starts_with('0'));
    plain.then(|| raw.parse().ok()).flatten()
}

/// The progress token in the params of `notifications/progress`, if it is one of the gateway's.
pub(crate) fn progress_token(params: &[u8]) -> Option<u64> {
    let mut token = None;
    let mut reader = Reader::new(params, limits()).ok()?;
    let read = reader.object(|reader, member| {
        let value = reader.value()?;
        if member == "progressToken" {
            token = own_id(value);
        }
        Ok(())
    });
    read.ok().and(token)
}

/// Calls `each` with every member of the object `raw`.
pub(crate) fn members<'a>(
    raw: &'a [u8],
    mut each: impl FnMut(&str, &'a str),
) -> Result<(), JsonError> {
    let mut reader = Reader::new(raw, limits())?;
    reader.object(|reader, member| {
        let value = reader.value()?;
        each(member, value);
        Ok(())
    })?;
    reader.end()
}

/// Calls `each` with every element of the array `raw`.
pub(crate) fn elements<'a>(raw: &'a str, mut each: impl FnMut(&'a str)) -> Result<(), JsonError> {
    let mut reader = Reader::new(raw.as_bytes(), limits())?;
    reader.array(|reader| {
        each(reader.value()?);
        Ok(())
    })?;
    reader.end()
}

impl From<JsonFault> for FrameFault {
    fn from(fault: JsonFault) -> Self {
        Self::Json(JsonError { fault, at: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &'static str) -> Result<Frame, FrameFault> {
        read(&Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn an_answer_keeps_its_bytes() {
        let read =
            frame(r#" {"result": {"a" : 1.50,"resultType":"complete"} ,"id":7,"jsonrpc":"2.0"} "#);
        let Frame::Reply { id, answer } = read.unwrap() else { panic!("no reply") };
        assert_eq!(id, 7);
        assert_eq!(
            answer.reply,
            Reply::Result(Bytes::from_static(br#"{"a" : 1.50,"resultType":"complete"}"#))
        );
        assert_eq!(answer.result_type.as_deref(), Some("complete"));
    }

    #[test]
    fn what_is_not_a_message_is_a_fault() {
        for bad in [
            "",
            "junk",
            "[]",
            "7",
            "{}",
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":07,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#,
            r#"{"jsonrpc":"2.0","id":7,"id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":"x"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}} x"#,
        ] {
            assert!(frame(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_and_notices_are_told_apart() {
        let request = frame(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#).unwrap();
        assert!(matches!(request, Frame::Request { id, .. } if id == "\"x\""));
        let notice =
            frame(r#"{"jsonrpc":"2.0","method":"n","params":{"progressToken":3}}"#).unwrap();
        let Frame::Notice { params: Some(params), .. } = notice else { panic!("no notice") };
        assert_eq!(progress_token(&params), Some(3));
    }
}
