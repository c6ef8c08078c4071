//! Protocol headers of an agent's request (MCP 2026-07-28, streamable HTTP, standard headers).
//!
//! Headers are hints for an early refusal, never inputs to a decision: the body decides.

use crate::mcp::envelope::{Call, Raw};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::json::{JsonLimits, Kind};

/// Longest value of a protocol header, in bytes.
const VALUE_BYTES_MAX: usize = 8 * 1024;

/// A header that is missing, malformed or disagrees with the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HeaderMismatch(pub(crate) String);

/// The value of a header that may come once.
pub(crate) fn single<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, HeaderMismatch> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(HeaderMismatch(format!("header `{name}` is repeated")));
    }
    let text =
        value.to_str().map_err(|_| HeaderMismatch(format!("header `{name}` is not ASCII")))?;
    if text.len() > VALUE_BYTES_MAX {
        return Err(HeaderMismatch(format!(
            "header `{name}` is longer than {VALUE_BYTES_MAX} bytes"
        )));
    }
    Ok(Some(text.trim_matches([' ', '\t'])))
}

/// Undoes `=?base64?…?=`; anything else is literal.
fn decoded(name: &str, value: &str) -> Result<String, HeaderMismatch> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
    else {
        return Ok(value.to_owned());
    };
    STANDARD.decode(inner).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        HeaderMismatch(format!("header `{name}` has an encoded value that cannot be decoded"))
    })
}

/// Checks `Mcp-Method` and `Mcp-Name` of a modern request; `named` is the value the latter
/// mirrors.
pub(crate) fn check_standard(
    headers: &HeaderMap,
    call: &Call,
    named: Option<&Raw>,
) -> Result<(), HeaderMismatch> {
    let method = single(headers, "mcp-method")?
        .ok_or_else(|| HeaderMismatch("header `Mcp-Method` is missing".to_owned()))?;
    if method != call.method {
        return Err(HeaderMismatch(
            "header `Mcp-Method` differs from the body's `method`".to_owned(),
        ));
    }
    let Some(named) = named else { return Ok(()) };
    let name = single(headers, "mcp-name")?
        .ok_or_else(|| HeaderMismatch("header `Mcp-Name` is missing".to_owned()))?;
    if named.text().as_deref() != Some(decoded("Mcp-Name", name)?.as_str()) {
        return Err(HeaderMismatch("header `Mcp-Name` differs from the body".to_owned()));
    }
    Ok(())
}

/// Checks the `Mcp-Param-*` headers that mirror arguments of the tool `offer`.
pub(crate) fn check_params(
    headers: &HeaderMap,
    offer: &ToolOffer,
    arguments: Option<&Raw>,
) -> Result<(), HeaderMismatch> {
    for (path, name) in &offer.headers {
        let header = format!("mcp-param-{}", name.to_ascii_lowercase());
        let mut values = headers.get_all(&header).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err(HeaderMismatch(format!("header `Mcp-Param-{name}` is repeated")));
        }
        let argument = arguments.and_then(|arguments| at_path(arguments, path));
        let argument = argument.filter(|raw| raw.kind() != Kind::Null);
        match (first, argument) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(HeaderMismatch(format!("header `Mcp-Param-{name}` is missing")));
            }
            (Some(_), None) => {
                return Err(HeaderMismatch(format!(
                    "header `Mcp-Param-{name}` has no argument in the body"
                )));
            }
            (Some(value), Some(argument)) => {
                let value = value.to_str().unwrap_or_default().trim_matches([' ', '\t']);
                if !agrees(&decoded(name, value)?, &argument) {
                    return Err(HeaderMismatch(format!(
                        "header `Mcp-Param-{name}` differs from the body"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn at_path(arguments: &Raw, path: &[String]) -> Option<Raw> {
    let mut value = arguments.clone();
    for step in path {
        value = crate::mcp::envelope::member_of(&value, step, JsonLimits::default())?;
    }
    Some(value)
}

fn agrees(header: &str, argument: &Raw) -> bool {
    match argument.kind() {
        Kind::String => argument.text().as_deref() == Some(header),
        Kind::Bool => argument.as_str() == header,
        Kind::Number => {
            // Integers compare numerically: `42.0` equals `42`.
            let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite());
            argument.as_str() == header
                || matches!((number(header), number(argument.as_str())), (Some(a), Some(b)) if a.total_cmp(&b).is_eq())
        }
        Kind::Null | Kind::Array | Kind::Object => false,
    }
}
