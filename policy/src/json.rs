//! Strict JSON: one scan over the bytes, and nothing understood twice.
//!
//! The gateway judges, shows, digests and forwards the same bytes, so it needs what no crate
//! gives at once: slices of the source, duplicate members refused at any depth (compared as
//! decoded strings), and caps on depth, members and numbers, all in one pass without building
//! a tree. Numbers are never converted.

mod fault;
mod text;

use std::borrow::Cow;
use std::collections::BTreeSet;
use text::unescape;

pub use fault::{JsonError, JsonFault, JsonLimits};
pub use text::{decode, quote, write_string};

/// The type of a value, told by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// The kind of a value that [`Reader::value`] returned.
#[must_use]
pub fn kind_of(raw: &str) -> Kind {
    match raw.bytes().next() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::String,
        Some(b't' | b'f') => Kind::Bool,
        Some(b'n') | None => Kind::Null,
        Some(_) => Kind::Number,
    }
}

/// Objects up to this size find duplicates by looking at each name; larger ones keep a set.
const LINEAR_NAMES_MAX: usize = 16;

/// Reads one JSON text front to back.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    items: usize,
    limits: JsonLimits,
    // Names of the objects that are open, innermost last; one allocation for all of them.
    names: Vec<Cow<'a, str>>,
}

impl<'a> Reader<'a> {
    /// Starts reading `bytes`.
    ///
    /// # Errors
    /// [`JsonFault::Utf8`] if they are not UTF-8.
    pub fn new(bytes: &'a [u8], limits: JsonLimits) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|e| JsonError { fault: JsonFault::Utf8, at: e.valid_up_to() })?;
        Ok(Self { text, bytes, at: 0, depth: 0, items: 0, limits, names: Vec::new() })
    }

    /// An error at the current place, for callers that refuse what they read.
    #[must_use]
    pub fn refuse(&self, fault: JsonFault) -> JsonError {
        JsonError { fault, at: self.at }
    }

    /// The kind of the next value, without reading it.
    ///
    /// # Errors
    /// [`JsonFault::End`] or [`JsonFault::Character`] if no value starts here.
    pub fn peek(&mut self) -> Result<Kind, JsonError> {
        self.blank();
        match self.bytes.get(self.at) {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(_) => Err(self.refuse(JsonFault::Character)),
            None => Err(self.refuse(JsonFault::End)),
        }
    }

    /// Checks and skips the next value; returns its exact source text.
    ///
    /// # Errors
    /// Any [`JsonError`].
    pub fn value(&mut self) -> Result<&'a str, JsonError> {
        match self.peek()? {
            Kind::Object => self.object(|reader, _| reader.value().map(drop)),
            Kind::Array => self.array(|reader| reader.value().map(drop)),
            Kind::String => self.string().map(|(raw, _)| raw),
            Kind::Number => self.number(),
            Kind::Bool | Kind::Null => self.literal(),
        }
    }

    /// Reads an object. `member` gets each decoded name and must read exactly one value.
    ///
    /// # Errors
    /// Any [`JsonError`], also [`JsonFault::Duplicate`] and what `member` returns.
    pub fn object<F>(&mut self, mut member: F) -> Result<&'a str, JsonError>
    where
        F: FnMut(&mut Self, &Cow<'a, str>) -> Result<(), JsonError>,
    {
        let start = self.enter(b'{')?;
        let base = self.names.len();
        let mut many: BTreeSet<Cow<'a, str>> = BTreeSet::new();
        let mut more = !self.close(b'}')?;
        while more {
            self.count()?;
            let name = self.name(base, &mut many)?;
            self.expect(b':')?;
            member(self, &name)?;
            more = self.more(b'}')?;
        }
        self.names.truncate(base);
        self.leave(start)
    }

    /// Reads an array. `element` must read exactly one value each time.
    ///
    /// # Errors
    /// Any [`JsonError`], also what `element` returns.
    pub fn array<F>(&mut self, mut element: F) -> Result<&'a str, JsonError>
    where
        F: FnMut(&mut Self) -> Result<(), JsonError>,
    {
        let start = self.enter(b'[')?;
        let mut more = !self.close(b']')?;
        while more {
            self.count()?;
            element(self)?;
            more = self.more(b']')?;
        }
        self.leave(start)
    }

    /// Reads a string; returns its source text with quotes, and its decoded value.
    ///
    /// # Errors
    /// Any [`JsonError`]; [`JsonFault::Type`] if the next value is no string.
    pub fn string(&mut self) -> Result<(&'a str, Cow<'a, str>), JsonError> {
        if self.peek()? != Kind::String {
            return Err(self.refuse(JsonFault::Type));
        }
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(0..=0x1f) => return Err(self.refuse(JsonFault::Control)),
                Some(_) => self.at += 1,
                None => return Err(self.refuse(JsonFault::End)),
            }
        }
        self.at += 1;
        let raw = self.slice(start, self.at)?;
        let inner = self.slice(start + 1, self.at - 1)?;
        let decoded = if escaped { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) };
        Ok((raw, decoded))
    }

    /// Ends the reading: nothing but white space may follow.
    ///
    /// # Errors
    /// [`JsonFault::Trailing`] if something does.
    pub fn end(mut self) -> Result<(), JsonError> {
        self.blank();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.refuse(JsonFault::Trailing)) }
    }

    fn name(
        &mut self,
        base: usize,
        many: &mut BTreeSet<Cow<'a, str>>,
    ) -> Result<Cow<'a, str>, JsonError> {
        if self.peek()? != Kind::String {
            return Err(self.refuse(JsonFault::Character));
        }
        let (_, name) = self.string()?;
        let seen = self.names.get(base..).unwrap_or_default();
        let fresh = if seen.len() < LINEAR_NAMES_MAX {
            let fresh = !seen.contains(&name);
            self.names.push(name.clone());
            fresh
        } else {
            if many.is_empty() {
                many.extend(seen.iter().cloned());
            }
            many.insert(name.clone())
        };
        if fresh { Ok(name) } else { Err(self.refuse(JsonFault::Duplicate)) }
    }

    fn enter(&mut self, open: u8) -> Result<usize, JsonError> {
        self.blank();
        if self.bytes.get(self.at) != Some(&open) {
            return Err(self.refuse(JsonFault::Type));
        }
        if self.depth == self.limits.depth_max {
            return Err(self.refuse(JsonFault::Depth));
        }
        self.depth += 1;
        self.at += 1;
        Ok(self.at - 1)
    }

    fn leave(&mut self, start: usize) -> Result<&'a str, JsonError> {
        self.depth -= 1;
        self.slice(start, self.at)
    }

    fn close(&mut self, close: u8) -> Result<bool, JsonError> {
        self.blank();
        match self.bytes.get(self.at) {
            Some(&byte) if byte == close => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Ok(false),
            None => Err(self.refuse(JsonFault::End)),
        }
    }

    fn more(&mut self, close: u8) -> Result<bool, JsonError> {
        if self.close(close)? {
            return Ok(false);
        }
        self.expect(b',')?;
        Ok(true)
    }

    fn count(&mut self) -> Result<(), JsonError> {
        self.items += 1;
        if self.items > self.limits.items_max {
            return Err(self.refuse(JsonFault::Items));
        }
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        self.blank();
        match self.bytes.get(self.at) {
            Some(&found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.refuse(JsonFault::Character)),
            None => Err(self.refuse(JsonFault::End)),
        }
    }

    fn blank(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn literal(&mut self) -> Result<&'a str, JsonError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = [&b"true"[..], b"false", b"null"]
            .iter()
            .find(|word| rest.starts_with(word))
            .map(|word| word.len())
            .ok_or_else(|| self.refuse(JsonFault::Character))?;
        self.at += length;
        self.slice(self.at - length, self.at)
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        self.take(|b| b == b'-', 1);
        let zero = self.bytes.get(self.at) == Some(&b'0');
        let whole = self.take(|b| b.is_ascii_digit(), usize::MAX);
        let mut well = whole > 0 && !(zero && whole > 1);
        if self.take(|b| b == b'.', 1) == 1 {
            well &= self.take(|b| b.is_ascii_digit(), usize::MAX) > 0;
        }
        if self.take(|b| matches!(b, b'e' | b'E'), 1) == 1 {
            self.take(|b| matches!(b, b'+' | b'-'), 1);
            well &= self.take(|b| b.is_ascii_digit(), usize::MAX) > 0;
        }
        if !well || self.at - start > self.limits.number_bytes_max {
            return Err(JsonError { fault: JsonFault::Number, at: start });
        }
        self.slice(start, self.at)
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool, most: usize) -> usize {
        let start = self.at;
        while self.at - start < most && self.bytes.get(self.at).is_some_and(|&b| wanted(b)) {
            self.at += 1;
        }
        self.at - start
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => self.unicode_escape(),
            Some(_) => Err(self.refuse(JsonFault::Escape)),
            None => Err(self.refuse(JsonFault::End)),
        }
    }

    fn unicode_escape(&mut self) -> Result<(), JsonError> {
        let first = hex4(self.bytes, self.at + 2).ok_or_else(|| self.refuse(JsonFault::Escape))?;
        let wide = match first {
            0xd800..=0xdbff => {
                let marked = self.bytes.get(self.at + 6..self.at + 8) == Some(b"\\u");
                let low = hex4(self.bytes, self.at + 8).unwrap_or(0);
                if !marked || !(0xdc00..=0xdfff).contains(&low) {
                    return Err(self.refuse(JsonFault::Escape));
                }
                true
            }
            0xdc00..=0xdfff => return Err(self.refuse(JsonFault::Escape)),
            _ => false,
        };
        self.at += if wide { 12 } else { 6 };
        Ok(())
    }

    fn slice(&self, from: usize, to: usize) -> Result<&'a str, JsonError> {
        self.text.get(from..to).ok_or_else(|| self.refuse(JsonFault::Character))
    }
}

/// Checks that `bytes` are exactly one JSON value within `limits`; returns it without the
/// white space around it.
///
/// # Errors
/// Any [`JsonError`].
pub fn check(bytes: &[u8], limits: JsonLimits) -> Result<&str, JsonError> {
    let mut reader = Reader::new(bytes, limits)?;
    let value = reader.value()?;
    reader.end()?;
    Ok(value)
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 4)?;
    digits.iter().try_fold(0, |sum, &b| Some(sum * 16 + char::from(b).to_digit(16)?))
}
