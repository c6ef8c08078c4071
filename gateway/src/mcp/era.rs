//! Which revision a request speaks. The request's own metadata decides, never its method.

use crate::mcp::answer::{
    HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_VERSION,
};
use crate::mcp::envelope::{Call, Raw};
use crate::mcp::headers::{self, HeaderMismatch, single};
use crate::mcp::method::Method;
use http::HeaderMap;
use portcullis_policy::json::{Kind, quote};

/// The newest revision: stateless, metadata in every request.
pub(crate) const MODERN: &str = "2026-07-28";
/// The newest revision with a handshake.
pub(crate) const LEGACY_NEWEST: &str = "2025-11-25";
/// All revisions with a handshake that are spoken over streamable HTTP, newest first.
pub(crate) const LEGACY: &[&str] = &[LEGACY_NEWEST, "2025-06-18", "2025-03-26", "2024-11-05"];

/// The two protocol eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// `initialize`, sessions; 2025-11-25 and earlier.
    Legacy,
    /// Metadata in every request; 2026-07-28.
    Modern,
}

/// A request whose revision cannot be served; always HTTP 400 or 404.
#[derive(Debug)]
pub(crate) struct EraError {
    /// HTTP status.
    pub(crate) status: u16,
    /// JSON-RPC code.
    pub(crate) code: i64,
    /// What is wrong.
    pub(crate) message: String,
    /// JSON for `error.data`.
    pub(crate) data: Option<String>,
}

impl EraError {
    fn new(status: u16, code: i64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }
}

impl From<HeaderMismatch> for EraError {
    fn from(error: HeaderMismatch) -> Self {
        Self::new(400, HEADER_MISMATCH, error.0)
    }
}

/// Tells the era of a request and checks what that era demands of it. Returns the method, if it
/// is one the era has.
///
/// # Errors
/// [`EraError`], to be sent as it is.
pub(crate) fn judge(headers: &HeaderMap, call: &Call) -> Result<(Era, Method), EraError> {
    let header = single(headers, "mcp-protocol-version")?;
    let meta = call.meta.value("io.modelcontextprotocol/protocolVersion");
    let era = match (header, meta) {
        (None, None) => Era::Legacy,
        (Some(header), None) => without_metadata(header)?,
        (None, Some(_)) => {
            return Err(EraError::new(
                400,
                HEADER_MISMATCH,
                "header `MCP-Protocol-Version` is missing",
            ));
        }
        (Some(header), Some(meta)) => {
            with_metadata(header, meta, call)?;
            Era::Modern
        }
    };
    let method = Method::parse(&call.method).filter(|method| match era {
        Era::Legacy => method.is_legacy(),
        Era::Modern => method.is_modern(),
    });
    if era == Era::Modern {
        let named = method.and_then(Method::named_by).and_then(|member| call.params.value(member));
        headers::check_standard(headers, call, named)?;
    }
    let status = if era == Era::Modern { 404 } else { 200 };
    let unknown = || {
        let method = portcullis_policy::decide::shown(&call.method);
        EraError::new(status, METHOD_NOT_FOUND, format!("method {method} is not served here"))
    };
    Ok((era, method.ok_or_else(unknown)?))
}

fn without_metadata(header: &str) -> Result<Era, EraError> {
    if LEGACY.contains(&header) {
        return Ok(Era::Legacy);
    }
    if header == MODERN {
        return Err(EraError::new(
            400,
            INVALID_PARAMS,
            "revision 2026-07-28 needs `_meta` with `io.modelcontextprotocol/protocolVersion` and \
             `io.modelcontextprotocol/clientCapabilities` in every request",
        ));
    }
    Err(unsupported(header, INVALID_REQUEST))
}

fn with_metadata(header: &str, meta: &Raw, call: &Call) -> Result<(), EraError> {
    let Some(version) = meta.text() else {
        return Err(EraError::new(
            400,
            INVALID_PARAMS,
            "`io.modelcontextprotocol/protocolVersion` must be a string",
        ));
    };
    if version != header {
        return Err(EraError::new(
            400,
            HEADER_MISMATCH,
            "header `MCP-Protocol-Version` differs from `io.modelcontextprotocol/protocolVersion`",
        ));
    }
    if version != MODERN {
        return Err(unsupported(&version, UNSUPPORTED_VERSION));
    }
    let capabilities = call.meta.value("io.modelcontextprotocol/clientCapabilities");
    if capabilities.map(Raw::kind) != Some(Kind::Object) {
        return Err(EraError::new(
            400,
            INVALID_PARAMS,
            "`_meta` needs `io.modelcontextprotocol/clientCapabilities`, an object",
        ));
    }
    Ok(())
}

fn unsupported(version: &str, code: i64) -> EraError {
    let requested: String = version.chars().take(64).collect();
    let supported: Vec<String> =
        std::iter::once(MODERN).chain(LEGACY.iter().copied()).map(quote).collect();
    EraError {
        status: 400,
        code,
        message: format!(
            "protocol version {} is not supported; use {MODERN} or {LEGACY_NEWEST}",
            portcullis_policy::decide::shown(&requested)
        ),
        data: Some(format!(
            "{{\"supported\":[{}],\"requested\":{}}}",
            supported.join(","),
            quote(&requested)
        )),
    }
}
