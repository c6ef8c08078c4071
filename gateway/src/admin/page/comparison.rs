//! Two texts of arguments side by side: as they were the last time, or before an edit.

use super::arguments::{Piece, pieces};
use super::time::Moment;
use crate::plain::plain;
use portcullis_policy::difference::difference;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::Card;
use portcullis_policy::secret::{MASK, Secrets};

/// Most differences that are shown; more are counted.
const CHANGES_MAX: usize = 50;

/// The last call of the same kind.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) id: String,
    pub(super) at: Moment,
    pub(super) by: Option<String>,
    pub(super) changes: Changes,
}

/// What differs between two texts of arguments.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) rows: Vec<ChangeRow>,
    /// How many more there are.
    pub(super) more: usize,
    /// True if they differ and are too long to say where.
    pub(super) long: bool,
}

/// One value that differs.
#[derive(Debug)]
pub(super) struct ChangeRow {
    pub(super) path: Vec<Piece>,
    pub(super) before: Option<Vec<Piece>>,
    pub(super) after: Option<Vec<Piece>>,
}

impl Last {
    /// What either of the two hides stays hidden, also where this one's secrets are shown; none if
    /// the reader may not see them.
    pub(super) fn of(last: &Card, card: &Card, (decides, now_ms): (bool, u64)) -> Option<Self> {
        let either = last.asked().secret.iter().chain(&card.asked().secret).cloned();
        let secrets = Secrets::new(&either.collect::<Vec<_>>());
        (decides || secrets.is_empty()).then(|| Self {
            id: last.id().to_owned(),
            at: Moment::past(last.created_ms(), now_ms),
            by: last.decision().map(|decision| plain(&decision.by.name)),
            changes: changes(last.arguments(), card.arguments(), &secrets),
        })
    }
}

/// What differs between two texts of arguments, without what is secret.
pub(super) fn changes(before: &str, after: &str, secrets: &Secrets) -> Changes {
    // A card's arguments are JSON.
    let found = difference(before, after, JsonLimits::default()).unwrap_or_default();
    let Some(found) = found else {
        let same = before == after;
        return Changes { rows: Vec::new(), more: 0, long: !same };
    };
    let more = found.len().saturating_sub(CHANGES_MAX);
    let rows = found.into_iter().take(CHANGES_MAX).map(|change| {
        // A value is secret if anything it is part of is.
        let secret = (1..=change.path.len())
            .any(|depth| change.path.get(..depth).is_some_and(|path| secrets.hides(path)));
        let side = |text: Option<String>| {
            text.map(|text| match secret {
                true => pieces("hidden", MASK),
                false => pieces("", &text),
            })
        };
        ChangeRow {
            path: pieces("", &change.path.join(".")),
            before: side(change.before),
            after: side(change.after),
        }
    });
    Changes { rows: rows.collect(), more, long: false }
}
