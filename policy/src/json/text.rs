//! Strings of JSON: their escapes undone and written.

use std::borrow::Cow;

/// The decoded value of a string that a [`Reader`](super::Reader) returned as source text; `None` if the text
/// is no string.
#[must_use]
pub fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    Some(if inner.contains('\\') { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) })
}

/// Writes `text` as a JSON string with the escapes of RFC 8785, section 3.2.2.2.
pub fn write_string(out: &mut String, text: &str) {
    use std::fmt::Write as _;
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// `text` as a JSON string.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    out
}

// The text was checked by `Reader::string`, so an escape that does not decode cannot occur; it
// would come out as U+FFFD.
pub(super) fn unescape(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut units: Vec<u16> = Vec::new();
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            flush(&mut out, &mut units);
            out.push(c);
            continue;
        }
        let plain = match rest.next() {
            Some('u') => {
                let unit =
                    rest.by_ref().take(4).fold(0, |n, d| n * 16 + d.to_digit(16).unwrap_or(0));
                units.push(u16::try_from(unit).unwrap_or(0xfffd));
                continue;
            }
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(other) => other,
            None => break,
        };
        flush(&mut out, &mut units);
        out.push(plain);
    }
    flush(&mut out, &mut units);
    out
}

fn flush(out: &mut String, units: &mut Vec<u16>) {
    if !units.is_empty() {
        out.extend(char::decode_utf16(units.drain(..)).map(|c| c.unwrap_or('\u{fffd}')));
    }
}
