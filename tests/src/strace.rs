//! System calls of a running process that fail or kill it, made to by `strace` from outside.

use crate::house::Folder;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long attaching and detaching may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which calls fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct Fault<'a> {
    /// The system call.
    pub call: &'a str,
    /// What it returns, such as `EIO`.
    pub error: &'a str,
    /// Which of them, as `strace` counts in each thread: `3` is the third alone, `3+` all from it.
    pub when: &'a str,
}

/// A process under `strace`. It runs on untouched when this goes.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    trace: Folder,
}

impl Strace {
    /// Lets `fault` happen to the process, in calls on one of `files` alone.
    ///
    /// # Panics
    /// If `strace` is missing or may not attach.
    pub async fn attach(pid: u32, fault: Fault<'_>, files: &[&Path]) -> Self {
        let Fault { call, error, when } = fault;
        Self::inject(pid, (call, &format!("error={error}:when={when}")), files).await
    }

    /// Kills the process as it enters the `turn`th `call` on one of `files`, counted as `strace`
    /// counts: in each thread.
    ///
    /// # Panics
    /// If `strace` is missing or may not attach.
    pub async fn kills(pid: u32, call: &str, turn: u32, files: &[&Path]) -> Self {
        Self::inject(pid, (call, &format!("signal=KILL:when={turn}")), files).await
    }

    async fn inject(pid: u32, (call, effect): (&str, &str), files: &[&Path]) -> Self {
        let trace = Folder::new();
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &pid.to_string()]);
        command.args(["-e", &format!("trace={call}")]);
        command.args(["-e", &format!("inject={call}:{effect}")]);
        for file in files {
            command.arg("-P").arg(file);
        }
        command.arg("-o").arg(trace.path().join("trace"));
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("strace: {error}; install it with: tests/debian strace"),
        };
        let Some(stderr) = child.stderr.take() else { panic!("strace without stderr") };
        let mut lines = BufReader::new(stderr).lines();
        let mut said = String::new();
        while !said.contains(" attached") {
            match timeout(PATIENCE, lines.next_line()).await {
                Ok(Ok(Some(line))) => said += &line,
                _ => panic!(
                    "strace cannot attach to the gateway: {said}; run as root, or: sysctl kernel.yama.ptrace_scope=0"
                ),
            }
        }
        // It would stop at a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, trace }
    }

    /// Waits until the process is gone.
    pub async fn gone(&mut self) {
        // An error means the same: there is nothing to wait for.
        drop(self.child.wait().await);
    }

    /// Lets go of the process; returns the calls that were made to fail.
    ///
    /// # Panics
    /// If `strace` does not end.
    pub async fn detach(mut self) -> Vec<String> {
        let pid = self.child.id().map(|pid| pid.to_string()).unwrap_or_default();
        // A process that is gone has let go of it already.
        drop(Command::new("kill").args(["-INT", &pid]).stderr(Stdio::null()).status().await);
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            panic!("strace does not end");
        }
        let trace = std::fs::read_to_string(self.trace.path().join("trace")).unwrap_or_default();
        trace.lines().filter(|line| line.contains("(INJECTED)")).map(str::to_owned).collect()
    }
}
