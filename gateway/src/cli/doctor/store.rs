//! The store of cards.

use super::{Check, as_the_gateway, spelled};
use crate::config::{Config, StorePlace};
use crate::store::{Held, Inspection, Integrity, Place, StoreFault, inspect};
use portcullis_policy::ledger::State;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const NAME: &str = "store";

/// Whether a gateway has the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    /// One has.
    Yes,
    /// None has, or that cannot be seen.
    No,
}

/// The store, and whether a gateway has it.
pub(super) async fn store(config: &Config) -> (Check, Running) {
    let place = Place::from(&config.store.place);
    let shown = match &config.store.place {
        StorePlace::Sqlite(file) => {
            if let Err(error) = File::open(file) {
                return (unread(file, &error), Running::No);
            }
            file.display().to_string()
        }
        StorePlace::Postgres(url) => url.to_string(),
    };
    let found = match inspect(&place).await {
        Ok(found) => found,
        Err(fault) => return (broken(&shown, &fault), Running::No),
    };
    let running = match found.held {
        Held::By(_) => Running::Yes,
        Held::Free => Running::No,
    };
    (seen(&shown, &config.store.place, &found), running)
}

fn seen(shown: &str, place: &StorePlace, found: &Inspection) -> Check {
    if found.schema > found.known {
        let (spot, known) = (found.spot.clone(), found.known);
        return broken(shown, &StoreFault::NewerSchema { spot, found: found.schema, known });
    }
    if let Integrity::Damaged(findings) = &found.integrity {
        let (spot, cause) = (found.spot.clone(), findings.join("; "));
        return broken(shown, &StoreFault::Corrupt { spot, cause });
    }
    if let StorePlace::Sqlite(file) = place {
        let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            let text = format!("others can read the arguments of calls (mode {mode:03o})");
            return Check::failed(NAME, &shown, text, format!("chmod 600 {shown}"));
        }
    }
    let count = |wanted: State| {
        found.cards.iter().find(|(state, _)| *state == wanted).map_or(0, |(_, count)| *count)
    };
    let whole = match found.integrity {
        Integrity::Sound => "whole",
        Integrity::NotAsked => "not read whole",
        Integrity::Damaged(_) => "damaged",
    };
    let held = match &found.held {
        Held::By(gateway) => format!("in use by {gateway}"),
        Held::Free => "no gateway has it".to_owned(),
    };
    let (all, unknown) = (found.cards.iter().map(|(_, n)| n).sum::<u64>(), count(State::Unknown));
    let text = format!(
        "{} with schema {}, {whole}; {all} cards: {} parked, {} approved, {} executing, {unknown} \
         unknown; {held}",
        spelled(found.bytes),
        found.schema,
        count(State::Parked),
        count(State::Approved),
        count(State::Executing),
    );
    if unknown > 0 {
        let remedy = "see with `portcullis approvals --state unknown` which calls may have run, and \
                      look at their servers";
        return Check::warning(NAME, &shown, text, remedy);
    }
    Check::ok(NAME, &shown, text)
}

fn unread(file: &Path, error: &io::Error) -> Check {
    if error.kind() == io::ErrorKind::NotFound {
        return missing(file);
    }
    Check::failed(NAME, &file.display(), super::folders::said(error), as_the_gateway(file))
}

/// The lock beside a store outlives it.
fn missing(file: &Path) -> Check {
    let mut lock = file.as_os_str().to_owned();
    lock.push(".lock");
    if Path::new(&lock).exists() {
        let remedy = "restore it from a backup; else the next start begins without parked calls";
        return Check::failed(
            NAME,
            &file.display(),
            "a gateway ran here, but the file is gone",
            remedy,
        );
    }
    Check::ok(NAME, &file.display(), "not there yet; the first start makes it")
}

fn broken(shown: &str, fault: &StoreFault) -> Check {
    let (found, remedy) = match fault {
        StoreFault::Corrupt { cause, .. } if cause.contains("not a database") => (
            "this is no database".to_owned(),
            "restore it from a backup, or move it away: then there are no parked calls".to_owned(),
        ),
        StoreFault::Corrupt { cause, .. } => (
            format!("it is damaged: {cause}"),
            "stop the gateway and restore it from a backup, or move it away: then there are no \
             parked calls"
                .to_owned(),
        ),
        StoreFault::NewerSchema { found, known, .. } => (
            format!("a newer gateway wrote it: schema {found}, known up to {known}"),
            "run the version that wrote it, or a newer one".to_owned(),
        ),
        StoreFault::Unavailable { cause, .. } => {
            let remedy = "see that it can be reached and read by the user who runs this command";
            (format!("it cannot be read: {cause}"), remedy.to_owned())
        }
        StoreFault::InUse { .. } => {
            ("another gateway has it".to_owned(), "give each gateway a state folder".to_owned())
        }
    };
    Check::failed(NAME, &shown, found, remedy)
}
