//! `portcullis approvals`: the waiting calls, once or whenever they change.

use super::Exit;
use super::card::{Card, table};
use super::door::{Admin, Door, DoorError};
use super::screen::{complain, json, print};
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{IsTerminal as _, stdout};

/// Arguments of `approvals`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalsArgs {
    /// Stay, and print the list again whenever it changes.
    #[arg(long)]
    pub watch: bool,
    /// Settled ones as well.
    #[arg(long, conflicts_with = "state")]
    pub all: bool,
    /// Only in these states, with commas between them.
    #[arg(long, value_name = "STATES")]
    pub state: Option<String>,
    /// Only those of this agent.
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only those of this run.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Print JSON; with `--watch` one list a line.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// What is listed unless something else is asked for: all that is not over.
const OPEN_STATES: &str = "parked,approved,executing";
/// How long one request waits for a change, in seconds.
const WAIT_SECONDS: &str = "50";
/// Clears the screen and goes to its top.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Deserialize)]
struct List {
    items: Vec<Box<RawValue>>,
    cursor: Option<String>,
    revision: String,
}

pub(super) async fn approvals(args: &ApprovalsArgs) -> Exit {
    match listed(args).await {
        Ok(exit) => exit,
        Err(error) => {
            complain(&error.to_string());
            error.exit()
        }
    }
}

async fn listed(args: &ApprovalsArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let mut list = fetch(&admin, args, None).await?;
    let mut shown = rendered(&admin, args, &list)?;
    if !args.watch {
        return Ok(print(&shown));
    }
    let clear = if stdout().is_terminal() && !args.json { CLEAR } else { "" };
    loop {
        let exit = print(&format!("{clear}{shown}"));
        if exit != Exit::Done {
            return Ok(exit);
        }
        let before = shown;
        loop {
            list = fetch(&admin, args, Some(&list.revision)).await?;
            shown = rendered(&admin, args, &list)?;
            if shown != before {
                break;
            }
        }
    }
}

async fn fetch(
    admin: &Admin,
    args: &ApprovalsArgs,
    since: Option<&str>,
) -> Result<List, DoorError> {
    let mut query: Vec<(&str, &str)> = Vec::new();
    let state = args.state.as_deref().unwrap_or(OPEN_STATES);
    if !args.all {
        query.push(("state", state));
    }
    query.extend(args.agent.as_deref().map(|agent| ("agent", agent)));
    query.extend(args.run.as_deref().map(|run| ("run", run)));
    if let Some(since) = since {
        query.extend([("wait", WAIT_SECONDS), ("since", since)]);
    }
    let mut list = page(admin, &query).await?;
    let mut cursor = list.cursor.take();
    query.retain(|(name, _)| *name != "wait" && *name != "since");
    while let Some(after) = cursor {
        let mut query = query.clone();
        query.push(("cursor", &after));
        let more = page(admin, &query).await?;
        list.items.extend(more.items);
        cursor = more.cursor;
    }
    Ok(list)
}

async fn page(admin: &Admin, query: &[(&str, &str)]) -> Result<List, DoorError> {
    let text = admin.get("/v1/approvals", query).await?;
    serde_json::from_str(&text).map_err(|error| admin.foreign(&error))
}

fn rendered(admin: &Admin, args: &ApprovalsArgs, list: &List) -> Result<String, DoorError> {
    if args.json {
        let items: Vec<&str> = list.items.iter().map(|item| item.get()).collect();
        return Ok(format!("[{}]\n", json(&items.join(","))));
    }
    let card = |item: &RawValue| serde_json::from_str::<Card>(item.get());
    let cards: Result<Vec<Card>, _> = list.items.iter().map(|item| card(item)).collect();
    Ok(table(&cards.map_err(|error| admin.foreign(&error))?))
}
