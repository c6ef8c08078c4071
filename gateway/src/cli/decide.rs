//! `portcullis show`, `approve` and `deny`: what is decided is what was shown.

use super::Exit;
use super::card::Card;
use super::door::{Admin, Door, DoorError};
use super::screen::{complain, decorated, json as escaped, plain, print};
use clap::Args;
use portcullis_policy::canonical::canonical;
use portcullis_policy::difference::difference;
use portcullis_policy::json::JsonLimits;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};

/// Arguments of `show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// The id of the approval, or the beginning of it.
    pub id: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `approve`.
#[derive(Debug, Clone, Args)]
pub struct ApproveArgs {
    /// The id of the approval, or the beginning of it.
    pub id: String,
    /// Do not ask; what is decided is printed all the same.
    #[arg(long, short)]
    pub yes: bool,
    /// Let the same call pass again, as long as its run lives.
    #[arg(long, conflicts_with = "time")]
    pub for_run: bool,
    /// The same for so long, such as `10m`.
    #[arg(long = "for", value_name = "TIME", id = "time")]
    pub time: Option<String>,
    /// With one of these: any call of the tool, not only the same one.
    #[arg(long)]
    pub any_args: bool,
    /// Run with the arguments in this JSON file instead; they are checked against the tool's schema.
    #[arg(long, value_name = "FILE")]
    pub args: Option<PathBuf>,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `deny`.
#[derive(Debug, Clone, Args)]
pub struct DenyArgs {
    /// The id of the approval, or the beginning of it.
    pub id: String,
    /// Why; the agent reads it.
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    pub message: String,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// A decision as the API takes it.
#[derive(Serialize)]
struct Wish<'a> {
    decision: &'static str,
    digest: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<Standing<'a>>,
}

#[derive(Serialize)]
struct Standing<'a> {
    covers: &'static str,
    lasts: &'a str,
}

pub(super) async fn show(args: &ShowArgs) -> Exit {
    finish(shown(args).await)
}

pub(super) async fn approve(args: &ApproveArgs) -> Exit {
    finish(approved(args).await)
}

pub(super) async fn deny(args: &DenyArgs) -> Exit {
    finish(denied(args).await)
}

fn finish(result: Result<Exit, DoorError>) -> Exit {
    result.unwrap_or_else(|error| {
        complain(&error.to_string());
        error.exit()
    })
}

async fn shown(args: &ShowArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let text = text(&admin, &args.id).await?;
    if args.json {
        return Ok(print(&escaped(&text)));
    }
    let card: Card = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    let ended = if card.state == "parked" { String::new() } else { format!("{}\n", card.ended()) };
    Ok(print(&format!("{}{ended}", decorated(&card.shown()))))
}

async fn approved(args: &ApproveArgs) -> Result<Exit, DoorError> {
    let edited = args.args.as_deref().map(edited).transpose()?;
    let standing = standing(args)?;
    let admin = args.door.open().await?;
    let card = card(&admin, &args.id).await?;
    print(&decorated(&card.shown()));
    if card.state != "parked" {
        complain(&card.ended());
        return Ok(Exit::Finding);
    }
    if !card.is_whole() {
        complain("the digest is not that of the arguments shown, so nothing was decided");
        return Ok(Exit::Finding);
    }
    if let Some(edited) = &edited {
        print(&decorated(&changes(&card, edited)?));
    }
    let question = match (&edited, &standing) {
        (None, None) => "Let it run, once, exactly as shown?",
        (Some(_), None) => "Let it run, once, with these changes?",
        (_, Some(_)) => "Let it run, and what it covers from now on?",
    };
    if !args.yes && stdin().is_terminal() && !confirmed(question) {
        complain("nothing was decided");
        return Ok(Exit::Finding);
    }
    let wish = Wish {
        decision: "approve",
        digest: card.digest.as_deref().unwrap_or_default(),
        reason: None,
        arguments: edited.and_then(|text| RawValue::from_string(text).ok()),
        standing,
    };
    let done = "approved; it runs once, as soon as its caller collects it";
    decided(&admin, &card, &wish, done).await
}

fn standing(args: &ApproveArgs) -> Result<Option<Standing<'_>>, DoorError> {
    let covers = if args.any_args { "tool" } else { "arguments" };
    let lasts = match (&args.time, args.for_run) {
        (Some(time), _) => time,
        (None, true) => "run",
        (None, false) if args.any_args => {
            let text = "`--any-args` goes with `--for TIME` or `--for-run`";
            return Err(DoorError::Refused(text.to_owned()));
        }
        (None, false) => return Ok(None),
    };
    Ok(Some(Standing { covers, lasts }))
}

// In its one form, as it would be digested.
fn edited(file: &Path) -> Result<String, DoorError> {
    let named = plain(&file.display().to_string());
    let refused = |why: &dyn std::fmt::Display| {
        DoorError::Refused(format!("`{named}`: {}", plain(&why.to_string())))
    };
    let text = std::fs::read(file).map_err(|error| refused(&error))?;
    canonical(&text, JsonLimits::default()).map_err(|error| refused(&error))
}

fn changes(card: &Card, edited: &str) -> Result<String, DoorError> {
    let before = card.arguments.as_deref().unwrap_or_default();
    let found = difference(before, edited, JsonLimits::default())
        .map_err(|error| DoorError::Refused(plain(&error.to_string())))?;
    let Some(found) = found.filter(|_| before != edited) else {
        let text = match before == edited {
            true => {
                return Err(DoorError::Refused(
                    "the file changes nothing of the arguments".to_owned(),
                ));
            }
            false => "change     they differ, and are too long to say where\n",
        };
        return Ok(text.to_owned());
    };
    if found.is_empty() {
        return Err(DoorError::Refused("the file changes nothing of the arguments".to_owned()));
    }
    let mut out = String::new();
    for change in found {
        let side = |side: Option<String>| side.as_deref().map_or("nothing".to_owned(), plain);
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "{:<10} {}: {} instead of {}",
            "change",
            plain(&change.path.join(".")),
            side(change.after),
            side(change.before)
        );
    }
    Ok(out)
}

async fn denied(args: &DenyArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let card = card(&admin, &args.id).await?;
    print(&decorated(&card.shown()));
    let wish = Wish {
        decision: "deny",
        digest: card.digest.as_deref().unwrap_or_default(),
        reason: Some(args.message.as_str()).filter(|reason| !reason.is_empty()),
        arguments: None,
        standing: None,
    };
    decided(&admin, &card, &wish, "denied; it will not run").await
}

async fn card(admin: &Admin, id: &str) -> Result<Card, DoorError> {
    serde_json::from_str(&text(admin, id).await?).map_err(|error| admin.foreign(&error))
}

async fn text(admin: &Admin, id: &str) -> Result<String, DoorError> {
    // The id becomes part of a path, so nothing but an id may.
    let plain_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain_id {
        return Err(DoorError::Refused(format!("`{}` is not the id of an approval", plain(id))));
    }
    admin.get(&format!("/v1/approvals/{id}"), &[]).await
}

async fn decided(
    admin: &Admin,
    card: &Card,
    wish: &Wish<'_>,
    done: &str,
) -> Result<Exit, DoorError> {
    let path = format!("/v1/approvals/{}/decision", card.id);
    let body = serde_json::to_string(wish).map_err(|error| admin.foreign(&error))?;
    let answer = admin.post(&path, body).await?;
    match answer.status {
        200 => Ok(print(&format!("{}\n", outstanding(&answer.text).as_deref().unwrap_or(done)))),
        409 => {
            let settled: Card =
                serde_json::from_str(&answer.text).map_err(|error| admin.foreign(&error))?;
            complain(&settled.ended());
            Ok(Exit::Finding)
        }
        _ => Err(answer.refused()),
    }
}

// What is missing of an approval that needs several.
fn outstanding(card: &str) -> Option<String> {
    let card: Value = serde_json::from_str(card).ok()?;
    if card.get("state")? != "parked" {
        return None;
    }
    let votes = card.get("votes")?.as_array()?.len();
    let needed = card.get("needed")?;
    Some(format!("your approval counts; {votes} of {needed} are there, and it runs with the last"))
}

fn confirmed(question: &str) -> bool {
    print(&format!("{question} Type `yes`:"));
    let mut line = String::new();
    stdin().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("yes")
}
