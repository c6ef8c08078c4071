//! Names of agents, servers and tools.
//!
//! A name keeps the spelling it was declared with and compares without ASCII case. Past the
//! wire no bare string names an agent, a server or a tool.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Longest name of any kind, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty or longer than [`NAME_BYTES_MAX`].
    #[error("a name has 1 to {NAME_BYTES_MAX} characters, `{0}` does not")]
    Length(String),
    /// The text holds a character outside the kind's alphabet.
    #[error("`{name}` is not a name: {alphabet}")]
    Alphabet {
        /// The text, escaped for display.
        name: String,
        /// Which characters are allowed, in words.
        alphabet: &'static str,
    },
    /// The name is kept for the gateway itself.
    #[error("`portcullis` is reserved for the gateway's own tools; choose another name")]
    Reserved,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $type(
            // INVARIANT: passed the check of its kind; the spelling is kept as declared.
            Arc<str>,
        );

        impl $type {
            /// Checks `text` and keeps its spelling.
            ///
            /// # Errors
            /// [`NameError`] if the text has a wrong length or character.
            pub fn new(text: &str) -> Result<Self, NameError> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// The spelling as declared.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.0.eq_ignore_ascii_case(&other.0)
            }
        }

        impl Eq for $type {}

        impl Hash for $type {
            fn hash<H: Hasher>(&self, state: &mut H) {
                for byte in self.0.bytes() {
                    state.write_u8(byte.to_ascii_lowercase());
                }
                state.write_u8(0xff);
            }
        }

        impl Ord for $type {
            fn cmp(&self, other: &Self) -> Ordering {
                fold(&self.0).cmp(fold(&other.0))
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// The name of an agent: `[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?`, no `__`, no `..`.
    AgentName,
    check_declared
);
name!(
    /// The name of a server, in the same alphabet as [`AgentName`]; `portcullis` is reserved.
    ServerName,
    check_server
);
name!(
    /// The name of a tool or prompt as its server registers it: `[A-Za-z0-9_./-]{1,128}`.
    ToolName,
    check_offered
);

/// The lower-case bytes of a name, for comparison.
pub(crate) fn fold(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.bytes().map(|byte| byte.to_ascii_lowercase())
}

fn check_server(text: &str) -> Result<(), NameError> {
    if text.eq_ignore_ascii_case("portcullis") {
        return Err(NameError::Reserved);
    }
    check_declared(text)
}

fn check_declared(text: &str) -> Result<(), NameError> {
    check_length(text)?;
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let shaped = text.bytes().all(inner) && edge(text.bytes().next()) && edge(text.bytes().last());
    if shaped && !text.contains("__") && !text.contains("..") {
        return Ok(());
    }
    Err(NameError::Alphabet {
        name: text.escape_debug().to_string(),
        alphabet: "letters, digits, `_`, `.` and `-`, a letter or digit at both ends, \
                   no `__` and no `..`",
    })
}

fn check_offered(text: &str) -> Result<(), NameError> {
    check_length(text)?;
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b)) {
        return Ok(());
    }
    Err(NameError::Alphabet {
        name: text.escape_debug().to_string(),
        alphabet: "letters, digits, `_`, `.`, `/` and `-`",
    })
}

fn check_length(text: &str) -> Result<(), NameError> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        let shown: String = text.chars().take(40).collect();
        return Err(NameError::Length(shown.escape_debug().to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_never_matters_but_the_spelling_is_kept() {
        let written = ToolName::new("WebFetch").unwrap();
        assert_eq!(written, ToolName::new("webfetch").unwrap());
        assert_eq!(written.as_str(), "WebFetch");
        assert_eq!(written.cmp(&ToolName::new("WEBFETCH").unwrap()), Ordering::Equal);
    }

    #[test]
    fn ambiguous_and_foreign_spellings_are_no_names() {
        for bad in ["", "a__b", "a..b", "-a", "a-", "ä", "a b", "a/b", "\u{212a}elvin", "."] {
            assert!(AgentName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(ServerName::new("Portcullis").unwrap_err(), NameError::Reserved);
        assert!(ToolName::new(&"x".repeat(129)).is_err());
        assert!(ToolName::new("a/b.c__d-e").is_ok());
    }
}
