//! Arguments as people read them: the bytes that would be sent, with line breaks between them,
//! what cannot be seen spelled out, what is long folded, and what is secret hidden.

use crate::audit::is_hidden;
use portcullis_policy::json::{JsonError, JsonLimits, Kind, Reader, quote};
use portcullis_policy::secret::{MASK, Secrets};

/// Texts longer than this are folded, in characters.
const TEXT_CHARS_MAX: usize = 600;
/// What is seen of a folded text, in characters.
const HEAD_CHARS: usize = 240;
/// Lines after these are folded.
const LINES_MAX: usize = 80;
/// Deepest nesting that is put on lines of its own.
const INDENT: usize = 2;

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// What it is, for its look: `key`, `text`, `number`, `word`, `mark`, `hidden` or nothing.
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// More of it that is folded.
    pub(super) rest: Vec<Piece>,
    /// How many characters these are.
    pub(super) more: usize,
}

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) pieces: Vec<Piece>,
}

/// Arguments on lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sheet {
    pub(super) lines: Vec<Line>,
    /// Those that are folded.
    pub(super) folded: Vec<Line>,
    /// How many secret values are hidden.
    pub(super) hidden: usize,
}

impl Piece {
    fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), rest: Vec::new(), more: 0 }
    }
}

/// `arguments`, which are in canonical form, on lines.
///
/// # Errors
/// [`JsonError`] if they are no JSON.
pub(super) fn sheet(arguments: &str, secrets: &Secrets) -> Result<Sheet, JsonError> {
    let mut writer = Writer { secrets, path: Vec::new(), lines: vec![Line::default()], hidden: 0 };
    let mut reader = Reader::new(arguments.as_bytes(), JsonLimits::default())?;
    writer.value(&mut reader)?;
    reader.end()?;
    let Writer { mut lines, hidden, .. } = writer;
    let folded = if lines.len() > LINES_MAX + 5 { lines.split_off(LINES_MAX) } else { Vec::new() };
    Ok(Sheet { lines, folded, hidden })
}

/// `arguments` on lines, as text to be edited: nothing hidden, and nothing changed but white space
/// and how characters are written.
///
/// # Errors
/// [`JsonError`] if they are no JSON.
pub(super) fn editable(arguments: &str) -> Result<String, JsonError> {
    let none = Secrets::new(&[]);
    let mut writer =
        Writer { secrets: &none, path: Vec::new(), lines: vec![Line::default()], hidden: 0 };
    let mut reader = Reader::new(arguments.as_bytes(), JsonLimits::default())?;
    writer.value(&mut reader)?;
    let line = |line: &Line| line.pieces.iter().map(Piece::whole).collect::<String>();
    // What cannot be seen is spelled out here as well; as JSON it is the same.
    Ok(crate::plain::json(&writer.lines.iter().map(line).collect::<Vec<_>>().join("\n")))
}

/// One line of the beginning of `arguments`.
pub(super) fn glance(arguments: &str, secrets: &Secrets, chars: usize) -> String {
    let masked = secrets.mask(arguments, JsonLimits::default()).unwrap_or_default();
    let mut shown = String::new();
    for (count, c) in masked.chars().enumerate() {
        if count == chars {
            shown.push('…');
            break;
        }
        match is_hidden(c) {
            true => shown.push_str(&spelled(c)),
            false => shown.push(c),
        }
    }
    shown
}

/// A text with what cannot be seen spelled out, and folded if it is long. `raw` is as JSON has
/// it, or any other text.
pub(super) fn pieces(kind: &'static str, raw: &str) -> Vec<Piece> {
    let count = raw.chars().count();
    if count <= TEXT_CHARS_MAX {
        return spelled_out(kind, raw);
    }
    let at = raw.char_indices().nth(HEAD_CHARS).map_or(raw.len(), |(at, _)| at);
    let (head, rest) = raw.split_at(at);
    let mut pieces = spelled_out(kind, head);
    let fold =
        Piece { rest: spelled_out(kind, rest), more: count - HEAD_CHARS, ..Piece::new("", "") };
    pieces.push(fold);
    pieces
}

fn spelled_out(kind: &'static str, raw: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = raw.chars().peekable();
    let mark = |plain: &mut String, pieces: &mut Vec<Piece>, kind_of, text: String| {
        if !plain.is_empty() {
            pieces.push(Piece::new(kind, std::mem::take(plain)));
        }
        pieces.push(Piece::new(kind_of, text));
    };
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.peek() == Some(&'n') => {
                rest.next();
                mark(&mut plain, &mut pieces, "mark line", "\\n".to_owned());
            }
            '\\' => {
                let mut text = String::from('\\');
                text.extend(rest.next());
                if text == "\\u" {
                    text.extend(rest.by_ref().take(4));
                }
                mark(&mut plain, &mut pieces, "mark", text);
            }
            c if is_hidden(c) => mark(&mut plain, &mut pieces, "mark", spelled(c)),
            c => plain.push(c),
        }
    }
    if !plain.is_empty() {
        pieces.push(Piece::new(kind, plain));
    }
    pieces
}

// As JSON would write it.
fn spelled(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

impl Piece {
    fn whole(&self) -> String {
        let rest = self.rest.iter().map(Self::whole);
        std::iter::once(self.text.clone()).chain(rest).collect()
    }
}

struct Writer<'a> {
    secrets: &'a Secrets,
    path: Vec<String>,
    lines: Vec<Line>,
    hidden: usize,
}

impl Writer<'_> {
    fn put(&mut self, piece: Piece) {
        if let Some(line) = self.lines.last_mut() {
            line.pieces.push(piece);
        }
    }

    fn mark(&mut self, text: &str) {
        self.put(Piece::new("", text));
    }

    fn line(&mut self) {
        self.lines.push(Line::default());
        let indent = " ".repeat(self.path.len() * INDENT);
        self.mark(&indent);
    }

    fn value(&mut self, reader: &mut Reader<'_>) -> Result<(), JsonError> {
        if self.secrets.hides(&self.path) {
            reader.value()?;
            self.hidden += 1;
            self.put(Piece::new("hidden", MASK));
            return Ok(());
        }
        let kind = match reader.peek()? {
            Kind::Object => return self.object(reader),
            Kind::Array => return self.array(reader),
            Kind::String => "text",
            Kind::Number => "number",
            Kind::Bool | Kind::Null => "word",
        };
        let raw = reader.value()?;
        for piece in pieces(kind, raw) {
            self.put(piece);
        }
        Ok(())
    }

    fn object(&mut self, reader: &mut Reader<'_>) -> Result<(), JsonError> {
        self.mark("{");
        let mut first = true;
        reader.object(|reader, name| {
            if !std::mem::take(&mut first) {
                self.mark(",");
            }
            self.path.push(name.to_string());
            self.line();
            for piece in pieces("key", &quote(name)) {
                self.put(piece);
            }
            self.mark(": ");
            let written = self.value(reader);
            self.path.pop();
            written
        })?;
        if !first {
            self.line();
        }
        self.mark("}");
        Ok(())
    }

    fn array(&mut self, reader: &mut Reader<'_>) -> Result<(), JsonError> {
        self.mark("[");
        let mut place = 0_usize;
        reader.array(|reader| {
            if place > 0 {
                self.mark(",");
            }
            self.path.push(place.to_string());
            place += 1;
            self.line();
            let written = self.value(reader);
            self.path.pop();
            written
        })?;
        if place > 0 {
            self.line();
        }
        self.mark("]");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::canonical::canonical;

    fn text(sheet: &Sheet) -> String {
        let lines = sheet.lines.iter().chain(&sheet.folded);
        let line = |line: &Line| line.pieces.iter().map(Piece::whole).collect::<String>();
        lines.map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn nothing_but_white_space_is_added() {
        let arguments = r#"{"a":{"b":[1,2.50,[],{}],"c":null},"d":"x\ny","e":{}}"#;
        let shown = text(&sheet(arguments, &Secrets::new(&[])).unwrap());
        assert!(shown.contains("\n    \"b\": [\n      1,\n      2.50,\n"), "{shown}");
        assert_eq!(canonical(shown.as_bytes(), JsonLimits::default()).unwrap(), arguments);
        assert_eq!(editable(arguments).unwrap(), shown);
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_and_marked() {
        let sheet = sheet("{\"to\u{200b}\":\"a\u{202e}b\\u0007\\n\"}", &Secrets::new(&[])).unwrap();
        let marks = sheet.lines.iter().flat_map(|line| &line.pieces);
        let marks: Vec<_> =
            marks.filter(|p| p.kind.starts_with("mark")).map(|p| &*p.text).collect();
        assert_eq!(marks, ["\\u200b", "\\u202e", "\\u0007", "\\n"]);
    }

    #[test]
    fn long_texts_and_many_lines_are_folded_and_counted() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1_000));
        let folded = sheet(&long, &Secrets::new(&[])).unwrap();
        let fold = folded.lines[1].pieces.iter().find(|piece| piece.more > 0).unwrap();
        assert_eq!(fold.more, 1_002 - HEAD_CHARS);
        assert_eq!(editable(&long).unwrap().replace(['\n', ' '], ""), long);
        let many = format!("[{}0]", "0,".repeat(200));
        let folded = sheet(&many, &Secrets::new(&[])).unwrap();
        assert_eq!((folded.lines.len(), folded.folded.len()), (LINES_MAX, 203 - LINES_MAX));
    }

    #[test]
    fn secrets_are_hidden_and_counted() {
        let secrets = Secrets::new(&["password".to_owned()]);
        let arguments = r#"{"password":{"a":1},"user":"ann"}"#;
        let sheet = sheet(arguments, &secrets).unwrap();
        assert_eq!(sheet.hidden, 1);
        assert!(!text(&sheet).contains('1'));
        assert_eq!(glance(arguments, &secrets, 20), "{\"password\":\"••••••\"…");
    }
}
