//! What PostgreSQL promises alone: one gateway at a time, whatever becomes of its connections.

use super::on_postgres::suite::{NOW, add, card};
use crate::store::ground::{Ground, Kind};
use crate::store::*;
use sqlx::Executor as _;
use std::time::Duration;

const KIND: Kind = Kind::Postgres;

async fn open(ground: &Ground) -> Store {
    Store::open(&ground.settings()).await.unwrap()
}

// Cuts the connection of whoever holds the database.
async fn cut(ground: &Ground) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
               AND mode = 'ExclusiveLock' \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    ground.connect().await.execute(sql).await.unwrap();
}

#[tokio::test]
async fn a_database_is_of_one_gateway_at_a_time() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let second = Store::open(&ground.settings()).await.unwrap_err();
    assert!(matches!(second, StoreFault::InUse { .. }), "{second}");
    drop(store);
    open(&ground).await;
}

#[tokio::test]
async fn who_lost_the_database_to_another_writes_nothing_and_gets_it_back_after() {
    let ground = Ground::new(KIND);
    let first = open(&ground).await;
    add(&first, &card("apr_a", 1)).await;
    cut(&ground).await;
    let second = open(&ground).await;
    // Noticed or not, it is refused.
    let refused = first.count("key", 1_000, NOW).await.unwrap_err();
    assert!(matches!(refused, StoreFault::Unavailable { .. }), "{refused}");
    assert_eq!(second.count("key", 1_000, NOW).await.unwrap(), 1);
    assert!(first.card("apr_a").await.unwrap().is_some());
    drop(second);
    let regained = async {
        while first.count("key", 1_000, NOW).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), regained).await.unwrap();
    assert_eq!(first.counted("key", 1_000, NOW).await.unwrap(), 2);
}

#[tokio::test]
async fn a_newer_a_damaged_and_a_missing_database_are_refused_and_told_apart() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let mut beside = ground.connect().await;
    let damage = "CREATE FUNCTION fail() RETURNS trigger AS $$ BEGIN \
                  RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END $$ LANGUAGE plpgsql; \
                  CREATE TRIGGER fail BEFORE INSERT ON counters EXECUTE FUNCTION fail()";
    beside.execute(damage).await.unwrap();
    let fault = store.count("key", 1_000, NOW).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Corrupt { .. }), "{fault}");
    let later = "INSERT INTO _sqlx_migrations VALUES (99990101000000, 'later', now(), true, '', 0)";
    beside.execute(later).await.unwrap();
    drop(store);
    let newer = Store::open(&ground.settings()).await.unwrap_err();
    assert!(matches!(newer, StoreFault::NewerSchema { found: 99_990_101_000_000, .. }), "{newer}");

    let away =
        StoreSettings::at(Place::Postgres("postgres://karl:s3cret@127.0.0.1:1/x".to_owned()));
    let fault = Store::open(&away).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault}");
    let text = format!("{fault} {fault:?}");
    assert!(text.contains("`x` at `127.0.0.1:1`") && !text.contains("karl"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");

    let unread =
        StoreSettings::at(Place::Postgres("postgres://karl:s3cret@host:port/x".to_owned()));
    let fault = Store::open(&unread).await.unwrap_err();
    let expected = "the configured database cannot be used: its URL cannot be read; write it as \
                    postgres://user:password@host:port/database, with special characters in \
                    percent form";
    assert_eq!(fault.to_string(), expected);
}

#[tokio::test]
async fn its_clock_is_the_one_that_counts() {
    let ground = Ground::new(KIND);
    let offset_ms = open(&ground).await.clock_offset_ms().await.unwrap();
    // One machine, one clock; the question takes a moment.
    assert!(offset_ms.abs() < 5_000, "{offset_ms}");
}

#[tokio::test]
async fn what_is_committed_is_on_disk_and_limits_are_set() {
    let ground = Ground::new(KIND);
    let settings = StoreSettings { busy: Duration::from_millis(50), ..ground.settings() };
    let store = Store::open(&settings).await.unwrap();
    let mut beside = ground.connect().await;
    beside.execute("BEGIN; LOCK TABLE counters IN EXCLUSIVE MODE").await.unwrap();
    let fault = store.count("key", 1_000, NOW).await.unwrap_err();
    assert!(fault.to_string().contains("lock timeout"), "{fault}");
    beside.execute("ROLLBACK").await.unwrap();
    let sql = "SELECT current_setting('synchronous_commit') || current_setting('statement_timeout') \
               || current_setting('transaction_isolation')";
    let shown = store.read_one(&Statement::rows(sql), Row::text).await.unwrap();
    assert_eq!(shown.as_deref(), Some("on30sread committed"));
}
