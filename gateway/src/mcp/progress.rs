//! Progress notifications towards agents, under the agent's own token.

use crate::mcp::envelope::Raw;
use bytes::{BufMut, Bytes, BytesMut};
use portcullis_policy::json::{JsonLimits, Reader, quote};

/// A notification with the upstream's `params`, its token replaced by the agent's; `None` if
/// the params carry no token.
pub(crate) fn relayed(params: &Bytes, token: &Raw) -> Option<Bytes> {
    let mut span = None;
    let mut reader = Reader::new(params, JsonLimits::default()).ok()?;
    let start = params.as_ptr() as usize;
    reader
        .object(|reader, name| {
            let value = reader.value()?;
            if name == "progressToken" {
                let at = (value.as_ptr() as usize).saturating_sub(start);
                span = Some(at..at + value.len());
            }
            Ok(())
        })
        .ok()?;
    let span = span?;
    let mut out = BytesMut::with_capacity(params.len() + 80);
    out.put_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":");
    out.put_slice(params.get(..span.start)?);
    out.put_slice(token.bytes());
    out.put_slice(params.get(span.end..)?);
    out.put_u8(b'}');
    Some(out.freeze())
}

/// The value of `progress` in the `params` of a notification.
pub(crate) fn value(params: &Bytes) -> Option<f64> {
    let mut value = None;
    let mut reader = Reader::new(params, JsonLimits::default()).ok()?;
    reader
        .object(|reader, name| {
            let raw = reader.value()?;
            if name == "progress" {
                value = raw.parse().ok();
            }
            Ok(())
        })
        .ok()?;
    value
}

/// A notification of ours.
pub(crate) fn own(token: &Raw, progress: f64, message: &str) -> Bytes {
    Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{},\"progress\":{progress},\"message\":{}}}}}",
        token.as_str(),
        quote(message)
    ))
}
