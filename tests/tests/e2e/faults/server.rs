//! A PostgreSQL server that goes away under the gateway, and connections to it that are cut.

use super::cycle::{Phase, Stage};
use super::kills::{Size, killed_at_random};
use portcullis::seal::Seal;
use portcullis_tests::postgres::Postgres;
use std::time::Duration;
use tokio::time::sleep;

const URL: &str = "PORTCULLIS_TEST_STORE";
/// How long the server is gone.
const GONE: Duration = Duration::from_secs(1);
const CUT: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";

async fn open() -> (Postgres, Stage) {
    let postgres = Postgres::start().await;
    let spec = format!(
        "  store: {{postgres: {{url: {{fromEnv: {URL}}}}}}}\n  seal: {{keyFile: keys/seal.json}}\n"
    );
    let (folder, upstream) = Stage::folder(&spec).await;
    // Gateways of one database share a key that none of them makes.
    Seal::from_file(&folder.path().join("state/keys/seal.json")).unwrap();
    let stage = Stage::on(folder, upstream, environment(&postgres)).await;
    (postgres, stage)
}

fn environment(postgres: &Postgres) -> Vec<(String, String)> {
    vec![(URL.to_owned(), postgres.url().to_owned())]
}

async fn gone_at(phase: Phase) {
    let (postgres, stage) = open().await;
    let heals = async || {
        sleep(GONE).await;
        postgres.restart().await;
    };
    stage.struck(phase, async || postgres.kill().await, heals).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_and_returns_has_lost_no_call_and_runs_none_twice() {
    tokio::join!(
        gone_at(Phase::Asked),
        gone_at(Phase::Parked),
        gone_at(Phase::Approved),
        gone_at(Phase::Executing),
    );
}

async fn cut_at(phase: Phase) {
    let (postgres, stage) = open().await;
    let breaks = async || {
        assert_ne!(postgres.run(CUT).await, "0", "the gateway has connections");
    };
    stage.struck(phase, breaks, async || {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_lose_no_call_and_run_none_twice() {
    tokio::join!(
        cut_at(Phase::Asked),
        cut_at(Phase::Parked),
        cut_at(Phase::Approved),
        cut_at(Phase::Executing),
    );
}

async fn both_gone_at(phase: Phase) {
    let (postgres, stage) = open().await;
    let held = stage.reach(phase, 1).await;
    let before = stage.cards(1).await.unwrap();
    postgres.kill().await;
    let folder = stage.house.kill().await;
    drop(held);
    postgres.restart().await;
    let stage = Stage::on(folder, stage.upstream, environment(&postgres)).await;
    let after = stage.settled(1).await;
    assert_eq!((after.len(), &after[0]["id"]), (1, &before[0]["id"]), "{phase:?}");
    stage.recovers(1).await;
    assert!(stage.runs(1) <= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_and_server_that_die_together_lose_no_call_and_run_none_twice() {
    tokio::join!(
        both_gone_at(Phase::Parked),
        both_gone_at(Phase::Approved),
        both_gone_at(Phase::Executing),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_of_the_gateway_alone_loses_no_call_of_the_server_either() {
    let (_postgres, stage) = open().await;
    killed_at_random(stage, Size { kills: 8, calls: 20 }).await;
}
