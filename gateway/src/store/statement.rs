//! One SQL text for both engines, with the values of its `$1`, `$2` and so on.

use bytes::Bytes;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Most ids that one statement names; longer lists take several.
pub(super) const IDS_MAX: usize = 500;

/// A value of a statement. An empty one has a type as well: PostgreSQL asks for it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(Option<String>),
    Big(Option<i64>),
    Bytes(Option<Bytes>),
}

/// What a statement gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    /// Rows; it counts as many as there are.
    Rows,
    /// The number of rows it changed.
    Count,
}

/// What must be true of a statement's count, or else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Any count is fine.
    Any,
    /// At least one row, or the rest of its batch is skipped and the batch does not count.
    OrSkip,
    /// At least one row, or the whole work is undone.
    OrUndo,
    /// No row at all, or the whole work is undone.
    NoneOrUndo,
}

/// Whether the rows that are read stay as they are until the work is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Free,
    /// Nobody changes them meanwhile. SQLite has one writer, so that needs no word there.
    Shared,
}

/// A statement.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
    pub(super) gives: Gives,
    pub(super) guard: Guard,
    pub(super) lock: Lock,
}

impl Statement {
    /// A statement that gives rows.
    pub(super) fn rows(sql: &'static str) -> Self {
        Self::new(sql, Gives::Rows)
    }

    /// A statement that changes rows.
    pub(super) fn change(sql: &'static str) -> Self {
        Self::new(sql, Gives::Count)
    }

    fn new(sql: &'static str, gives: Gives) -> Self {
        let sql = Cow::Borrowed(sql);
        Self { sql, values: Vec::new(), gives, guard: Guard::Any, lock: Lock::Free }
    }

    /// The value of the next `$n`.
    pub(super) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Goes on with `sql`.
    pub(super) fn then(mut self, sql: &str) -> Self {
        self.sql.to_mut().push_str(sql);
        self
    }

    /// Goes on with the next `$n`, its value being `value`.
    pub(super) fn then_value(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        let number = self.values.len();
        // Writing to a string does not fail.
        let _ = write!(self.sql.to_mut(), "${number}");
        self
    }

    /// Goes on with a list of values in brackets, as `IN` takes it. An empty one holds nothing.
    pub(super) fn then_list<'a>(mut self, values: impl IntoIterator<Item = &'a str>) -> Self {
        self = self.then("(");
        let mut empty = true;
        for value in values {
            self = if empty { self } else { self.then(", ") }.then_value(value);
            empty = false;
        }
        if empty { self.then("NULL)") } else { self.then(")") }
    }

    /// Demands something of its count.
    pub(super) fn guarded(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Keeps the rows it reads as they are until the work is committed.
    pub(super) fn locked(mut self) -> Self {
        self.lock = Lock::Shared;
        self
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        // PostgreSQL has no NUL in a text; both engines store the same.
        Self::Text(Some(if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Text(None), Self::from)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Big(Some(number))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        // A wall time beyond what a signed number holds is the far future either way.
        Self::Big(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Big(None), Self::from)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Big(Some(i64::from(flag)))
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<&[u8; 32]> for Value {
    fn from(hash: &[u8; 32]) -> Self {
        Self::Bytes(Some(Bytes::copy_from_slice(hash)))
    }
}

impl From<Option<&[u8; 32]>> for Value {
    fn from(hash: Option<&[u8; 32]>) -> Self {
        hash.map_or(Self::Bytes(None), Self::from)
    }
}
