//! A look at a store from outside: nothing is changed, no lock is taken, nobody is disturbed.

mod database;
mod file;

use super::{Place, Spot, StoreFault};
use portcullis_policy::ledger::State;

/// What a look shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Where it was.
    pub spot: Spot,
    /// The schema found; 0 if there is none yet.
    pub schema: i64,
    /// The newest schema that this version knows.
    pub known: i64,
    /// Whether the pages fit together.
    pub integrity: Integrity,
    /// Cards by state, those states that have any.
    pub cards: Vec<(State, u64)>,
    /// Size of the file or the database.
    pub bytes: u64,
    /// How changes reach the disk.
    pub journal: String,
    /// Who uses it.
    pub held: Held,
}

/// Whether the pages of a store fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// They do.
    Sound,
    /// What does not fit.
    Damaged(Vec<String>),
    /// PostgreSQL has commands of its own for this.
    NotAsked,
}

/// Who uses a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nobody.
    Free,
    /// A gateway, as far as it can be named.
    By(String),
}

/// Looks at a store.
///
/// # Errors
/// [`StoreFault`] if it cannot be reached or read.
pub async fn inspect(place: &Place) -> Result<Inspection, StoreFault> {
    match place {
        Place::Sqlite(file) => file::inspect(file).await,
        Place::Postgres(url) => database::inspect(url).await,
    }
}

const COUNT_CARDS: &str = "SELECT state, COUNT(*) FROM cards GROUP BY state";

fn by_state(counts: &[(String, i64)]) -> Vec<(State, u64)> {
    let count = |state: State| {
        let (_, count) = counts.iter().find(|(found, _)| found == state.as_str())?;
        Some((state, u64::try_from(*count).unwrap_or_default()))
    };
    State::ALL.into_iter().filter_map(count).collect()
}
