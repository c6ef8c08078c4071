//! A gateway in a temporary folder, started the way `portcullis serve` starts it.

use crate::agent::{Agent, Speaks};
use portcullis::config::Config;
use portcullis::{Gateway, StartError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Where a gateway that is a process writes its log, in its folder.
pub const LOG: &str = "gateway.log";

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder that goes with its owner.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A fresh folder.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("portcullis-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|e| fail(&e));
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).unwrap_or_else(|e| fail(&e));
        }
        std::fs::write(path, text).unwrap_or_else(|e| fail(&e));
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind lies in the temporary folder and hurts nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    std::panic::panic_any(error.to_string())
}

/// A running gateway.
#[derive(Debug)]
pub struct House {
    /// Its folder, which outlives a restart.
    pub folder: Folder,
    /// Base URL of the agents' listener.
    pub agents: String,
    /// Base URL of the admin listener.
    pub admin: String,
    /// Base URL of the observe listener.
    pub observe: String,
    http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
    process: Option<Child>,
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // One that has ended already is as good.
            let _ = process.start_kill();
        }
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Starts a gateway on `policy` with the default configuration.
pub async fn house(policy: &str) -> House {
    House::start(policy, "").await
}

impl House {
    /// Starts on `policy`; `spec` is YAML put into the gateway's `spec`.
    ///
    /// # Panics
    /// If the gateway does not start.
    pub async fn start(policy: &str, spec: &str) -> Self {
        Self::from(Self::folder(policy, spec)).await.unwrap_or_else(|e| fail(&e))
    }

    /// The folder of a gateway on `policy`, not started.
    #[must_use]
    pub fn folder(policy: &str, spec: &str) -> Folder {
        let folder = Folder::new();
        folder.write("policy/policy.yaml", policy);
        folder.write("gateway.yaml", &gateway_yaml(spec));
        folder.write("tokens.yaml", &tokens_yaml());
        folder
    }

    /// Starts on a folder as it is.
    ///
    /// # Errors
    /// What `portcullis serve` would print.
    pub async fn from(folder: Folder) -> Result<Self, StartError> {
        let config = Config::load(Some(&folder.path().join("gateway.yaml")), &BTreeMap::new())
            .map_err(StartError::from)?;
        let gateway = Gateway::bind_as(config, binary()).await?;
        let addresses = gateway.addresses();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(gateway.serve(async {
            // A sender that is gone means that the test is over.
            let _ = stopped.await;
        }));
        Ok(Self {
            folder,
            agents: format!("http://{}", addresses.agents),
            admin: format!("http://{}", addresses.admin),
            observe: format!("http://{}", addresses.observe),
            http: reqwest::Client::new(),
            stop: Some(stop),
            task: Some(task),
            process: None,
        })
    }

    /// Starts the gateway's own binary on a folder as it is.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn process(folder: Folder) -> Self {
        Self::process_with(folder, &[]).await
    }

    /// The same with more environment. Its log is `gateway.log` in the folder.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn process_with(folder: Folder, environment: &[(&str, &str)]) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(folder.path().join(LOG));
        let mut process = Command::new(binary())
            .args(["serve", "--config", "gateway.yaml"])
            .envs(environment.iter().copied())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.unwrap_or_else(|e| fail(&e)))
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|e| fail(&e));
        let Some(output) = process.stdout.take() else { fail(&"a child without output") };
        let mut lines = BufReader::new(output).lines();
        let mut urls = Vec::new();
        while urls.len() < 3 {
            let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
            let Ok(Ok(Some(line))) = line else { fail(&"the gateway did not come up") };
            let url = line.split_whitespace().find(|word| word.starts_with("http://127.0.0.1:"));
            let base = url.map(|url| url.split('/').take(3).collect::<Vec<_>>().join("/"));
            urls.extend(base);
        }
        let mut urls = urls.into_iter();
        let mut next = || urls.next().unwrap_or_default();
        Self {
            folder,
            agents: next(),
            admin: next(),
            observe: next(),
            http: reqwest::Client::new(),
            stop: None,
            task: None,
            process: Some(process),
        }
    }

    /// The process id of the gateway, if it is a process of its own.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// Waits until the process ends by itself with exit code `code`; returns the folder.
    ///
    /// # Panics
    /// If it does not, or with another code.
    pub async fn ended(mut self, code: i32) -> Folder {
        let Some(process) = &mut self.process else { fail(&"this gateway is no process") };
        match tokio::time::timeout(Duration::from_secs(40), process.wait()).await {
            Ok(Ok(status)) => assert_eq!(status.code(), Some(code)),
            Ok(Err(error)) => fail(&error),
            Err(_) => fail(&"the gateway did not end"),
        }
        std::mem::take(&mut self.folder)
    }

    /// Ends the process with SIGKILL and returns the folder.
    pub async fn kill(mut self) -> Folder {
        if let Some(process) = &mut self.process {
            // Killing waits until it is gone.
            let _ = process.kill().await;
        }
        std::mem::take(&mut self.folder)
    }

    /// Stops in order and returns the folder.
    pub async fn stop(mut self) -> Folder {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(task) = self.task.take() {
            let _ = tokio::time::timeout(Duration::from_secs(20), task).await;
        }
        std::mem::take(&mut self.folder)
    }

    /// The token of an agent.
    #[must_use]
    pub fn token(&self, agent: &str) -> String {
        token(agent)
    }

    /// The aggregated endpoint of an agent.
    #[must_use]
    pub fn url(&self, agent: &str) -> String {
        format!("{}/a/{agent}/mcp", self.agents)
    }

    /// Connects an agent.
    ///
    /// # Panics
    /// If the handshake fails.
    pub async fn agent(&self, name: &str, speaks: Speaks) -> Agent {
        Agent::connect(&self.url(name), &token(name), speaks).await.unwrap_or_else(|e| fail(&e))
    }

    /// A request to the admin API with the operator's token.
    ///
    /// # Panics
    /// If no answer comes.
    pub async fn api(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let token = std::fs::read_to_string(self.folder.path().join("state/admin.token"));
        let token = token.unwrap_or_else(|e| fail(&e));
        self.api_as(token.trim(), method, path, body).await
    }

    /// The same with another credential.
    ///
    /// # Panics
    /// If no answer comes.
    pub async fn api_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let method = method.parse().unwrap_or(reqwest::Method::GET);
        let mut request =
            self.http.request(method, format!("{}{path}", self.admin)).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap_or_else(|e| fail(&e));
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_default();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Waits until `count` calls are parked; returns their cards.
    ///
    /// # Panics
    /// If that takes longer than ten seconds.
    pub async fn parked(&self, count: usize) -> Vec<Value> {
        for _ in 0..200 {
            let (_, list) = self.api("GET", "/v1/approvals?state=parked", None).await;
            let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            if items.len() == count {
                return items;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        fail(&format!("{count} parked calls did not appear"))
    }

    /// Decides a card as the operator; returns status and answer.
    pub async fn decide(&self, card: &Value, decision: &str, reason: Option<&str>) -> (u16, Value) {
        let id = card.get("id").and_then(Value::as_str).unwrap_or_default();
        let mut body = serde_json::json!({"decision": decision, "digest": card.get("digest")});
        if let (Some(reason), Some(body)) = (reason, body.as_object_mut()) {
            body.insert("reason".to_owned(), Value::from(reason));
        }
        self.api("POST", &format!("/v1/approvals/{id}/decision"), Some(body)).await
    }

    /// A page of the observe listener.
    ///
    /// # Panics
    /// If no answer comes.
    pub async fn observe(&self, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.observe);
        let response = self.http.get(url).send().await.unwrap_or_else(|e| fail(&e));
        (response.status().as_u16(), response.text().await.unwrap_or_default())
    }

    /// All lines of the audit.
    #[must_use]
    pub fn audit(&self) -> Vec<Value> {
        let folder = self.folder.path().join("state/audit");
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        files.sort();
        files
            .iter()
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .flat_map(|text| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>())
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect()
    }
}

/// The gateway's own binary, beside the test's or in the folder above it.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_else(|e| fail(&e));
    let folders = own.ancestors().skip(1).take(2);
    match folders.map(|folder| folder.join("portcullis")).find(|binary| binary.is_file()) {
        Some(binary) => binary,
        None => fail(
            &"the gateway's binary is missing: run `cargo build --workspace --bins` with the same profile first",
        ),
    }
}

/// The token a test gives an agent.
#[must_use]
pub fn token(agent: &str) -> String {
    // 43 characters of base64url, the same for the same agent.
    let digest = portcullis_policy::canonical::Digest::of(agent.to_ascii_lowercase().as_bytes());
    format!("pcl_agent_{}", digest.short(43))
}

/// Names of agents that tests may use; each has its token in the token file.
pub const AGENTS: &[&str] =
    &["support", "assistant", "other", "a1", "a2", "a3", "a4", "a5", "a6", "a7"];

fn gateway_yaml(spec: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Gateway\nspec:\n  listen: {{agents: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", observe: \"127.0.0.1:0\"}}\n  stateDir: state\n  policy: {{dirs: [policy]}}\n  auth: {{tokenFile: tokens.yaml}}\n{spec}"
    )
}

fn tokens_yaml() -> String {
    let entries = AGENTS.iter().map(|agent| {
        let digest = portcullis_policy::canonical::Digest::of(token(agent).as_bytes());
        format!("  - {{agent: {agent}, sha256: \"{}\"}}\n", digest.hex())
    });
    format!("agents:\n{}", entries.collect::<String>())
}
