//! `tokens.yaml`: which agent a token belongs to. It holds hashes, never a token.

use super::load::only;
use super::setting::{SHA256_HINT, sha256};
use super::{ConfigError, accept, files, wire};
use portcullis_policy::diagnostic::Diagnostic;
use portcullis_policy::name::AgentName;
use portcullis_policy::source::{Document, SourceFile, documents, parse};
use std::path::Path;

/// One agent token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// Whose it is.
    pub agent: AgentName,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// When it ends, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<i64>,
}

/// Reads the token file.
///
/// # Errors
/// [`ConfigError`] with every finding, if the file cannot be read or is not understood.
pub fn tokens(path: &Path) -> Result<Vec<TokenEntry>, ConfigError> {
    let text = files::read(path)?;
    let file = SourceFile { name: path.display().to_string().into(), text: &text };
    let mut found = Vec::new();
    let documents = documents(&file, &mut found);
    let Some(document) = only(&file, &documents, &mut found) else {
        return Err(ConfigError::Refused(found));
    };
    let Some(wire) = parse::<wire::Tokens>(document, &mut found) else {
        return Err(ConfigError::Refused(found));
    };
    let mut tokens: Vec<TokenEntry> = Vec::new();
    for entry in &wire.agents {
        let Some(token) = token(document, entry, &mut found) else { continue };
        if tokens.iter().any(|other| other.sha256 == token.sha256) {
            let text = "this token stands twice; a token belongs to one agent";
            found.push(Diagnostic::error("duplicate_value", &document.place(&entry.sha256), text));
        }
        tokens.push(token);
    }
    accept(tokens, found).map(|(tokens, _)| tokens)
}

fn token(
    document: &Document<'_>,
    entry: &wire::Token,
    found: &mut Vec<Diagnostic>,
) -> Option<TokenEntry> {
    let agent = AgentName::new(&entry.agent.value).map_err(|error| {
        found.push(Diagnostic::error("bad_name", &document.place(&entry.agent), error.to_string()));
    });
    let hash = sha256(&entry.sha256.value);
    if hash.is_none() {
        found.push(Diagnostic::error("bad_value", &document.place(&entry.sha256), SHA256_HINT));
    }
    let mut expires_ms = None;
    if let Some(text) = &entry.expires {
        expires_ms = rfc3339_ms(&text.value);
        if expires_ms.is_none() {
            let message = format!(
                "`expires` is `{}`; write a time such as `2027-01-31T00:00:00Z`",
                text.value.escape_debug()
            );
            found.push(Diagnostic::error("bad_value", &document.place(text), message));
            return None;
        }
    }
    Some(TokenEntry { agent: agent.ok()?, sha256: hash?, expires_ms })
}

/// A time as RFC 3339 writes it, in milliseconds since 1970. A leap second counts as the next.
pub(crate) fn rfc3339_ms(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't'])?;
    let (clock, offset_minutes) = split_zone(rest)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = fields(clock, ':', [2, 2, 2])?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ms: String = fraction.chars().chain("00".chars()).take(3).collect();
    let seconds = (days_since_1970(year, month, day) * 24 + hour) * 3_600 + minute * 60 + second;
    Some((seconds - offset_minutes * 60) * 1_000 + ms.parse::<i64>().ok()?)
}

/// The clock, and the minutes by which it is ahead of UTC.
fn split_zone(rest: &str) -> Option<(&str, i64)> {
    if let Some(clock) = rest.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let (clock, zone) = rest.split_at_checked(rest.len().checked_sub(6)?)?;
    let (sign, zone) = match zone.strip_prefix('+') {
        Some(zone) => (1, zone),
        None => (-1, zone.strip_prefix('-')?),
    };
    let [hours, minutes] = fields(zone, ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some((clock, sign * (hours * 60 + minutes)))
}

/// Decimal fields of fixed width.
fn fields<const N: usize>(text: &str, between: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut values = [0; N];
    for (value, width) in values.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *value = part.parse().ok()?;
    }
    parts.next().is_none().then_some(values)
}

/// Days of the Gregorian calendar, counted in years that start in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_of_years =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    days_of_years + (153 * month + 2) / 5 + day - 719_469
}
