//! Where the next page of a list begins: opaque, and worth nothing to another admin or in another
//! list.

use crate::seal::{Bound, Purpose, Seal};
use crate::store::Cursor;

/// How long a list may be read on, in milliseconds.
const LIFE_MS: u64 = 24 * 60 * 60 * 1_000;

/// One list of one admin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing<'a> {
    pub(super) seal: &'a Seal,
    /// Who reads it.
    pub(super) admin: &'a str,
    /// What is listed, spelled so that no two filters are alike.
    pub(super) filter: &'a str,
    pub(super) now_ms: u64,
}

impl Listing<'_> {
    fn bound(&self) -> Bound<'_> {
        Bound { principal: self.admin, target: self.filter }
    }

    /// The text for the page after `cursor`.
    pub(super) fn page_after(&self, cursor: &Cursor) -> String {
        let payload = format!("{}.{}", cursor.created_ms, cursor.id);
        let expires_ms = self.now_ms.saturating_add(LIFE_MS);
        self.seal.seal(Purpose::Cursor, &self.bound(), payload.as_bytes(), expires_ms)
    }

    /// Where the page of that text begins, if this list returned it.
    pub(super) fn page_of(&self, text: &str) -> Option<Cursor> {
        let payload = self.seal.open(Purpose::Cursor, &self.bound(), text, self.now_ms)?;
        let (created, id) = std::str::from_utf8(&payload).ok()?.split_once('.')?;
        Some(Cursor { created_ms: created.parse().ok()?, id: id.to_owned() })
    }
}

/// How long the place in the events may be come back to, in milliseconds.
const PLACE_LIFE_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

/// The events as one admin reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) seal: &'a Seal,
    /// Who reads them.
    pub(super) admin: &'a str,
    pub(super) now_ms: u64,
}

impl Place<'_> {
    fn bound(&self) -> Bound<'_> {
        Bound { principal: self.admin, target: "events" }
    }

    /// What an event is called: its number would tell how many others there are.
    pub(super) fn id_of(&self, event: i64) -> String {
        let expires_ms = self.now_ms.saturating_add(PLACE_LIFE_MS);
        self.seal.seal(Purpose::Cursor, &self.bound(), &event.to_be_bytes(), expires_ms)
    }

    /// The event of that name, if this admin was told it.
    pub(super) fn event_of(&self, text: &str) -> Option<i64> {
        let payload = self.seal.open(Purpose::Cursor, &self.bound(), text, self.now_ms)?;
        Some(i64::from_be_bytes(payload.as_slice().try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_and_admin_alone() {
        let folder = std::env::temp_dir().join(format!("portcullis-cursor-{}", std::process::id()));
        let seal = Seal::from_file(&folder.join("seal.json")).unwrap();
        let own = Listing { seal: &seal, admin: "dana", filter: "[\"parked\",null]", now_ms: 5 };
        let after = Cursor { created_ms: 7, id: "apr_x.y".to_owned() };
        let text = own.page_after(&after);
        let read = own.page_of(&text).unwrap();
        assert_eq!((read.created_ms, read.id.as_str()), (7, "apr_x.y"));
        assert!(!text.contains("apr_x"), "it tells nothing");
        for foreign in [
            Listing { admin: "viewer", ..own },
            Listing { filter: "[null,\"parked\"]", ..own },
            Listing { now_ms: 5 + LIFE_MS, ..own },
        ] {
            assert!(foreign.page_of(&text).is_none(), "{foreign:?}");
        }
        assert!(own.page_of("7.apr_x").is_none(), "nor is a cursor made up");
        let session = seal.seal(Purpose::Session, &own.bound(), b"7.apr_x", u64::MAX);
        assert!(own.page_of(&session).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
