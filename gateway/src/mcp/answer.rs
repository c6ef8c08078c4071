//! Responses as bytes. Ids and results are spliced in as they came.

use crate::mcp::envelope::Raw;
use bytes::{BufMut, Bytes, BytesMut};
use portcullis_policy::json::{quote, write_string};

/// MCP 2026-07-28: header missing, malformed or other than the body says.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// MCP 2026-07-28: the version is unknown or refused.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// MCP 2026-07-28: the client did not declare what the request needs.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// MCP 2025-11-25, elicitation: a URL has to be opened first.
pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;
/// The method is not on the list.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// `params` do not fit the method.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// Something went wrong behind the request.
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// Not one JSON-RPC message.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// Ours: the HTTP request was turned away; its status says why.
pub(crate) const NOT_ADMITTED: i64 = 4600;
/// Ours: the store of approvals cannot be used.
pub(crate) const STORE_UNAVAILABLE: i64 = 4601;
/// Ours: the audit record cannot be written.
pub(crate) const AUDIT_UNAVAILABLE: i64 = 4602;
/// Ours: the server behind the gateway did not answer, and this is no tool call.
pub(crate) const UPSTREAM_UNAVAILABLE: i64 = 4604;

/// `{"jsonrpc":"2.0","id":…,"result":…}` with both values as they are.
pub(crate) fn result(id: &Raw, result: &[u8]) -> Bytes {
    spliced(id.bytes(), b",\"result\":", result)
}

/// The same with an `error` member that an upstream sent.
pub(crate) fn upstream_error(id: &Raw, error: &[u8]) -> Bytes {
    spliced(id.bytes(), b",\"error\":", error)
}

/// An error of ours; `data` is JSON or nothing.
pub(crate) fn error(id: Option<&Raw>, code: i64, message: &str, data: Option<&str>) -> Bytes {
    let error = error_member(code, message, data);
    spliced(id.map_or(b"null", |id| id.bytes()), b",\"error\":", &error)
}

/// An `error` member; `data` is JSON or nothing.
pub(crate) fn error_member(code: i64, message: &str, data: Option<&str>) -> Bytes {
    let data = data.map_or(String::new(), |data| format!(",\"data\":{data}"));
    Bytes::from(format!("{{\"code\":{code},\"message\":{}{data}}}", quote(message)))
}

fn spliced(id: &[u8], member: &[u8], value: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(id.len() + member.len() + value.len() + 24);
    out.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.put_slice(id);
    out.put_slice(member);
    out.put_slice(value);
    out.put_u8(b'}');
    out.freeze()
}

/// What a refusal of ours tells machines (SEP-2643); never sent for a call that may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Final.
    Unavailable,
    /// There is one, described in the text.
    Undisclosed,
    /// No envelope: the call may have run, or the fault is of another kind.
    None,
}

/// A tool result with `isError`, its text, and what machines read.
pub(crate) fn tool_error(text: &str, remedy: Remedy, approval: Option<&str>) -> String {
    let mut out = String::from("{\"content\":[{\"type\":\"text\",\"text\":");
    write_string(&mut out, text);
    out.push_str("}],\"isError\":true,\"resultType\":\"complete\"");
    let remediation = match remedy {
        Remedy::Unavailable => Some("unavailable"),
        Remedy::Undisclosed => Some("undisclosed"),
        Remedy::None => None,
    };
    if let Some(remediation) = remediation {
        out.push_str(",\"_meta\":{\"io.modelcontextprotocol/authorization\":{\"reason\":\"insufficient_authorization\",\"remediation\":\"");
        out.push_str(remediation);
        out.push_str("\"}");
        if let Some(id) = approval {
            out.push_str(",\"dev.portcullis/approval\":{\"id\":");
            write_string(&mut out, id);
            out.push('}');
        }
        out.push('}');
    }
    out.push('}');
    out
}

/// A tool result with one text.
pub(crate) fn tool_text(text: &str, structured: Option<&str>) -> String {
    let structured =
        structured.map_or(String::new(), |json| format!(",\"structuredContent\":{json}"));
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{}}}]{structured},\"resultType\":\"complete\"}}",
        quote(text)
    )
}

/// `object` with `members` (`"a":1,"b":2`) put first; for objects that lack them.
pub(crate) fn with_members(object: &[u8], members: &str) -> Bytes {
    let Some(rest) = object.strip_prefix(b"{") else { return Bytes::copy_from_slice(object) };
    let empty = rest.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'}');
    let mut out = BytesMut::with_capacity(object.len() + members.len() + 2);
    out.put_u8(b'{');
    out.put_slice(members.as_bytes());
    if !empty {
        out.put_u8(b',');
    }
    out.put_slice(rest);
    out.freeze()
}
