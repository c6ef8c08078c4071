//! Foreign programs: client libraries behind one contract, servers and command lines, all
//! installed by `tests/interop/install`.

use crate::house::Folder;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longest wait for one answer of a driver.
const STEP: Duration = Duration::from_secs(120);

/// The folder of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A program of `.interop/bin`.
///
/// # Panics
/// If it is not installed: a suite that cannot run has failed.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let root = std::env::var_os("PORTCULLIS_INTEROP").map(PathBuf::from);
    let path = root.unwrap_or_else(|| repository().join(".interop")).join("bin").join(name);
    if path.exists() {
        return path;
    }
    std::panic::panic_any(format!("{} is missing: run tests/interop/install", path.display()))
}

/// What the Inspector prints on both outputs when it is run with these words.
///
/// # Panics
/// If it does not start.
pub async fn inspect(url: &str, token: &str, home: &Folder, words: &[String]) -> String {
    let output = Command::new(program("mcp-inspector"))
        .args(["--cli", url, "--transport", "http", "--header"])
        .arg(format!("Authorization: Bearer {token}"))
        .args(words)
        .env("HOME", home.path())
        .current_dir(repository())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|e| std::panic::panic_any(format!("mcp-inspector: {e}")));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A connected client library.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// What it said when it had connected.
    pub hello: Value,
}

impl Driver {
    /// Connects `library` to `url`.
    ///
    /// # Panics
    /// If it does not start or does not connect.
    pub async fn connect(library: &str, url: &str, token: &str) -> Self {
        Self::connect_with(library, url, token, &[]).await
    }

    /// The same with settings of that library's driver.
    ///
    /// # Panics
    /// If it does not start or does not connect.
    pub async fn connect_with(
        library: &str,
        url: &str,
        token: &str,
        settings: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(program(library))
            .args([url, token])
            .args(settings.iter().map(|(name, value)| format!("{name}={value}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|e| std::panic::panic_any(format!("{library}: {e}")));
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            std::panic::panic_any("a child without pipes");
        };
        let output = BufReader::new(output).lines();
        let mut driver = Self { child, input, output, hello: Value::Null };
        driver.hello = driver.answer().await;
        assert_eq!(driver.hello.get("ok"), Some(&Value::Bool(true)), "{library}: {}", driver.hello);
        driver
    }

    /// Makes one step.
    ///
    /// # Panics
    /// If the driver is gone.
    pub async fn step(&mut self, step: &Value) -> Value {
        let line = format!("{step}\n");
        if let Err(error) = self.input.write_all(line.as_bytes()).await {
            std::panic::panic_any(format!("the driver is gone: {error}"));
        }
        self.answer().await
    }

    /// Names in the list of tools.
    pub async fn tools(&mut self) -> Vec<String> {
        let answer = self.step(&json!({"op": "list"})).await;
        let names = answer.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
        names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    }

    /// Calls a tool.
    pub async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.step(&json!({"op": "call", "name": name, "arguments": arguments})).await
    }

    async fn answer(&mut self) -> Value {
        let line = tokio::time::timeout(STEP, self.output.next_line()).await;
        match line {
            Ok(Ok(Some(line))) => serde_json::from_str(&line).unwrap_or(Value::String(line)),
            Ok(Ok(None)) => std::panic::panic_any(format!("the driver ended: {:?}", self.child)),
            Ok(Err(error)) => std::panic::panic_any(error.to_string()),
            Err(_) => std::panic::panic_any("the driver did not answer in time"),
        }
    }
}
