//! A state file that cannot be written: locked by a stranger, on a full disk, read-only.

use super::cycle::{Phase, Stage};
use super::{refused, stranger};
use portcullis_tests::house::House;
use portcullis_tests::strace::{Fault, Strace};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Longer than the gateway waits for a lock, which is five seconds.
const LOCKED: Duration = Duration::from_secs(6);
const FULL: Duration = Duration::from_millis(1500);
const LOCK: &str = "import sqlite3, sys
state = sqlite3.connect(sys.argv[1], isolation_level=None)
state.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()";

/// A stranger that holds the lock of a database until it goes.
async fn lock(file: &Path) -> Child {
    let mut child = stranger(LOCK, file);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("locked"));
    child
}

async fn locked_at(phase: Phase) {
    let stage = Stage::open().await;
    let file = stage.house.folder.path().join("state/state.db");
    let locking = Mutex::new(None);
    let breaks = async || *locking.lock().await = Some(lock(&file).await);
    let heals = async || {
        sleep(LOCKED).await;
        locking.lock().await.take().unwrap().kill().await.unwrap();
    };
    stage.struck(phase, breaks, heals).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_locked_by_a_stranger_loses_no_call_and_runs_none_twice() {
    tokio::join!(
        locked_at(Phase::Asked),
        locked_at(Phase::Parked),
        locked_at(Phase::Approved),
        locked_at(Phase::Executing),
    );
}

/// A small disk of its own under a folder. It goes with its owner.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this user may not mount one.
    fn mount(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let options = format!("size={size},mode=0700");
        let mount = Blocking::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&at)
            .stderr(Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then_some(Self(at))
    }

    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }

    fn read_only(&self) {
        let mount = Blocking::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(mount.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: whoever has files open on it keeps them.
        drop(Blocking::new("umount").arg("-l").arg(&self.0).status());
        // The folder around it could not go while this was there.
        for empty in self.0.ancestors().take(2) {
            drop(fs::remove_dir(empty));
        }
    }
}

// The whole state folder is on the full disk, the audit trail with it.
async fn full_at(phase: Phase) {
    let (folder, upstream) = Stage::folder("").await;
    let Some(disk) = Disk::mount(folder.path().join("state"), "1m") else {
        return full_as_the_process_sees_it_at(phase).await;
    };
    let stage = Stage::on(folder, upstream, Vec::new()).await;
    let heals = async || {
        sleep(FULL).await;
        disk.free();
    };
    stage.struck(phase, async || disk.fill(), heals).await;
}

// Where nothing may be mounted every write fails as it would on such a disk.
async fn full_as_the_process_sees_it_at(phase: Phase) {
    let stage = Stage::open().await;
    let state = stage.house.folder.path().join("state");
    let files = [state.join("state.db"), state.join("state.db-wal")];
    let files = [files[0].as_path(), files[1].as_path()];
    let fault = Fault { call: "pwrite64", error: "ENOSPC", when: "1+" };
    let strace = Mutex::new(None);
    let pid = stage.house.pid().unwrap();
    let breaks = async || *strace.lock().await = Some(Strace::attach(pid, fault, &files).await);
    let heals = async || {
        sleep(FULL).await;
        strace.lock().await.take().unwrap().detach().await;
    };
    stage.struck(phase, breaks, heals).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_for_a_while_loses_no_call_and_runs_none_twice() {
    tokio::join!(
        full_at(Phase::Asked),
        full_at(Phase::Parked),
        full_at(Phase::Approved),
        full_at(Phase::Executing),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_fail_for_a_while_lose_no_call_and_run_none_twice() {
    tokio::join!(
        full_as_the_process_sees_it_at(Phase::Asked),
        full_as_the_process_sees_it_at(Phase::Parked),
        full_as_the_process_sees_it_at(Phase::Approved),
        full_as_the_process_sees_it_at(Phase::Executing),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_folder_that_is_read_only_is_refused_at_start_by_its_name() {
    let folder = Stage::folder("").await.0;
    let state = folder.path().join("state");
    let disk = Disk::mount(state.clone(), "1m");
    let folder = House::process(folder).await.kill().await;
    match &disk {
        Some(disk) => disk.read_only(),
        None => fs::set_permissions(&state, fs::Permissions::from_mode(0o500)).unwrap(),
    }
    let said = refused(&folder).await.expect("it starts");
    let why = said.contains("Read-only file system") || said.contains("Permission denied");
    assert!(said.contains("`state/") && why, "{said}");
    if disk.is_none() {
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
