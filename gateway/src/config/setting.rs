//! One setting at a time: the environment first, then the file; and what its text must be.

use super::wire::Text;
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::source::{Document, did_you_mean, duration};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The start of every environment twin.
const PREFIX: &str = "PORTCULLIS_";

/// Variables that other commands read, which may be set in the same shell.
const OF_COMMANDS: [&str; 5] = [
    "PORTCULLIS_ADMIN_URL",
    "PORTCULLIS_ADMIN_TOKEN",
    "PORTCULLIS_CONFIG",
    "PORTCULLIS_LOG",
    "PORTCULLIS_LOG_FORMAT",
];

/// Reads settings and keeps what was found wrong with them.
pub(super) struct Settings<'a> {
    /// What locations call the file, be there one or not.
    pub(super) name: Arc<str>,
    /// The file, if there is one.
    pub(super) document: Option<&'a Document<'a>>,
    pub(super) env: &'a BTreeMap<String, String>,
    /// The variables that some setting asked for.
    pub(super) known: Vec<String>,
    pub(super) found: Vec<Diagnostic>,
}

/// A text and where it comes from.
pub(super) struct Written {
    pub(super) text: String,
    pub(super) at: Location,
}

impl Settings<'_> {
    pub(super) fn place<T>(&self, text: &Spanned<T>) -> Location {
        self.document.map_or_else(|| self.whole(), |document| document.place(text))
    }

    /// The file as a whole, for what it does not say.
    pub(super) fn whole(&self) -> Location {
        Location::new(&self.name, 0, 0)
    }

    pub(super) fn error(&mut self, code: &'static str, at: &Location, text: impl Into<String>) {
        self.found.push(Diagnostic::error(code, at, text));
    }

    /// The text of the setting `key`, if the environment or the file has one.
    pub(super) fn text(&mut self, key: &str, file: Option<&Text>) -> Option<Written> {
        let variable = twin(key);
        let value = self.env.get(&variable);
        let written = match (value, file) {
            (Some(value), _) => Some(Written {
                text: value.clone(),
                at: Location::new(&variable.as_str().into(), 0, 0),
            }),
            (None, Some(text)) => Some(Written { text: text.value.clone(), at: self.place(text) }),
            (None, None) => None,
        };
        self.known.push(variable);
        let written = written?;
        if written.text.is_empty() {
            self.error(
                "missing_value",
                &written.at,
                format!("`{key}` is empty; write a value or leave it out"),
            );
            return None;
        }
        Some(written)
    }

    /// The value of a setting, as `read` understands it, or the one that holds if it is not set.
    pub(super) fn value<T>(
        &mut self,
        key: &str,
        file: Option<&Text>,
        usual: T,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(written) = self.text(key, file) else { return usual };
        read(&written.text).unwrap_or_else(|message| {
            self.error("bad_value", &written.at, format!("`{key}`: {message}"));
            usual
        })
    }

    /// Warns of variables that look like a setting and are none. Others may belong to anyone:
    /// Kubernetes sets some for a service called `portcullis`.
    pub(super) fn warn_of_near_misses(&mut self) {
        for variable in self.env.keys().filter(|name| name.starts_with(PREFIX)) {
            if self.known.contains(variable) || OF_COMMANDS.contains(&variable.as_str()) {
                continue;
            }
            let hint = did_you_mean(variable, self.known.iter().map(String::as_str));
            if !hint.is_empty() {
                let text = format!("`{variable}` is no setting and has no effect{hint}");
                let at = Location::new(&variable.as_str().into(), 0, 0);
                self.found.push(Diagnostic::warning("unknown_variable", &at, text));
            }
        }
    }
}

/// The environment twin of a key: its words in upper case, joined by `_`, after `PORTCULLIS_`.
/// `limits.requestBytes` is `PORTCULLIS_LIMITS_REQUEST_BYTES`.
pub(super) fn twin(key: &str) -> String {
    let mut name = PREFIX.to_owned();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(if letter == '.' { '_' } else { letter.to_ascii_uppercase() });
    }
    name
}

pub(super) fn path(s: &mut Settings<'_>, key: &str, text: Option<&Text>, usual: &str) -> PathBuf {
    s.value(key, text, PathBuf::from(usual), |text| match text.contains('\0') {
        true => Err("a path has no NUL character".to_owned()),
        false => Ok(PathBuf::from(text)),
    })
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("`{}` is neither `true` nor `false`", text.escape_debug())),
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{}` is no address and port, such as `127.0.0.1:7777`", text.escape_debug())
    })
}

pub(super) fn time(
    within: RangeInclusive<Duration>,
) -> impl FnOnce(&str) -> Result<Duration, String> {
    move |text| duration(text, within)
}

pub(super) fn count(within: RangeInclusive<u32>) -> impl FnOnce(&str) -> Result<u32, String> {
    move |text| {
        whole(text).and_then(|n| u32::try_from(n).ok()).filter(|n| within.contains(n)).ok_or_else(
            || {
                let (least, most) = (within.start(), within.end());
                format!("`{}` is not a whole number from {least} to {most}", text.escape_debug())
            },
        )
    }
}

/// A number of bytes with its unit, such as `4MiB`.
pub(super) fn size(within: RangeInclusive<u64>) -> impl FnOnce(&str) -> Result<u64, String> {
    move |text| {
        let shown = text.escape_debug();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text.strip_prefix(digits).unwrap_or_default();
        let Some(amount) = whole(digits) else {
            return Err(format!("`{shown}` is no size; write a number and a unit, such as `4MiB`"));
        };
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!(
                "`{shown}` has no unit that is known; use `B`, `KiB`, `MiB` or `GiB`"
            ));
        };
        let bytes = amount.saturating_mul(*factor);
        if !within.contains(&bytes) {
            let (least, most) = (spell_size(*within.start()), spell_size(*within.end()));
            return Err(format!(
                "`{shown}` is out of range; write a size from `{least}` to `{most}`"
            ));
        }
        Ok(bytes)
    }
}

const UNITS: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// The shortest spelling of a size that [`size`] reads back.
pub(super) fn spell_size(bytes: u64) -> String {
    let whole = UNITS.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

/// Decimal digits without sign, leading zero or separator.
fn whole(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok()
}

/// A web address without path, as it is put before ours, without a slash at the end.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let shown = text.escape_debug();
    let wrong = || format!("`{shown}` is no address such as `https://gateway.example`");
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong());
    };
    let path = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    if !["http", "https"].contains(&scheme)
        || authority.host().is_empty()
        || authority.as_str().contains('@')
        || !["", "/"].contains(&path)
        || text.contains('#')
    {
        return Err(format!("{}, with no user, path, query or fragment", wrong()));
    }
    Ok(format!("{scheme}://{authority}"))
}

/// The 32 bytes of a SHA-256 in hex.
pub(super) fn sha256(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = std::str::from_utf8(digits).ok().and_then(|d| u8::from_str_radix(d, 16).ok())?;
    }
    Some(bytes)
}

/// What to do about a text that is no hash.
pub(super) const SHA256_HINT: &str =
    "`sha256` is the SHA-256 of the token, 64 hex digits: `printf %s TOKEN | sha256sum`";
