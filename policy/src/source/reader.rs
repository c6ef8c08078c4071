//! Turns texts of a document into values, and notes what is wrong with them and where.

use super::document::Document;
use super::fault::list;
use super::nearest::did_you_mean;
use super::wire::Text;
use crate::diagnostic::{Diagnostic, Location};
use crate::name::NameError;
use serde_saphyr::Spanned;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A document while it is read, with what was found so far.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    document: &'a Document<'a>,
    pub(super) found: &'a mut Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(document: &'a Document<'a>, found: &'a mut Vec<Diagnostic>) -> Self {
        Self { document, found }
    }

    pub(super) fn place<T>(&self, value: &Spanned<T>) -> Location {
        self.document.place(value)
    }

    pub(super) fn error(&mut self, code: &'static str, at: &Location, text: impl Into<String>) {
        self.found.push(Diagnostic::error(code, at, text));
    }

    /// A name of some kind.
    pub(super) fn name<N>(
        &mut self,
        text: &Text,
        new: fn(&str) -> Result<N, NameError>,
    ) -> Option<N> {
        match new(&text.value) {
            Ok(name) => Some(name),
            Err(error) => {
                self.error("bad_name", &self.place(text), error.to_string());
                None
            }
        }
    }

    /// One word out of a few.
    pub(super) fn choice<T: Copy>(&mut self, text: &Text, words: &[(&str, T)]) -> Option<T> {
        let chosen = words.iter().find(|(word, _)| *word == text.value);
        if chosen.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let hint = did_you_mean(&text.value, known.iter().copied());
            let shown = text.value.escape_debug();
            let text_ = format!("`{shown}` is none of {}{hint}", list(&known));
            self.error("unknown_value", &self.place(text), text_);
        }
        chosen.map(|(_, value)| *value)
    }

    /// A time with its unit, such as `10m`.
    pub(super) fn duration(
        &mut self,
        text: &Text,
        within: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        match duration(&text.value, within) {
            Ok(duration) => Some(duration),
            Err(message) => {
                self.error("bad_duration", &self.place(text), message);
                None
            }
        }
    }

    /// A whole number.
    pub(super) fn count(&mut self, text: &Text, within: RangeInclusive<u32>) -> Option<u32> {
        let count = number(&text.value).and_then(|n| u32::try_from(n).ok());
        let count = count.filter(|count| within.contains(count));
        if count.is_none() {
            let message = format!(
                "`{}` is not a whole number from {} to {}",
                text.value.escape_debug(),
                within.start(),
                within.end()
            );
            self.error("bad_number", &self.place(text), message);
        }
        count
    }
}

/// A time with its unit, such as `10m`, or why the text is none.
///
/// # Errors
/// A message that says what to write.
pub fn duration(text: &str, within: RangeInclusive<Duration>) -> Result<Duration, String> {
    const UNITS: &[(&str, u64)] =
        &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let shown = text.escape_debug();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let Some(amount) = number(digits) else {
        return Err(format!(
            "`{shown}` is not a time; write a number and a unit, such as `30s` or `10m`"
        ));
    };
    if unit.is_empty() {
        return Err(format!(
            "`{shown}` has no unit; write `{shown}s` for seconds or `{shown}m` for minutes"
        ));
    }
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{unit}` is no unit of time; use `ms`, `s`, `m`, `h` or `d`"));
    };
    let time = Duration::from_millis(amount.saturating_mul(*factor));
    if !within.contains(&time) {
        let (least, most) = (spell(*within.start()), spell(*within.end()));
        return Err(format!("`{shown}` is out of range; write a time from `{least}` to `{most}`"));
    }
    Ok(time)
}

/// The shortest spelling of a time that [`duration`] reads back.
#[must_use]
pub fn spell(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let whole = units.into_iter().find(|(_, factor)| ms.is_multiple_of(*factor));
    if ms == 0 {
        return "0s".to_owned();
    }
    whole.map_or_else(|| format!("{ms}ms"), |(unit, factor)| format!("{}{unit}", ms / factor))
}

/// Decimal digits without sign, leading zero or separator.
pub(super) fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
}
