//! `portcullis runs`, `start` and `stop`: live delegations, listed, begun and ended.

use super::Exit;
use super::card::aligned;
use super::door::{Door, DoorError};
use super::screen::{complain, json, plain, print};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// Arguments of `runs`.
#[derive(Debug, Clone, Args)]
pub struct RunsArgs {
    /// Those that ended as well.
    #[arg(long)]
    pub all: bool,
    /// Only those of this agent.
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `start`.
#[derive(Debug, Clone, Args)]
pub struct StartArgs {
    /// The agent.
    #[arg(long, value_name = "AGENT")]
    pub agent: String,
    /// The run above it.
    #[arg(long, value_name = "RUN")]
    pub parent: Option<String>,
    /// The agent above it, which must have one credential.
    #[arg(long, value_name = "AGENT", conflicts_with = "parent")]
    pub parent_agent: Option<String>,
    /// How long it lives, such as `30m`.
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<String>,
    /// A JSON file that says what it may reach of what its agent may reach.
    #[arg(long, value_name = "FILE")]
    pub narrow: Option<PathBuf>,
    /// No person watches it.
    #[arg(long)]
    pub unattended: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `stop`.
#[derive(Debug, Clone, Args)]
pub struct StopArgs {
    /// The id of the run, or the beginning of it.
    pub run: String,
    /// Why, as its agents are told.
    #[arg(long, short, value_name = "TEXT")]
    pub message: Option<String>,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Box<RawValue>>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    run: String,
    agent: String,
    parent: Option<String>,
    state: String,
    unnamed: bool,
    created: String,
    created_by: String,
    expires: Option<String>,
    why: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewRun<'a> {
    agent: &'a str,
    parent: Option<&'a str>,
    parent_agent: Option<&'a str>,
    ttl: Option<&'a str>,
    // As it is in the file: the gateway reads it strictly.
    narrow: Option<Box<RawValue>>,
    unattended: bool,
}

#[derive(Deserialize)]
struct Ended {
    run: String,
    ended: Vec<String>,
    settled: Vec<Value>,
}

pub(super) async fn runs(args: &RunsArgs) -> Exit {
    finish(listed(args).await)
}

pub(super) async fn start(args: &StartArgs) -> Exit {
    finish(started(args).await)
}

pub(super) async fn stop(args: &StopArgs) -> Exit {
    finish(stopped(args).await)
}

fn finish(done: Result<Exit, DoorError>) -> Exit {
    done.unwrap_or_else(|error| {
        complain(&error.to_string());
        error.exit()
    })
}

async fn listed(args: &RunsArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let mut query: Vec<(&str, &str)> = Vec::new();
    query.extend(args.all.then_some(("all", "true")));
    query.extend(args.agent.as_deref().map(|agent| ("agent", agent)));
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut page = query.clone();
        page.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let text = admin.get("/v1/runs", &page).await?;
        let list: List = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
        items.extend(list.items);
        match list.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    if args.json {
        let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
        return Ok(print(&format!("[{}]\n", json(&items.join(",")))));
    }
    let mut rows =
        vec![["RUN", "AGENT", "PARENT", "STATE", "STARTED", "BY", "UNTIL"].map(String::from)];
    for item in &items {
        let run: Run = serde_json::from_str(item.get()).map_err(|error| admin.foreign(&error))?;
        rows.push(row(&run));
    }
    if rows.len() == 1 {
        return Ok(print("no runs; a harness starts them, or `portcullis start --agent AGENT`"));
    }
    Ok(print(&aligned(&rows)))
}

fn row(run: &Run) -> [String; 7] {
    let by = if run.unnamed { "its credential" } else { &run.created_by };
    let until = match (&run.why, &run.expires) {
        (Some(why), _) => why,
        (None, Some(expires)) => expires,
        (None, None) => "its credential ends",
    };
    let parent = run.parent.as_deref().unwrap_or("-");
    [&run.run, &run.agent, parent, &run.state, &run.created, by, until].map(plain)
}

async fn started(args: &StartArgs) -> Result<Exit, DoorError> {
    let narrow = args.narrow.as_deref().map(narrow).transpose()?;
    let admin = args.door.open().await?;
    let body = NewRun {
        agent: &args.agent,
        parent: args.parent.as_deref(),
        parent_agent: args.parent_agent.as_deref(),
        ttl: args.ttl.as_deref(),
        narrow,
        unattended: args.unattended,
    };
    let body = serde_json::to_string(&body).map_err(|error| admin.foreign(&error))?;
    let text = admin.post("/v1/runs", body).await?.done()?;
    if args.json {
        return Ok(print(&json(&text)));
    }
    let run: Value = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    let member = |name| plain(run.get(name).and_then(Value::as_str).unwrap_or_default());
    let tools = run.get("tools").and_then(Value::as_array).map_or(0, Vec::len);
    for found in run.get("diagnostics").and_then(Value::as_array).into_iter().flatten() {
        complain(&plain(found.get("message").and_then(Value::as_str).unwrap_or_default()));
    }
    Ok(print(&format!(
        "run    {}\nurl    {}\ntoken  {}\nuntil  {}\ntools  {tools}\n",
        member("run"),
        member("url"),
        member("token"),
        member("expires")
    )))
}

fn narrow(file: &Path) -> Result<Box<RawValue>, DoorError> {
    let shown = plain(&file.display().to_string());
    let text = std::fs::read_to_string(file)
        .map_err(|error| DoorError::Refused(format!("`{shown}` cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        DoorError::Refused(format!("`{shown}` is no JSON: {}", plain(&error.to_string())))
    })
}

async fn stopped(args: &StopArgs) -> Result<Exit, DoorError> {
    // The id becomes part of a path, so nothing but an id may.
    let plain_id = args.run.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if args.run.is_empty() || !plain_id {
        return Err(DoorError::Refused(format!("`{}` is not the id of a run", plain(&args.run))));
    }
    let admin = args.door.open().await?;
    let query: Vec<(&str, &str)> =
        args.message.as_deref().map(|why| ("why", why)).into_iter().collect();
    let text = admin.delete_with(&format!("/v1/runs/{}", args.run), &query).await?.done()?;
    let ended: Ended = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    if ended.ended.is_empty() {
        complain(&format!("{} had ended already", plain(&ended.run)));
        return Ok(Exit::Finding);
    }
    Ok(print(&format!(
        "stopped {}: {} ended, {} settled\n",
        plain(&ended.run),
        counted(ended.ended.len(), "run"),
        counted(ended.settled.len(), "approval")
    )))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
