//! What is wrong or worth knowing, and where: absence speaks through these.

use std::fmt;
use std::sync::Arc;

/// A place in a policy file; lines and columns count from 1, 0 means the whole file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file as the reader was told to call it.
    pub file: Arc<str>,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl Location {
    /// A place in `file`.
    #[must_use]
    pub fn new(file: &Arc<str>, line: u32, column: u32) -> Self {
        Self { file: Arc::clone(file), line, column }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(f, "{}", self.file),
            (line, 0) => write!(f, "{}:{line}", self.file),
            (line, column) => write!(f, "{}:{line}:{column}", self.file),
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong; the author may want to know.
    Note,
    /// Something declared is not there or does less than it seems; the rest works.
    Warning,
    /// The policy set is refused.
    Error,
}

impl Severity {
    /// The word in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding for the policy author or the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable name of the kind of finding, such as `unknown_key`.
    pub code: &'static str,
    /// Where it was written, if it was written.
    pub location: Option<Location>,
    /// What is wrong and what to do, lower case, without a full stop.
    pub message: String,
}

impl Diagnostic {
    /// A finding that refuses the policy set.
    #[must_use]
    pub fn error(code: &'static str, at: &Location, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            location: Some(at.clone()),
            message: message.into(),
        }
    }

    /// A finding that leaves the rest working.
    #[must_use]
    pub fn warning(code: &'static str, at: &Location, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            code,
            location: Some(at.clone()),
            message: message.into(),
        }
    }

    /// A finding that is no fault.
    #[must_use]
    pub fn note(code: &'static str, at: &Location, message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, code, location: Some(at.clone()), message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}: {} [{}]", self.severity.as_str(), self.message, self.code)
    }
}
