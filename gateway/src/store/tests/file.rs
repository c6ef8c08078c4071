//! What SQLite promises alone: a private file of one gateway, and few syncs.

use super::on_sqlite::suite::{NOW, add, card, run};
use crate::store::ground::{Ground, Kind};
use crate::store::*;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

const KIND: Kind = Kind::Sqlite;

async fn open(ground: &Ground) -> Store {
    Store::open(&ground.settings()).await.unwrap()
}

async fn raw(ground: &Ground, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(ground.file());
    let mut connection = options.connect().await.unwrap();
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_file_is_of_one_gateway_at_a_time_and_private() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let second = Store::open(&ground.settings()).await.unwrap_err();
    assert!(matches!(second, StoreFault::InUse { .. }));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for file in ["state.db", "state.db-wal"] {
            let mode = ground.file().with_file_name(file).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}");
        }
    }
    drop(store);
    open(&ground).await;
}

#[tokio::test]
async fn a_newer_a_damaged_and_a_missing_file_are_refused_and_told_apart() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    add(&store, &card("apr_a", 1)).await;
    raw(&ground, "UPDATE cards SET doc = replace(doc, '7', '8'), state = 'approved'").await;
    assert!(matches!(store.card("apr_a").await, Err(StoreFault::Corrupt { .. })));
    let later = "INSERT INTO _sqlx_migrations VALUES (99990101000000, 'later', 0, 1, x'00', 0)";
    raw(&ground, later).await;
    drop(store);
    let newer = Store::open(&ground.settings()).await.unwrap_err();
    assert!(matches!(newer, StoreFault::NewerSchema { found: 99_990_101_000_000, .. }), "{newer}");

    let damaged = Ground::new(KIND);
    std::fs::write(damaged.file(), vec![b'x'; 8_192]).unwrap();
    let fault = Store::open(&damaged.settings()).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Corrupt { .. }), "{fault}");

    let missing = ground.file().with_file_name("none").join("state.db");
    let fault = Store::open(&StoreSettings::new(missing)).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault}");
}

#[tokio::test]
async fn what_waits_together_is_synced_together() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let before = store.commits();
    let inserts = (0..100).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { add(&store, &card(&format!("apr_{number}"), number)).await })
    });
    for insert in inserts.collect::<Vec<_>>() {
        assert_eq!(insert.await.unwrap(), Inserted::New);
    }
    let commits = store.commits() - before;
    assert!(commits <= 20, "{commits} commits for 100 writes");
    assert_eq!(store.unsettled().await.unwrap().len(), 100);
}

#[tokio::test]
async fn a_gateway_that_is_dropped_writes_what_it_took_before_it_lets_go() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let count = store.clone();
    let counting = tokio::spawn(async move { count.count("key", 1_000, NOW).await });
    tokio::task::yield_now().await;
    drop(store);
    assert_eq!(counting.await.unwrap().unwrap(), 1);
    assert_eq!(open(&ground).await.counted("key", 1_000, NOW).await.unwrap(), 1);
}

#[tokio::test]
async fn a_closed_store_is_one_whole_file_that_another_gateway_may_have() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let still_there = store.clone();
    store.close().await;
    let Place::Sqlite(file) = ground.place() else { panic!("a file") };
    let mut wal = file.clone().into_os_string();
    wal.push("-wal");
    assert!(!std::path::Path::new(&wal).exists(), "the log was not taken into the file");
    let next = open(&ground).await;
    assert!(next.run("run_a").await.unwrap().is_some());
    assert!(matches!(still_there.run("run_a").await, Err(StoreFault::Unavailable { .. })));
    assert!(still_there.ensure_run(&run("run_b")).await.is_err());
}
