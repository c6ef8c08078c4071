//! What people read.

use crate::store::*;

#[test]
fn faults_say_what_to_do() {
    let (spot, cause) = (Spot::File("state.db".to_owned()), "disk I/O error".to_owned());
    let faults = [
        StoreFault::Unavailable { spot: spot.clone(), cause: cause.clone() },
        StoreFault::Corrupt { spot: spot.clone(), cause },
        StoreFault::NewerSchema { spot: spot.clone(), found: 2, known: 1 },
        StoreFault::InUse { spot },
    ];
    let expected = "\
the state file `state.db` cannot be used: disk I/O error; check that its folder exists, can be written and has free space
the state file `state.db` is damaged: disk I/O error; stop the gateway and restore the file from a backup, or move it away to start without parked calls
the state file `state.db` has schema 2, and this version of the gateway knows schemas up to 1; start the version that wrote it or a newer one
the state file `state.db` is in use by another gateway; stop that one, or give this one another state folder";
    assert_eq!(faults.map(|fault| fault.to_string()).join("\n"), expected);
}

#[test]
fn a_database_is_named_without_its_user_and_password() {
    let url = "postgres://karl:s3cret@db.example:5433/portcullis?sslmode=require";
    let settings = StoreSettings::at(Place::Postgres(url.to_owned()));
    let spot = settings.place.spot();
    let cause = "disk full".to_owned();
    let faults = [
        StoreFault::Unavailable { spot: spot.clone(), cause: cause.clone() },
        StoreFault::Corrupt { spot: spot.clone(), cause },
        StoreFault::NewerSchema { spot: spot.clone(), found: 2, known: 1 },
        StoreFault::InUse { spot },
    ];
    let expected = "\
the database `portcullis` at `db.example:5433` cannot be used: disk full; check that its server runs, can be reached, lets the configured user in and has free space
the database `portcullis` at `db.example:5433` is damaged: disk full; stop the gateway and restore the database from a backup, or name an empty one to start without parked calls
the database `portcullis` at `db.example:5433` has schema 2, and this version of the gateway knows schemas up to 1; start the version that wrote it or a newer one
the database `portcullis` at `db.example:5433` is in use by another gateway; stop that one, or give this one another database";
    let texts = faults.map(|fault| fault.to_string()).join("\n");
    assert_eq!(texts, expected);
    let shown = format!("{settings:?} {faults:?}", faults = settings.place.spot());
    assert!(!shown.contains("karl") && !shown.contains("s3cret"), "{shown}");
}
