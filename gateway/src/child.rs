//! `portcullis __child -- command args…`: the process between the gateway and a stdio server.
//!
//! It leads the process group of the server and watches the pipe from the gateway. When that
//! pipe ends, because the gateway closed it or was killed, the server is asked to end by closing
//! its input and the whole group is killed a moment later: no survivor, whatever happened to the
//! gateway. It reads no configuration and understands no message.

use rustix::process::{Signal, getpgid, getpid, getppid, kill_process_group, setpgid};
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

/// How long a server may take to end after its input is closed, before its group is killed.
pub const GRACE: Duration = Duration::from_secs(4);

/// Relayed at one time, in bytes.
const RELAY_BYTES: usize = 64 * 1024;
/// Exit code when the command could not be started, as shells have it.
const NOT_STARTED: u8 = 127;

/// Runs the command given by `args`, the arguments after `__child`, and returns its exit code.
///
/// The caller must be the leader of a process group of its own, as the gateway starts it.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut args = args.skip_while(|arg| arg == "--");
    let Some(command) = args.next() else {
        report("no command is given");
        return ExitCode::from(NOT_STARTED);
    };
    let spawned = Command::new(&command).args(args).stdin(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            report(&format!("`{}` cannot be started: {error}", command.to_string_lossy()));
            return ExitCode::from(NOT_STARTED);
        }
    };
    if let Some(input) = child.stdin.take() {
        // Ends with this process; it has no state to give back.
        std::thread::spawn(move || relay(input));
    }
    let status = child.wait();
    let code = match status {
        Ok(status) => {
            report(&described(status));
            code_of(status)
        }
        Err(error) => {
            report(&format!("the server cannot be waited for: {error}"));
            1
        }
    };
    kill_rest();
    ExitCode::from(code)
}

fn relay(mut input: ChildStdin) {
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; RELAY_BYTES];
    loop {
        let read = match stdin.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        // A server that closed its input may still write: go on until the gateway closes ours.
        let _ = input.write_all(buffer.get(..read).unwrap_or_default());
    }
    drop(input);
    std::thread::sleep(GRACE);
    let _ = kill_process_group(getpid(), Signal::KILL);
}

// Children the server left behind die with it. This process first moves to the gateway's group,
// so that it lives to return the exit code; if it cannot, it dies with the rest.
fn kill_rest() {
    let own = getpid();
    if let Some(group) = getppid().and_then(|parent| getpgid(Some(parent)).ok())
        && group != own
    {
        let _ = setpgid(None, Some(group));
    }
    let _ = kill_process_group(own, Signal::KILL);
}

fn described(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("the server exited with status {code}"),
        None => format!("the server was ended by a signal ({status})"),
    }
}

fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

fn report(text: &str) {
    // Nobody may be left to read it.
    let _ = writeln!(std::io::stderr(), "portcullis: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, test_kill_process_group};
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::time::Instant;

    /// Set in the copy of this test binary that plays the child.
    const PLAYS: &str = "PORTCULLIS_TEST_CHILD";

    #[test]
    fn plays_the_child() {
        let Ok(script) = std::env::var(PLAYS) else { return };
        let args = ["--", "sh", "-c", &script].map(OsString::from);
        let code = run(args.into_iter());
        std::process::exit(i32::from(code == ExitCode::SUCCESS));
    }

    fn play(script: &str) -> (std::process::Child, Pid, BufReader<std::process::ChildStdout>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::tests::plays_the_child", "--nocapture"])
            .env(PLAYS, script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, group, out)
    }

    fn wait_for(line: &str, out: &mut BufReader<std::process::ChildStdout>) {
        let seen = out.lines().map_while(Result::ok).any(|seen| seen.contains(line));
        assert!(seen, "`{line}` was not written");
    }

    fn gone_within(group: Pid, limit: Duration) -> bool {
        let start = Instant::now();
        while test_kill_process_group(group).is_ok() {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    #[test]
    fn a_closed_pipe_ends_even_what_ignores_it() {
        let stubborn = "trap '' TERM HUP; (trap '' TERM HUP; sleep 600) & echo ready; sleep 600";
        let (mut child, group, mut out) = play(stubborn);
        wait_for("ready", &mut out);
        // What SIGKILL of the gateway does to the pipe.
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(gone_within(group, GRACE + Duration::from_secs(5)));
    }

    #[test]
    fn what_a_server_leaves_behind_dies_with_it() {
        let (mut child, group, mut out) = play("sleep 600 & echo ready; exit 3");
        wait_for("ready", &mut out);
        assert_eq!(child.wait().unwrap().code(), Some(0), "the code is passed on");
        assert!(gone_within(group, Duration::from_secs(5)));
    }

    #[test]
    fn input_is_relayed() {
        let (mut child, _, mut out) = play("read line; echo \"got $line\"");
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"hello\n").unwrap();
        wait_for("got hello", &mut out);
        child.wait().unwrap();
    }
}
