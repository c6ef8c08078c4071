//! What is done from outside while a gateway uses the store: a copy, a look.

use super::on_sqlite::suite::{add, card};
use crate::store::ground::{Ground, Kind};
use crate::store::*;
use portcullis_policy::ledger::State;
use std::path::PathBuf;

fn beside(ground: &Ground, name: &str) -> PathBuf {
    ground.file().with_file_name(name)
}

async fn write(store: Store) {
    for number in 2..50 {
        add(&store, &card(&format!("apr_{number}"), number)).await;
    }
}

#[tokio::test]
async fn a_copy_is_whole_private_and_taken_while_the_gateway_writes() {
    let ground = Ground::new(Kind::Sqlite);
    let store = Store::open(&ground.settings()).await.unwrap();
    add(&store, &card("apr_a", 1)).await;
    let writing = tokio::spawn(write(store.clone()));
    let copy = beside(&ground, "copy.db");
    backup(&ground.file(), &copy).await.unwrap();
    writing.await.unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = backup(&ground.file(), &copy).await.unwrap_err();
    assert!(matches!(again, BackupFault::Taken(_)), "{again}");
    let copied = Store::open(&StoreSettings::new(&copy)).await.unwrap();
    assert_eq!(copied.card("apr_a").await.unwrap(), store.card("apr_a").await.unwrap());
}

#[tokio::test]
async fn no_copy_is_left_of_what_cannot_be_copied() {
    let ground = Ground::new(Kind::Sqlite);
    let (missing, copy) = (beside(&ground, "none.db"), beside(&ground, "copy.db"));
    let fault = backup(&missing, &copy).await.unwrap_err();
    assert!(matches!(fault, BackupFault::Store(StoreFault::Unavailable { .. })), "{fault}");
    std::fs::write(ground.file(), vec![b'x'; 8_192]).unwrap();
    let fault = backup(&ground.file(), &copy).await.unwrap_err();
    assert!(matches!(fault, BackupFault::Store(StoreFault::Corrupt { .. })), "{fault}");
    let nowhere = beside(&ground, "none").join("copy.db");
    let fault = backup(&ground.file(), &nowhere).await.unwrap_err();
    assert!(matches!(fault, BackupFault::Target { .. }), "{fault}");
    assert!(!copy.exists() && !missing.exists());
}

async fn look(kind: Kind) -> (Inspection, Inspection) {
    let ground = Ground::new(kind);
    let store = Store::open(&ground.settings()).await.unwrap();
    for number in 0..3 {
        add(&store, &card(&format!("apr_{number}"), number)).await;
    }
    let used = inspect(&ground.place()).await.unwrap();
    drop(store);
    let mut free = inspect(&ground.place()).await.unwrap();
    while free.held != Held::Free {
        free = inspect(&ground.place()).await.unwrap();
    }
    // The look itself keeps nobody out.
    Store::open(&ground.settings()).await.unwrap();
    (used, free)
}

#[tokio::test]
async fn a_look_shows_what_is_there_and_who_uses_it() {
    for (kind, integrity) in
        [(Kind::Sqlite, Integrity::Sound), (Kind::Postgres, Integrity::NotAsked)]
    {
        let (used, free) = look(kind).await;
        assert_eq!(used.schema, used.known);
        assert!(used.known > 20_261_200_000_000);
        assert_eq!(used.integrity, integrity);
        assert_eq!(used.cards, [(State::Parked, 3)]);
        assert!(used.bytes > 0 && !used.journal.is_empty(), "{used:?}");
        assert!(matches!(used.held, Held::By(_)), "{used:?}");
        assert_eq!(free.cards, used.cards);
    }
}

#[tokio::test]
async fn a_look_makes_nothing_and_tells_what_it_cannot_read() {
    let ground = Ground::new(Kind::Sqlite);
    let fault = inspect(&ground.place()).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault}");
    assert!(!ground.file().exists());
    std::fs::write(ground.file(), vec![b'x'; 8_192]).unwrap();
    let fault = inspect(&ground.place()).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Corrupt { .. }), "{fault}");
}
