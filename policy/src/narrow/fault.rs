//! Why a narrow was refused, in words for who starts the run.

use super::NARROW_BYTES_MAX;
use crate::decide::shown;
use crate::json::JsonFault;
use crate::name::NameError;

/// Why a narrow was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {kind}")]
pub struct NarrowFault {
    /// The place, such as `narrow.tools[0].allow[2]`.
    pub path: String,
    /// What is wrong there.
    pub kind: NarrowFaultKind,
}

/// The kinds of fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NarrowFaultKind {
    /// The whole text is too long.
    #[error("it has more than {NARROW_BYTES_MAX} bytes; use patterns")]
    TooLong,
    /// The text is not JSON.
    #[error("it is not JSON at byte {at}: {fault}; send one object with the key `tools`")]
    Json {
        /// What is wrong.
        fault: JsonFault,
        /// Offset of the fault in bytes.
        at: usize,
    },
    /// A value of another type than the key takes.
    #[error("it has the wrong type; write {wanted}")]
    Type {
        /// What the key takes, in words.
        wanted: &'static str,
    },
    /// A key that means nothing here.
    #[error("{} is not a key here; write {known}{hint}", shown(.key))]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that mean something, in words.
        known: &'static str,
        /// The key that was most likely meant, or nothing.
        hint: String,
    },
    /// A key twice in one object.
    #[error("the key {} stands twice; keep one", shown(.key))]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A key that must be there is not.
    #[error("`{key}` is missing; write {wanted}")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// What it takes, in words.
        wanted: &'static str,
    },
    /// A server's name is no name.
    #[error("{0}; write the name of a server of the agent")]
    Name(#[from] NameError),
    /// A pattern that is not accepted.
    #[error("{0}")]
    Pattern(String),
    /// A longer list than allowed.
    #[error("the list has more than {most} entries; {instead}")]
    TooMany {
        /// How many it may have.
        most: usize,
        /// What to do, in words.
        instead: &'static str,
    },
    /// A server twice.
    #[error("server `{server}` has an entry already, at `{first}`; merge the two")]
    DuplicateServer {
        /// The server, as the second entry spells it.
        server: String,
        /// Where the first entry stands.
        first: String,
    },
}
