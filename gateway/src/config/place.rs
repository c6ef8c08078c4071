//! `store` and `seal`: where cards, runs and the sealing key are kept, and for how long.

use super::fetched::fetched;
use super::postgres::{PostgresUrl, UrlSource};
use super::setting::{Settings, Written, path, time, twin};
use super::wire;
use super::{Retain, Seal, Store, StorePlace};
use portcullis_policy::diagnostic::Diagnostic;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How long settled cards are kept, if nothing else is said.
const CARDS_KEEP_DEFAULT: Duration = DAY.saturating_mul(90);
/// How long events are kept, if nothing else is said.
const EVENTS_KEEP_DEFAULT: Duration = DAY.saturating_mul(7);
/// Bounds of the time that settled cards are kept. The least is the longest that a result may
/// wait for its caller, so that no card goes before its result.
const CARDS_KEEP: RangeInclusive<Duration> = DAY..=DAY.saturating_mul(3_650);
/// Bounds of the time that events are kept.
const EVENTS_KEEP: RangeInclusive<Duration> = Duration::from_secs(3_600)..=DAY.saturating_mul(365);
/// Where the sealing key is kept, if nothing else is said.
const KEY_FILE_DEFAULT: &str = "keys/seal.json";

const SQLITE: &str = "store.sqlite";
const POSTGRES: &str = "store.postgres.url";

/// The store, of exactly one engine.
pub(super) fn store(
    s: &mut Settings<'_>,
    wire: &wire::Store,
    (base, state_dir): (&Path, &Path),
) -> Store {
    let place = engine(s, wire, base);
    let (cards, events) = (wire.retain.cards.as_ref(), wire.retain.events.as_ref());
    let retain = Retain {
        cards: s.value("store.retain.cards", cards, CARDS_KEEP_DEFAULT, time(CARDS_KEEP)),
        events: s.value("store.retain.events", events, EVENTS_KEEP_DEFAULT, time(EVENTS_KEEP)),
    };
    let place = match place {
        Some(url) => StorePlace::Postgres(url),
        None => {
            let file = path(s, SQLITE, wire.sqlite.as_ref(), "state.db");
            StorePlace::Sqlite(state_dir.join(file))
        }
    };
    Store { place, retain }
}

/// The sealing key. With PostgreSQL there may be several gateways, and each must open what another
/// one sealed: a key that is made on the spot would never be that of the others.
pub(super) fn seal(
    s: &mut Settings<'_>,
    wire: &wire::Seal,
    (state_dir, store): (&Path, &Store),
) -> Seal {
    let written = s.text("seal.keyFile", wire.key_file.as_ref()).is_some();
    if let (StorePlace::Postgres(_), false) = (&store.place, written) {
        let text = "`seal.keyFile` is missing: with `store.postgres` several gateways may serve the \
                    same agents, and they must share the key that seals sessions; make one with \
                    `portcullis keys rotate --key-file PATH`, give each gateway a copy and name it";
        s.error("missing_value", &s.whole(), text);
    }
    let file = path(s, "seal.keyFile", wire.key_file.as_ref(), KEY_FILE_DEFAULT);
    Seal { key_file: state_dir.join(file) }
}

/// The address of the PostgreSQL database, if that engine is chosen. A variable of the environment
/// chooses as well, and against the file.
fn engine(s: &mut Settings<'_>, wire: &wire::Store, base: &Path) -> Option<PostgresUrl> {
    let both = "`store` has one engine: write `sqlite` or `postgres`, not both";
    let (sqlite, postgres) = (s.text(SQLITE, None).is_some(), s.text(POSTGRES, None));
    if let Some(written) = postgres {
        if sqlite {
            s.error("two_engines", &written.at, both);
        }
        return accepted(s, &written, UrlSource::Env(twin(POSTGRES)));
    }
    let url = &wire.postgres.as_ref()?.url;
    if sqlite {
        return None;
    }
    let at = s.place(url);
    if wire.sqlite.is_some() {
        s.error("two_engines", &at, both);
    }
    let (text, from) = fetched(s, (POSTGRES, "the URL"), &url.value, (&at, base))?;
    let url = accepted(s, &Written { text, at: at.clone() }, from)?;
    if url.has_password() && *url.from() == UrlSource::Literal {
        let text = "the password of the database stands in this file; keep it in the environment \
                    (`url: {fromEnv: NAME}`) or in a file (`url: {fromFile: PATH}`)";
        s.found.push(Diagnostic::warning("password_in_file", &at, text));
    }
    Some(url)
}

fn accepted(s: &mut Settings<'_>, written: &Written, from: UrlSource) -> Option<PostgresUrl> {
    let url = PostgresUrl::new(&written.text, from);
    url.map_err(|message| {
        s.error("bad_value", &written.at, format!("`{POSTGRES}`: {message}"));
    })
    .ok()
}
