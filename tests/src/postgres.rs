//! A PostgreSQL server of a test's own, to take away from under the gateway and to give back.

use crate::house::Folder;
use std::process::{Command as Blocking, Stdio};
use tokio::process::Command;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/postgres/server");

/// A running server. It goes with its owner.
#[derive(Debug)]
pub struct Postgres {
    folder: Folder,
    url: String,
}

impl Postgres {
    /// Starts a fresh server on a free port.
    ///
    /// # Panics
    /// If it does not start; the message says what to install.
    pub async fn start() -> Self {
        let folder = Folder::new();
        let url = server(&folder, "start").await;
        Self { folder, url }
    }

    /// Where it listens; the same after a restart.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends every process of the server with SIGKILL.
    ///
    /// # Panics
    /// If it was not running.
    pub async fn kill(&self) {
        server(&self.folder, "kill").await;
    }

    /// Starts it again, on the same port and the same data.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&self) {
        let url = server(&self.folder, "start").await;
        assert_eq!(url, self.url, "the port stays");
    }

    /// Runs one statement and returns its rows as text.
    ///
    /// # Panics
    /// If the server does not take it.
    pub async fn run(&self, statement: &str) -> String {
        let args = ["--no-psqlrc", "--tuples-only", "--no-align", "--command"];
        said(Command::new("psql").arg(&self.url).args(args).arg(statement)).await
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its data goes with the folder, so nothing is lost by ending it at once.
        let kill = Blocking::new(SERVER)
            .arg("kill")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        // A server that is gone already is as good.
        drop(kill);
    }
}

async fn server(folder: &Folder, command: &str) -> String {
    said(Command::new(SERVER).arg(command).arg(folder.path())).await
}

async fn said(command: &mut Command) -> String {
    let output = match command.stdin(Stdio::null()).output().await {
        Ok(output) => output,
        Err(error) => panic!("{command:?}: {error}; install it with: tests/debian postgresql"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_committed_outlives_a_crash_of_the_server() {
        let postgres = Postgres::start().await;
        postgres.run("CREATE TABLE kept (word text)").await;
        postgres.run("INSERT INTO kept VALUES ('here')").await;
        postgres.kill().await;
        postgres.restart().await;
        assert_eq!(postgres.run("SELECT word FROM kept").await, "here");
        assert_eq!(postgres.run("SHOW fsync").await, "on");
    }
}
