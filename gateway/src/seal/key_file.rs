//! The file with the sealing keys: made for the owner alone, read strictly, never shown.

use super::{KEY_ID_BYTES, Key, Ring};
use crate::audit::time::{parse_rfc3339, rfc3339};
use crate::identity::private_file::{self, PrivateFileError};
use aws_lc_rs::aead::{AES_256_GCM_SIV, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most keys in a file: the newest, and the one before it.
pub const KEYS_MAX: usize = 2;
/// Length of a key.
const KEY_BYTES: usize = 32;

/// Why a file with sealing keys is not used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be made, read or trusted.
    #[error("the sealing key: {0}")]
    Private(#[from] PrivateFileError),
    /// It is not what a key file is.
    #[error(
        "the sealing key: `{}` is not used: {reason}; restore it from a copy, or remove it and let \
         `portcullis keys rotate` make a new one, which ends all sessions",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; never a part of a key.
        reason: String,
    },
    /// The operating system gave no random bits.
    #[error("the sealing key: no random bits for a new one: {0}; try again later")]
    Random(String),
}

impl KeyFileError {
    /// True if there is no such file.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Private(PrivateFileError::Missing(_)))
    }
}

/// A key, as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLine {
    /// Its id, part of every value that it sealed.
    pub id: String,
    /// When it was made.
    pub created: SystemTime,
}

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The id of the key that seals from now on.
    pub made: String,
    /// The id of the key that still opens.
    pub kept: Option<String>,
    /// The id of the key that opens nothing any more.
    pub dropped: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    keys: Vec<WrittenKey>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    id: String,
    key: String,
    created: String,
}

/// The keys of a file without what is secret in them, the newest first.
///
/// # Errors
/// [`KeyFileError`] if it cannot be read, trusted or understood.
pub fn keys(path: &Path) -> Result<Vec<KeyLine>, KeyFileError> {
    let written = read(path)?;
    let line = |key: &WrittenKey| {
        Some(KeyLine { id: key.id.clone(), created: parse_rfc3339(&key.created)? })
    };
    Ok(written.keys.iter().filter_map(line).collect())
}

/// Puts a new key in front, keeps the newest of those before and drops any older one. The file is
/// made if it is not there, and replaced whole if it is.
///
/// # Errors
/// [`KeyFileError`] if it cannot be made, read, trusted or understood; it is unchanged then.
pub fn rotate(path: &Path, now: SystemTime) -> Result<Rotation, KeyFileError> {
    let former = match read(path) {
        Ok(written) => written.keys,
        Err(error) if error.is_missing() => Vec::new(),
        Err(error) => return Err(error),
    };
    let made = fresh(now, &former)?;
    let mut keys = vec![made];
    keys.extend(former);
    let dropped = keys.split_off(KEYS_MAX.min(keys.len())).pop().map(|key| key.id);
    let id = |at: usize| keys.get(at).map(|key| key.id.clone());
    let rotation = Rotation { made: id(0).unwrap_or_default(), kept: id(1), dropped };
    let text = serde_json::to_string_pretty(&Written { keys })
        .map_err(|error| malformed(path, format!("it cannot be written: {error}")))?;
    private_file::write(path, &format!("{text}\n"))?;
    Ok(rotation)
}

/// The keys of a file, ready for use.
pub(super) fn ring(path: &Path) -> Result<Ring, KeyFileError> {
    let mut keys = Vec::new();
    for written in read(path)?.keys {
        let secret = secret(&written.key).zip(id(&written.id));
        let key = secret.and_then(|(secret, id)| {
            let cipher = RandomizedNonceKey::new(&AES_256_GCM_SIV, &secret).ok()?;
            Some(Key { id, cipher })
        });
        keys.push(
            key.ok_or_else(|| malformed(path, format!("key `{}` cannot be used", written.id)))?,
        );
    }
    let mut keys = keys.into_iter();
    let newest = keys.next().ok_or_else(|| malformed(path, "it holds no key"))?;
    Ok(Ring { newest, former: keys.next() })
}

/// The id of a key, as it is written.
pub(super) fn spelled(id: [u8; KEY_ID_BYTES]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

fn read(path: &Path) -> Result<Written, KeyFileError> {
    let text = private_file::read(path)?;
    // The parser's own words could repeat a key.
    let written: Written = serde_json::from_str(&text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let reason = format!(
            "line {line}, column {column} is not as in \
             `{{\"keys\":[{{\"id\":\"8 hex digits\",\"key\":\"32 bytes in base64\",\"created\":\"2026-01-31T00:00:00Z\"}}]}}`"
        );
        malformed(path, reason)
    })?;
    check(&written).map_err(|reason| malformed(path, reason))?;
    Ok(written)
}

fn check(written: &Written) -> Result<(), String> {
    if written.keys.is_empty() || written.keys.len() > KEYS_MAX {
        let count = written.keys.len();
        return Err(format!("it holds {count} keys; there are one or {KEYS_MAX}"));
    }
    let mut newer: Option<(&str, SystemTime)> = None;
    for (at, key) in (1..).zip(&written.keys) {
        if id(&key.id).is_none() {
            return Err(format!("the `id` of key {at} is not 8 lower-case hex digits"));
        }
        if secret(&key.key).is_none() {
            return Err(format!("the `key` of key {at} is not {KEY_BYTES} bytes in base64"));
        }
        let Some(created) = parse_rfc3339(&key.created) else {
            return Err(format!("`created` of key {at} is no time such as `2026-01-31T00:00:00Z`"));
        };
        if newer.is_some_and(|(id, _)| id == key.id) {
            return Err("both keys have the same `id`".to_owned());
        }
        if newer.is_some_and(|(_, newest)| newest < created) {
            return Err("the newest key does not stand first".to_owned());
        }
        newer = Some((&key.id, created));
    }
    Ok(())
}

fn fresh(now: SystemTime, former: &[WrittenKey]) -> Result<WrittenKey, KeyFileError> {
    let random = |bytes: &mut [u8]| {
        getrandom::fill(bytes).map_err(|error| KeyFileError::Random(error.to_string()))
    };
    let (mut name, mut secret) = ([0; KEY_ID_BYTES], [0; KEY_BYTES]);
    random(&mut secret)?;
    loop {
        random(&mut name)?;
        if former.iter().all(|key| key.id != spelled(name)) {
            break;
        }
    }
    // A clock that was set back does not make the new key the older one.
    let newest = former.first().and_then(|key| parse_rfc3339(&key.created));
    let created = newest.map_or(now, |newest| newest.max(now));
    Ok(WrittenKey { id: spelled(name), key: STANDARD.encode(secret), created: rfc3339(created) })
}

fn id(text: &str) -> Option<[u8; KEY_ID_BYTES]> {
    let id = u32::from_str_radix(text, 16).ok()?.to_be_bytes();
    (spelled(id) == text).then_some(id)
}

fn secret(text: &str) -> Option<[u8; KEY_BYTES]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn malformed(path: &Path, reason: impl Into<String>) -> KeyFileError {
    KeyFileError::Malformed { path: path.to_owned(), reason: reason.into() }
}
