//! Failures that a test asks for. A gateway has none but those of the world.

#[cfg(test)]
use std::sync::Arc;

/// Fails what it is told to fail.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Trouble {
    #[cfg(test)]
    plan: Arc<parking_lot::Mutex<planned::Plan>>,
}

#[cfg(not(test))]
#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "a test gives it its plan")]
impl Trouble {
    /// Asked before each statement that is written.
    pub(super) fn statement(&self) -> Result<(), sqlx::Error> {
        Ok(())
    }

    /// Asked before each commit; says which one it is.
    pub(super) fn before_commit(&self) -> Result<usize, sqlx::Error> {
        Ok(0)
    }

    /// Asked after each commit.
    pub(super) fn after_commit(&self, _commit: usize) -> Result<(), sqlx::Error> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) use planned::{Failure, When};

#[cfg(test)]
mod planned {
    use super::Trouble;
    use std::borrow::Cow;
    use std::error::Error;
    use std::fmt;

    /// What goes wrong.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Failure {
        /// The disk does not do it.
        Broken,
        /// No space is left.
        Full,
        /// Somebody else has the lock.
        Locked,
        /// The file makes no sense.
        Corrupt,
        /// The connection is gone.
        Gone,
    }

    /// When it goes wrong, counted from 0.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum When {
        /// At this statement that is written.
        Statement(usize),
        /// At this commit, which does not take place.
        Commit(usize),
        /// At this commit, which takes place all the same.
        Committed(usize),
    }

    #[derive(Debug, Default)]
    pub(super) struct Plan {
        wanted: Option<(When, Failure)>,
        statements: usize,
        commits: usize,
        struck: bool,
    }

    impl Trouble {
        /// Plans one failure; counting starts anew.
        pub(crate) fn plan(&self, when: When, kind: Failure) {
            *self.plan.lock() = Plan { wanted: Some((when, kind)), ..Plan::default() };
        }

        /// True once it went wrong.
        pub(crate) fn struck(&self) -> bool {
            self.plan.lock().struck
        }

        pub(in super::super) fn statement(&self) -> Result<(), sqlx::Error> {
            let mut plan = self.plan.lock();
            plan.statements += 1;
            let now = When::Statement(plan.statements - 1);
            plan.strike(now)
        }

        pub(in super::super) fn before_commit(&self) -> Result<usize, sqlx::Error> {
            let mut plan = self.plan.lock();
            plan.commits += 1;
            let commit = plan.commits - 1;
            plan.strike(When::Commit(commit)).map(|()| commit)
        }

        pub(in super::super) fn after_commit(&self, commit: usize) -> Result<(), sqlx::Error> {
            self.plan.lock().strike(When::Committed(commit))
        }
    }

    impl Plan {
        fn strike(&mut self, now: When) -> Result<(), sqlx::Error> {
            match self.wanted {
                Some((when, kind)) if when == now && !self.struck => {
                    self.struck = true;
                    Err(kind.error())
                }
                Some(_) | None => Ok(()),
            }
        }
    }

    impl Failure {
        pub(crate) const ALL: [Self; 5] =
            [Self::Broken, Self::Full, Self::Locked, Self::Corrupt, Self::Gone];

        fn error(self) -> sqlx::Error {
            let code = match self {
                Self::Broken => "10",
                Self::Full => "13",
                Self::Locked => "5",
                Self::Corrupt => "11",
                Self::Gone => return sqlx::Error::WorkerCrashed,
            };
            sqlx::Error::Database(Box::new(Said { code }))
        }
    }

    // What SQLite says.
    #[derive(Debug)]
    struct Said {
        code: &'static str,
    }

    impl fmt::Display for Said {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "failure {} as the test asked", self.code)
        }
    }

    impl Error for Said {}

    impl sqlx::error::DatabaseError for Said {
        fn message(&self) -> &str {
            self.code
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.code.into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> sqlx::error::ErrorKind {
            sqlx::error::ErrorKind::Other
        }
    }
}
