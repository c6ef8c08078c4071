//! One audit record as one line of JSON.
//!
//! Whatever comes from outside is escaped so that the line can neither be broken nor look like
//! another one, on a terminal as little as in a parser.

use super::time::write_rfc3339;
use std::io::Write as _;
use std::time::SystemTime;

/// Longest text in a record, in bytes; a longer one is cut and its length is written beside it.
pub const TEXT_BYTES_MAX: usize = 1024;

/// The line under construction; the buffer is used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Line {
    bytes: Vec<u8>,
}

impl Line {
    pub(super) fn start(&mut self, seq: u64, kind: &'static str) {
        self.bytes.clear();
        self.bytes.extend_from_slice(b"{\"time\":\"");
        write_rfc3339(&mut self.bytes, SystemTime::now());
        self.bytes.push(b'"');
        self.number("seq", seq);
        self.text("kind", kind);
    }

    /// A text from anywhere.
    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        let shown = cut(value);
        self.key(key);
        self.bytes.push(b'"');
        escape(&mut self.bytes, shown);
        self.bytes.push(b'"');
        if shown.len() < value.len() {
            // Writing into a Vec cannot fail.
            let _ = write!(self.bytes, ",\"{key}_bytes\":{}", value.len());
        }
    }

    /// A text that may be absent; then its key is absent too.
    pub(super) fn maybe(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        let _ = write!(self.bytes, "{value}");
    }

    pub(super) fn end(&mut self) -> &[u8] {
        self.bytes.extend_from_slice(b"}\n");
        &self.bytes
    }

    fn key(&mut self, key: &'static str) {
        let _ = write!(self.bytes, ",\"{key}\":");
    }
}

/// True for a character that is not seen, or that changes how others are seen: controls, bidi
/// and zero-width marks, fillers, tags, private and unassigned ones.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let filler = matches!(
        c,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    // Behind another character, only what cannot be printed is escaped; marks that combine are not.
    filler || { ['a', c].iter().collect::<String>().escape_debug().count() > 2 }
}

fn cut(value: &str) -> &str {
    if value.len() <= TEXT_BYTES_MAX {
        return value;
    }
    let end = value.floor_char_boundary(TEXT_BYTES_MAX);
    value.get(..end).unwrap_or_default()
}

fn escape(out: &mut Vec<u8>, text: &str) {
    let plain = |b: u8| (b' '..=b'~').contains(&b) && b != b'"' && b != b'\\';
    if text.bytes().all(plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            c if is_hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped_and_the_rest_stays() {
        for c in [
            '\n',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{200b}',
            '\u{202e}',
            '\u{2066}',
            '\u{feff}',
            '\u{e0041}',
            '\u{fe0f}',
            '\u{3164}',
            '\u{2028}',
            '\u{a0}',
            '\u{e000}',
        ] {
            assert!(is_hidden(c), "{c:?}");
        }
        for c in [' ', 'a', '~', 'é', 'я', '漢', '\u{301}', '\u{93e}', '€', '🦀'] {
            assert!(!is_hidden(c), "{c:?}");
        }
    }

    #[test]
    fn escapes_read_back_as_the_same_text() {
        let text = "a\"b\\c\nd\u{1b}[31m\u{202e}\u{e0041}é🦀";
        let mut out = Vec::new();
        out.push(b'"');
        escape(&mut out, text);
        out.push(b'"');
        assert!(out.iter().all(|b| *b >= b' ' && *b != 0x7f));
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        let mut line = Line::default();
        line.start(1, "call");
        line.text("asked", &"é".repeat(1000));
        let value: serde_json::Value = serde_json::from_slice(line.end()).unwrap();
        assert_eq!(value["asked"].as_str().unwrap().len(), TEXT_BYTES_MAX);
        assert_eq!(value["asked_bytes"], 2000);
    }
}
