//! Parked calls when what is under the gateway breaks, by real faults from outside: system calls
//! that fail, a disk that is full, a database that is locked, damaged or gone, and SIGKILL.
//!
//! The gateway is a process of its own. What ran is judged by the upstream's own record alone.

mod calls;
mod cycle;
mod damage;
mod disk;
mod failpoints;
mod kills;
mod server;
mod told;

use portcullis_tests::house::{Folder, binary};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const START_WITHIN: Duration = Duration::from_secs(30);

/// What a gateway says that refuses to start on `folder`; `None` if it starts.
async fn refused(folder: &Folder) -> Option<String> {
    let mut serve = Command::new(binary());
    serve.args(["serve", "--config", "gateway.yaml"]).current_dir(folder.path());
    serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut process = serve.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let first = timeout(START_WITHIN, lines.next_line()).await.expect("neither starts nor ends");
    if first.unwrap().is_some() {
        // It says where it listens, so it has started.
        process.kill().await.unwrap();
        return None;
    }
    let output = process.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    assert!(code == Some(69) || code == Some(78), "{code:?}: {said}");
    Some(said)
}

/// A process that is no gateway and has the state file open, as `script` says.
fn stranger(script: &str, file: &Path) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    match command.kill_on_drop(true).spawn() {
        Ok(child) => child,
        Err(error) => panic!("python3: {error}; install it with: tests/debian python3"),
    }
}
