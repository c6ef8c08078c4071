//! System calls of the store that fail once, each in its turn.

use super::cycle::Stage;
use super::stranger;
use super::told::{Told, told};
use portcullis_tests::strace::{Fault, Strace};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;

/// Gateways that share the work of one kind of fault.
const GATEWAYS: u32 = 6;
/// More calls than this make no cycle: it would never end without a fault.
const CALLS_MAX: u32 = 200;

/// Fails the first, second, … `call` of one cycle with `error` until a cycle has no more of them.
/// Returns how many there are.
async fn each_fails_once(call: &'static str, error: &'static str) -> u32 {
    let next = Arc::new(AtomicU32::new(1));
    let mut gateways = JoinSet::new();
    for _ in 0..GATEWAYS {
        let next = Arc::clone(&next);
        gateways.spawn(async move {
            let stage = Stage::open().await;
            loop {
                let turn = next.fetch_add(1, Ordering::SeqCst);
                assert!(turn < CALLS_MAX, "a cycle does not end");
                if !fails_once(&stage, call, error, turn).await {
                    return turn - 1;
                }
            }
        });
    }
    gateways.join_all().await.into_iter().min().unwrap_or_default()
}

/// One cycle in which the `turn`th `call` fails. False if it has fewer.
async fn fails_once(stage: &Stage, call: &str, error: &str, turn: u32) -> bool {
    let state = stage.house.folder.path().join("state");
    let files = [state.join("state.db"), state.join("state.db-wal")];
    let files = [files[0].as_path(), files[1].as_path()];
    let fault = Fault { call, error, when: &turn.to_string() };
    let strace = Strace::attach(stage.house.pid().unwrap(), fault, &files).await;
    let answer = stage.cycle(turn).await;
    let failed = strace.detach().await;
    stage.judge(turn, &answer);
    stage.recovers(turn).await;
    !failed.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_once_loses_no_call_and_runs_none_twice() {
    assert!(each_fails_once("pwrite64", "EIO").await >= 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_one_write_loses_no_call_and_runs_none_twice() {
    assert!(each_fails_once("pwrite64", "ENOSPC").await >= 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_once_loses_no_call_and_runs_none_twice() {
    for error in ["EIO", "ENOSPC"] {
        assert!(each_fails_once("fsync", error).await >= 4);
    }
}

/// Fills the log beside the file so far that the next commit of the gateway copies it over.
const FILL: &str = "import sqlite3, sys
state = sqlite3.connect(sys.argv[1], isolation_level=None)
state.execute('PRAGMA wal_autocheckpoint = 0')
state.execute('CREATE TABLE filler (text)')
state.execute('INSERT INTO filler VALUES (zeroblob(6000000))')
state.execute('DROP TABLE filler')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_fails_hurts_no_call() {
    let stage = Stage::open().await;
    let file = stage.house.folder.path().join("state/state.db");
    for (amount, call) in [(1, "pwrite64"), (2, "fsync")] {
        assert!(stranger(FILL, &file).wait().await.unwrap().success());
        let fault = Fault { call, error: "EIO", when: "1+" };
        let strace = Strace::attach(stage.house.pid().unwrap(), fault, &[&file]).await;
        let answer = stage.cycle(amount).await;
        let failed = strace.detach().await;
        assert!(!failed.is_empty(), "no {call} on the file itself");
        assert_eq!(told(&answer), Told::Result, "{}", answer.text);
        stage.judge(amount, &answer);
        stage.recovers(amount).await;
    }
    let stage = stage.crash().await;
    for amount in [1, 2] {
        assert_eq!(stage.settled(amount).await[0]["state"], "done");
    }
}
