//! One stdio server as a process group: how it is started, how it ends, what it says on stderr.
//!
//! No shell, a clean environment, the operator's command and nothing else. The group is started
//! through [`crate::child`] and never outlives the value that stands for it.

use crate::upstream::session::cut;
use bytes::BytesMut;
use parking_lot::Mutex;
use portcullis_policy::name::ServerName;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};

/// Variables of the gateway's environment that every child gets; all of `LC_*` too.
const INHERITED: [&str; 9] =
    ["PATH", "HOME", "LANG", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL", "TERM"];
/// How long a child may take to end after its input is closed.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// How long a group may take to end after SIGTERM.
const TERM_WAIT: Duration = Duration::from_millis(500);
/// Longest line of stderr that is logged, in bytes.
const STDERR_LINE_BYTES_MAX: usize = 4096;
/// Most lines of stderr that are logged in a second.
const STDERR_LINES_PER_SECOND: u32 = 50;

/// How to start one stdio server.
pub(crate) struct Launch {
    /// The gateway's own executable.
    pub(crate) executable: PathBuf,
    /// The command as the operator wrote it.
    pub(crate) command: String,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Its whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub(crate) cwd: Option<String>,
}

// Arguments and environment may hold secrets.
impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch({})", self.command)
    }
}

/// The environment of a child: the allow-list, `inherit`, and what the policy sets.
pub(crate) fn environment(
    inherit: &[String],
    own: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let listed = |name: &OsString| {
        name.to_str().is_some_and(|name| {
            INHERITED.contains(&name)
                || name.starts_with("LC_")
                || inherit.iter().any(|more| more == name)
        })
    };
    let set = |name: &OsString| own.iter().any(|(own, _)| name == own.as_str());
    let inherited = std::env::vars_os().filter(|(name, _)| listed(name) && !set(name));
    inherited.chain(own.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

/// The streams of a child.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Those that carry messages.
    pub(crate) pipes: Pipes,
    /// What it complains about.
    pub(crate) stderr: ChildStderr,
}

/// The two streams that carry messages.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// To the child.
    pub(crate) stdin: ChildStdin,
    /// From the child.
    pub(crate) stdout: ChildStdout,
}

impl Launch {
    /// Starts the process group.
    pub(crate) fn start(&self) -> Result<(Process, Streams), String> {
        if let Some(cwd) = &self.cwd
            && !Path::new(cwd).is_dir()
        {
            return Err(format!("the working folder `{}` does not exist", cut(cwd)));
        }
        let program = self.program()?;
        let mut command = Command::new(&self.executable);
        command.args(["__child", "--"]).arg(program).args(&self.args);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        let mut child = command.spawn().map_err(|error| {
            format!("`{}` cannot be started: {error}", self.executable.display())
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let streams = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let (Some(group), Some(((stdin, stdout), stderr))) = (group, streams) else {
            return Err("the process ended while it was started".to_owned());
        };
        let streams = Streams { pipes: Pipes { stdin, stdout }, stderr };
        Ok((Process { child, group: Group(group) }, streams))
    }

    // Found before the process is started, so that the operator reads which command is missing
    // and not that some process ended.
    fn program(&self) -> Result<PathBuf, String> {
        let command = self.command.as_str();
        if command == "portcullis" {
            return Ok(self.executable.clone());
        }
        if command.contains('/') {
            let path = match &self.cwd {
                Some(cwd) => Path::new(cwd).join(command),
                None => PathBuf::from(command),
            };
            return match std::path::absolute(&path) {
                Ok(path) if runs(&path) => Ok(path),
                _ => Err(format!("command not found: `{}` is no executable file", cut(command))),
            };
        }
        let path = self.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        let path = path.cloned().unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join(command))
            .find(|candidate| runs(candidate))
            .ok_or_else(|| format!("command not found: `{}` is in no folder of PATH", cut(command)))
    }
}

fn runs(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A running process group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Group,
}

// INVARIANT: the group is killed before its number can be used by another one, because the
// leader is reaped only by the `Child` beside it.
#[derive(Debug)]
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

impl Process {
    /// Waits for the end of the leader. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => described(status),
            Err(error) => format!("the process cannot be waited for: {error}"),
        }
    }

    /// Ends the group after its input was closed: waits, then SIGTERM, then SIGKILL.
    pub(crate) async fn stop(mut self) {
        if timeout(CLOSE_WAIT, self.child.wait()).await.is_err() {
            let _ = kill_process_group(self.group.0, Signal::TERM);
            let _ = timeout(TERM_WAIT, self.child.wait()).await;
            let _ = kill_process_group(self.group.0, Signal::KILL);
            let _ = timeout(TERM_WAIT, self.child.wait()).await;
        }
    }
}

fn described(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("the process exited with status {code}"),
        None => format!("the process was ended by a signal ({status})"),
    }
}

/// What a server said last on stderr, for the operator.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<String>>);

impl LastWords {
    /// `reason` with the last words, if there are any.
    pub(crate) fn after(&self, reason: &str) -> String {
        let said = self.0.lock();
        if said.is_empty() { reason.to_owned() } else { format!("{reason}; it last said: {said}") }
    }

    fn hear(&self, line: &str) {
        if !line.trim().is_empty() && !line.starts_with("portcullis: ") {
            *self.0.lock() = line.to_owned();
        }
    }
}

/// Relays stderr to the log until it ends. Owned by the connection's task set.
pub(crate) async fn relay_stderr(server: ServerName, mut stderr: ChildStderr, last: LastWords) {
    let mut buffer = BytesMut::with_capacity(STDERR_LINE_BYTES_MAX);
    let mut budget = Budget::new();
    // The rest of a line that was cut is not a line.
    let mut cut_off = false;
    loop {
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            let line = buffer.split_to(end + 1);
            if !std::mem::take(&mut cut_off) {
                log(&server, &line, &mut budget, &last);
            }
        }
        if buffer.len() >= STDERR_LINE_BYTES_MAX {
            if !std::mem::replace(&mut cut_off, true) {
                log(&server, &buffer, &mut budget, &last);
            }
            buffer.clear();
        }
        buffer.reserve(STDERR_LINE_BYTES_MAX);
        if !matches!(stderr.read_buf(&mut buffer).await, Ok(read) if read > 0) {
            if !buffer.is_empty() && !cut_off {
                log(&server, &buffer, &mut budget, &last);
            }
            return;
        }
    }
}

fn log(server: &ServerName, line: &[u8], budget: &mut Budget, last: &LastWords) {
    let shown = cut(String::from_utf8_lossy(line).trim_end());
    last.hear(&shown);
    if budget.take() {
        tracing::info!(target: "upstream", server = %server, hidden = budget.hidden_since(), "{shown}");
    }
}

// Lines a second; what is over it is counted and told with the next line that is shown.
#[derive(Debug)]
struct Budget {
    since: Instant,
    used: u32,
    hidden: u64,
}

impl Budget {
    fn new() -> Self {
        Self { since: Instant::now(), used: 0, hidden: 0 }
    }

    fn take(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            self.since = Instant::now();
            self.used = 0;
        }
        self.used = self.used.saturating_add(1);
        let shown = self.used <= STDERR_LINES_PER_SECOND;
        self.hidden += u64::from(!shown);
        shown
    }

    fn hidden_since(&mut self) -> u64 {
        std::mem::take(&mut self.hidden)
    }
}
