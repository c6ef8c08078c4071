//! Values that the gateway hands out and later takes back: nobody else can read, change or make
//! one, and each opens only for whom, for what and as long as it was made.
//!
//! The cipher is AES-256-GCM-SIV (RFC 8452): very many values are sealed under one key with random
//! nonces of 96 bits, by several gateways that do not know of each other, and with it a nonce that
//! comes twice tells no more than whether two values are equal; with plain GCM it would give the
//! key of the authentication away. No key is derived for a request.
//!
//! What cannot be opened is `None`, whatever the reason: the sender learns nothing from it.

mod follow;
mod key_file;

pub use follow::LOOK_EVERY;
pub use key_file::{KEYS_MAX, KeyFileError, KeyLine, Rotation, keys, rotate};

use aws_lc_rs::aead::{Aad, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use follow::Stamp;
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Longest sealed value, as text. What would be longer is not sealed, and not looked into.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The first byte of every value; another layout gets another number.
const VERSION: u8 = 1;
/// Keeps what is authenticated here apart from anything else that may use the same key.
const LABEL: &[u8] = b"portcullis sealed value";
const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 12;
const EXPIRY_BYTES: usize = 8;
const TAG_BYTES: usize = 16;

/// What a value is for; one opens for no other purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A session of the legacy era.
    Session,
    /// Where the next page of a list begins.
    Cursor,
    /// The state of a request that takes several rounds.
    RequestState,
    /// A task.
    Task,
    /// Any other name for something that the gateway keeps.
    Handle,
}

impl Purpose {
    /// Part of the format: a number is never used for anything else.
    fn number(self) -> u8 {
        match self {
            Self::Session => 1,
            Self::Cursor => 2,
            Self::RequestState => 3,
            Self::Task => 4,
            Self::Handle => 5,
        }
    }
}

/// Whom a value is for, and at what: it opens for no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound<'a> {
    /// The credential, or the name of an admin.
    pub principal: &'a str,
    /// The endpoint, the list, the tool.
    pub target: &'a str,
}

/// Seals and opens. Clones share their keys, which may change while the gateway runs.
#[derive(Clone)]
pub struct Seal {
    shared: Arc<Shared>,
}

struct Shared {
    ring: RwLock<Ring>,
    epoch: AtomicU64,
    // The file as it was when it was last looked at.
    seen: Mutex<Option<Stamp>>,
}

/// The newest key, which seals, and the one before: both open.
struct Ring {
    newest: Key,
    former: Option<Key>,
}

struct Key {
    id: [u8; KEY_ID_BYTES],
    // The library wipes its copy when it is dropped.
    cipher: RandomizedNonceKey,
}

impl Seal {
    /// The keys of a file, which is made with a first key if it is not there.
    ///
    /// # Errors
    /// [`KeyFileError`] if it cannot be made, read, trusted or understood.
    pub fn from_file(path: &Path) -> Result<Self, KeyFileError> {
        match Self::from_existing(path) {
            Err(error) if error.is_missing() => {
                rotate(path, SystemTime::now())?;
                // Another gateway may have made it at the same moment: what the file holds counts.
                Self::from_existing(path)
            }
            read => read,
        }
    }

    /// The keys of a file that has to be there.
    ///
    /// # Errors
    /// [`KeyFileError`] if it is missing or cannot be read, trusted or understood.
    pub fn from_existing(path: &Path) -> Result<Self, KeyFileError> {
        let seen = Mutex::new(Stamp::of(path));
        let ring = RwLock::new(key_file::ring(path)?);
        Ok(Self { shared: Arc::new(Shared { ring, epoch: AtomicU64::new(0), seen }) })
    }

    /// `payload` as visible ASCII that opens until `expires_ms`, in milliseconds since 1970.
    ///
    /// A payload that does not fit into [`TEXT_BYTES_MAX`] gives an empty text, which opens for
    /// nobody, and a line in the log: callers bound what they seal.
    #[must_use]
    pub fn seal(
        &self,
        purpose: Purpose,
        bound: &Bound<'_>,
        payload: &[u8],
        expires_ms: u64,
    ) -> String {
        let ring = self.shared.ring.read();
        let text = sealed(&ring.newest, (purpose, bound), payload, expires_ms);
        text.unwrap_or_else(|| {
            tracing::error!(?purpose, bytes = payload.len(), "a value could not be sealed");
            String::new()
        })
    }

    /// The payload of a value that this or another gateway with the same key sealed for the same
    /// purpose, principal and target, and whose time is not over.
    #[must_use]
    pub fn open(
        &self,
        purpose: Purpose,
        bound: &Bound<'_>,
        text: &str,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (&[version], rest) = bytes.split_first_chunk::<1>()?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        if version != VERSION {
            return None;
        }
        let ring = self.shared.ring.read();
        let key = std::iter::once(&ring.newest).chain(&ring.former).find(|key| key.id == *id)?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(associated(purpose, bound, key.id));
        let plain = key.cipher.open_in_place(Nonce::from(nonce), aad, &mut sealed).ok()?;
        let (expires, payload) = plain.split_first_chunk::<EXPIRY_BYTES>()?;
        (now_ms < u64::from_be_bytes(*expires)).then(|| payload.to_vec())
    }

    /// Changes whenever the keys do. What was opened before may not open any more.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    fn replace(&self, ring: Ring) {
        *self.shared.ring.write() = ring;
        self.shared.epoch.fetch_add(1, Ordering::Release);
    }
}

fn sealed(
    key: &Key,
    (purpose, bound): (Purpose, &Bound<'_>),
    payload: &[u8],
    expires_ms: u64,
) -> Option<String> {
    let around = 1 + KEY_ID_BYTES + NONCE_BYTES + EXPIRY_BYTES + TAG_BYTES;
    // Four characters of text hold three bytes.
    if payload.len() > TEXT_BYTES_MAX / 4 * 3 - around {
        return None;
    }
    let mut inner = Vec::with_capacity(EXPIRY_BYTES + payload.len() + TAG_BYTES);
    inner.extend_from_slice(&expires_ms.to_be_bytes());
    inner.extend_from_slice(payload);
    let aad = Aad::from(associated(purpose, bound, key.id));
    let nonce = key.cipher.seal_in_place_append_tag(aad, &mut inner).ok()?;
    let mut bytes = Vec::with_capacity(around + payload.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&key.id);
    bytes.extend_from_slice(nonce.as_ref());
    bytes.extend_from_slice(&inner);
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// What is authenticated beside the content. Lengths stand before the texts, so that no two pairs
/// of principal and target give the same bytes.
fn associated(purpose: Purpose, bound: &Bound<'_>, key: [u8; KEY_ID_BYTES]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + bound.principal.len() + bound.target.len());
    bytes.extend_from_slice(LABEL);
    bytes.extend_from_slice(&[VERSION, purpose.number()]);
    bytes.extend_from_slice(&key);
    for text in [bound.principal, bound.target] {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.shared.ring.read();
        let ids: Vec<String> = std::iter::once(&ring.newest)
            .chain(&ring.former)
            .map(|key| key_file::spelled(key.id))
            .collect();
        f.debug_struct("Seal").field("keys", &ids).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
