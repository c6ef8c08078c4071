//! Headers that mirror parts of a request (MCP 2026-07-28, streamable HTTP, "Standard request
//! headers" and "x-mcp-header"). They are made from the judged body alone.

use crate::upstream::frame;
use crate::upstream::message::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_policy::json::{Kind, decode, kind_of};

/// Most headers one call mirrors.
const MIRRORED_MAX: usize = 32;
/// Longest value of a mirrored header, encoded, in bytes.
const MIRRORED_BYTES_MAX: usize = 4096;

/// The headers `Mcp-Param-*` for the `arguments` of a call, by the tool's own schema.
pub(crate) fn headers(
    schema: &[(Vec<String>, String)],
    arguments: &[u8],
) -> Result<Vec<(String, String)>, Failure> {
    if schema.len() > MIRRORED_MAX {
        return Err(Failure::NotSent(format!(
            "the tool mirrors more than {MIRRORED_MAX} arguments"
        )));
    }
    let mut headers = Vec::new();
    for (path, header) in schema {
        let Some(value) = at(arguments, path) else { continue };
        let encoded = encode(&value);
        if encoded.len() > MIRRORED_BYTES_MAX {
            return Err(Failure::NotSent(format!(
                "the argument for header `Mcp-Param-{header}` has more than {MIRRORED_BYTES_MAX} bytes"
            )));
        }
        headers.push((format!("mcp-param-{}", header.to_ascii_lowercase()), encoded));
    }
    Ok(headers)
}

// The text of the string, number or boolean at `path`; `null` and other kinds mirror nothing.
fn at(object: &[u8], path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let mut found = None;
    frame::members(object, |name, raw| {
        if name == first {
            found = Some(raw);
        }
    })
    .ok()?;
    let raw = found?;
    if !rest.is_empty() {
        return if kind_of(raw) == Kind::Object { at(raw.as_bytes(), rest) } else { None };
    }
    match kind_of(raw) {
        Kind::String => decode(raw).map(std::borrow::Cow::into_owned),
        Kind::Number | Kind::Bool => Some(raw.to_owned()),
        Kind::Null | Kind::Array | Kind::Object => None,
    }
}

/// `value` as it travels in a header: as it is, or as `=?base64?…?=`.
pub(crate) fn encode(value: &str) -> String {
    let inner = |b: u8| (0x20..=0x7e).contains(&b) || b == b'\t';
    let blank = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    let bytes = value.as_bytes();
    let sentinel = value.starts_with("=?base64?") && value.ends_with("?=");
    let plain = !bytes.is_empty()
        && bytes.iter().copied().all(inner)
        && !blank(bytes.first())
        && !blank(bytes.last())
        && !sentinel;
    if plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_a_header_cannot_carry_are_encoded() {
        for plain in ["us-east", "a b", "42", "a\tb", "=?BASE64?eA==?="] {
            assert_eq!(encode(plain), plain);
        }
        assert_eq!(encode("größe"), "=?base64?Z3LDtsOfZQ==?=");
        assert_eq!(encode(" x"), "=?base64?IHg=?=");
        assert_eq!(encode("x\r\nEvil: 1"), "=?base64?eA0KRXZpbDogMQ==?=");
        assert_eq!(encode("=?base64?eA==?="), "=?base64?PT9iYXNlNjQ/ZUE9PT89?=");
    }

    #[test]
    fn headers_follow_the_judged_arguments() {
        let schema = vec![
            (vec!["region".to_owned()], "Region".to_owned()),
            (vec!["a".to_owned(), "b".to_owned()], "Deep".to_owned()),
            (vec!["n".to_owned()], "Count".to_owned()),
            (vec!["none".to_owned()], "None".to_owned()),
            (vec!["absent".to_owned()], "Absent".to_owned()),
        ];
        let arguments = br#"{"region":"eu\u002dwest","a":{"b":true},"n":42,"none":null}"#;
        let expected: Vec<(String, String)> = [
            ("mcp-param-region", "eu-west"),
            ("mcp-param-deep", "true"),
            ("mcp-param-count", "42"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(headers(&schema, arguments).unwrap(), expected);
        let long = format!("{{\"region\":\"{}\"}}", "x".repeat(MIRRORED_BYTES_MAX + 1));
        assert!(!headers(&schema, long.as_bytes()).unwrap_err().may_have_run());
    }
}
