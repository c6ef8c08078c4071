//! Canonical form 1: the one spelling of arguments that is shown, digested and sent.
//!
//! Member order and string escapes are those of RFC 8785, no white space, duplicates refused.
//! Numbers stay as written: RFC 8785 would write every number as a double, and an approval for
//! 9007199254740993 would also cover 9007199254740992.

use crate::json::{JsonError, JsonLimits, Kind, Reader, write_string};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::fmt;

/// A SHA-256 digest, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of several parts, each with its length before it, so that no two lists of
    /// parts collide.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part.len().to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Reads what [`fmt::Display`] writes; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        if hex.len() != 64 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The first `digits` hex digits, without the prefix.
    #[must_use]
    pub fn short(&self, digits: usize) -> String {
        self.hex().chars().take(digits).collect()
    }

    /// The 64 hex digits, without the prefix.
    #[must_use]
    pub fn hex(&self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        // A nibble is always a digit of base 16.
        digits.map(|nibble| char::from_digit(u32::from(nibble), 16).unwrap_or('0')).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

enum Node<'a> {
    Raw(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Writes one JSON value in canonical form 1.
///
/// # Errors
/// Any [`JsonError`], also for duplicate members and nesting beyond the limits.
pub fn canonical(text: &[u8], limits: JsonLimits) -> Result<String, JsonError> {
    let mut reader = Reader::new(text, limits)?;
    let node = read(&mut reader)?;
    reader.end()?;
    let mut out = String::with_capacity(text.len());
    write(&mut out, node);
    Ok(out)
}

fn read<'a>(reader: &mut Reader<'a>) -> Result<Node<'a>, JsonError> {
    Ok(match reader.peek()? {
        Kind::String => Node::Text(reader.string()?.1),
        Kind::Array => {
            let mut list = Vec::new();
            reader.array(|reader| {
                list.push(read(reader)?);
                Ok(())
            })?;
            Node::List(list)
        }
        Kind::Object => {
            let mut map = Vec::new();
            reader.object(|reader, name| {
                map.push((name.clone(), read(reader)?));
                Ok(())
            })?;
            map.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            Node::Map(map)
        }
        Kind::Null | Kind::Bool | Kind::Number => Node::Raw(reader.value()?),
    })
}

fn write(out: &mut String, node: Node<'_>) {
    match node {
        Node::Raw(text) => out.push_str(text),
        Node::Text(text) => write_string(out, &text),
        Node::List(list) => {
            out.push('[');
            for (i, item) in list.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(out, item);
            }
            out.push(']');
        }
        Node::Map(map) => {
            out.push('{');
            for (i, (name, value)) in map.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(out, &name);
                out.push(':');
                write(out, value);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        canonical(text.as_bytes(), JsonLimits::default()).unwrap()
    }

    #[test]
    fn numbers_stay_as_written_and_members_are_sorted() {
        assert_eq!(
            form(
                r#" {"b" : 1.0, "a":[ 9007199254740993, -0, 1e400 ],"\u0061a":"\u20ac\u000f\/"} "#
            ),
            "{\"a\":[9007199254740993,-0,1e400],\"aa\":\"€\\u000f/\",\"b\":1.0}"
        );
    }

    #[test]
    fn order_is_by_utf16_units_as_rfc_8785_wants() {
        // The example of RFC 8785, section 3.2.3.
        let text = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        assert_eq!(
            form(text),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}"
        );
    }

    #[test]
    fn a_digest_reads_back() {
        let digest = Digest::of(b"x");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse(&digest.to_string().to_uppercase()), None);
    }
}
