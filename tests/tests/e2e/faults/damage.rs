//! A state file with damaged pages: refused with its name, and never read as something else.

use super::cycle::Stage;
use super::{refused, stranger};
use portcullis_tests::house::{Folder, House};
use serde_json::Value;
use std::fs;
use std::path::Path;

const PAGE: usize = 4096;
const CHECKPOINT: &str = "import sqlite3, sys
state = sqlite3.connect(sys.argv[1])
state.execute('PRAGMA wal_checkpoint(TRUNCATE)')
state.close()";
const CARDS: u32 = 12;

/// A folder whose state file holds parked calls.
async fn filled() -> (Folder, Vec<Value>) {
    let stage = Stage::open().await;
    for amount in 0..CARDS {
        drop(stage.call(amount));
    }
    let mut cards = stage.house.parked(CARDS as usize).await;
    cards.iter_mut().for_each(forget_the_caller);
    (in_one_file(stage.house).await, cards)
}

// Whether somebody waits is the one thing that a restart changes.
fn forget_the_caller(card: &mut Value) {
    for member in ["unattended", "updated", "deadline", "version"] {
        card[member].take();
    }
}

// Stopped, with everything in the file itself and nothing in its log.
async fn in_one_file(house: House) -> Folder {
    let folder = house.kill().await;
    let file = folder.path().join("state/state.db");
    assert!(stranger(CHECKPOINT, &file).wait().await.unwrap().success());
    assert!(fs::metadata(&file).unwrap().len() > 4 * PAGE as u64);
    folder
}

fn flip(bytes: &mut [u8]) {
    for byte in bytes {
        *byte ^= 0xff;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_is_refused_by_name_or_changes_no_card() {
    let (mut folder, cards) = filled().await;
    let file = folder.path().join("state/state.db");
    let whole = fs::read(&file).unwrap();
    let (pages, mut refusals) = (whole.len() / PAGE, 0);
    for page in 0..pages {
        let mut bytes = whole.clone();
        flip(&mut bytes[page * PAGE..][..PAGE][..PAGE / 2]);
        fs::write(&file, &bytes).unwrap();
        if let Some(said) = refused(&folder).await {
            names_the_file(&said);
            refusals += 1;
            continue;
        }
        let house = House::process(folder).await;
        let (status, list) = house.api("GET", "/v1/approvals?state=parked", None).await;
        if status == 200 {
            let mut items = list["items"].as_array().cloned().unwrap();
            items.iter_mut().for_each(forget_the_caller);
            assert_eq!(items, cards, "page {page}");
        }
        folder = house.kill().await;
        for stale in ["state.db-wal", "state.db-shm"] {
            drop(fs::remove_file(folder.path().join("state").join(stale)));
        }
    }
    // The rest are pages that nothing reads when it starts.
    assert!(refusals >= 5, "{refusals} of {pages}");
}

fn names_the_file(said: &str) {
    assert!(said.contains("state/state.db") && said.contains("damaged"), "{said}");
    assert!(said.contains("restore the file from a backup"), "{said}");
}

fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let length = bytes.len();
    flip(&mut bytes[length / 3..]);
    fs::write(file, &bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_damaged_under_a_running_gateway_runs_nothing_unapproved() {
    let stage = Stage::open().await;
    stage.recovers(1).await;
    let Stage { house, upstream, .. } = stage;
    let stage = Stage::on(in_one_file(house).await, upstream, Vec::new()).await;
    let held = stage.call(2);
    stage.house.parked(1).await;
    damage(&stage.house.folder.path().join("state/state.db"));
    let answer = stage.ends(2, held).await;
    stage.judge(2, &answer);
    let answer = stage.cycle(3).await;
    stage.judge(3, &answer);
    let folder = stage.house.kill().await;
    names_the_file(&refused(&folder).await.expect("it starts"));
}
