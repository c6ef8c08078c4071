//! `portcullis token`: credentials of agents and admins, made, listed and revoked while the
//! gateway runs; and a run's token for programs that connect.

use super::Exit;
use super::card::aligned;
use super::door::{Admin, Door, DoorError};
use super::screen::{complain, json, plain, print};
use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for an agent or an admin. It is printed once; only its hash is kept.
    #[command(
        after_help = "Examples:\n  portcullis token create --agent support --expires 90d\n  \
        portcullis token create --admin dana --role approver\n  \
        portcullis token create --admin ci --role harness --agents support,reviewer\n  \
        portcullis token create --agent support --replaces tok_4fz --overlap 1h"
    )]
    Create(TokenCreateArgs),
    /// List the tokens that `token create` made; those of files are in the files.
    List(TokenListArgs),
    /// Revoke a token: everything open on it closes before this command returns.
    #[command(after_help = "Example: portcullis token revoke tok_4fz")]
    Revoke(TokenRevokeArgs),
    /// Start a run of an agent and print its token, for programs that connect by a helper.
    #[command(after_help = "Example, in a Claude Code MCP server entry:\n  \
        \"headersHelper\": \"portcullis token print --agent reviewer\"")]
    Print(TokenPrintArgs),
}

/// Arguments of `token create`.
#[derive(Debug, Clone, Args)]
pub struct TokenCreateArgs {
    /// The agent it stands for.
    #[arg(long, value_name = "AGENT", conflicts_with = "admin", required_unless_present = "admin")]
    pub agent: Option<String>,
    /// The name of an admin, as decisions are recorded.
    #[arg(long, value_name = "NAME", requires = "role")]
    pub admin: Option<String>,
    /// What the admin may do.
    #[arg(long, value_name = "ROLE", requires = "admin")]
    pub role: Option<RoleName>,
    /// The agents of a harness, with commas between them.
    #[arg(long, value_name = "AGENTS", value_delimiter = ',', requires = "admin")]
    pub agents: Vec<String>,
    /// When it ends: `30d` from now, or a time such as `2027-01-31T00:00:00Z`; else never.
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// What it is for.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// A token of the same holder that this one takes the place of.
    #[arg(long, value_name = "TOKEN-ID")]
    pub replaces: Option<String>,
    /// How long the old one still counts; one hour if nothing is said.
    #[arg(long, value_name = "TIME", requires = "replaces")]
    pub overlap: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Roles of admins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    /// Reads.
    Viewer,
    /// Reads and decides.
    Approver,
    /// Starts and stops runs of its agents and reads their cards.
    Harness,
    /// The same, and decides their cards.
    #[value(name = "harness+approver")]
    HarnessApprover,
    /// Everything.
    Operator,
}

impl RoleName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Harness => "harness",
            Self::HarnessApprover => "harness+approver",
            Self::Operator => "operator",
        }
    }
}

/// Arguments of `token list`.
#[derive(Debug, Clone, Args)]
pub struct TokenListArgs {
    /// Revoked and expired ones as well.
    #[arg(long)]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `token revoke`.
#[derive(Debug, Clone, Args)]
pub struct TokenRevokeArgs {
    /// The id of the token, or the beginning of it.
    pub id: String,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `token print`.
#[derive(Debug, Clone, Args)]
pub struct TokenPrintArgs {
    /// The agent that connects.
    #[arg(long, value_name = "AGENT")]
    pub agent: String,
    /// The agent above it, which must have one credential.
    #[arg(long, value_name = "AGENT", conflicts_with = "parent")]
    pub parent_agent: Option<String>,
    /// The run above it.
    #[arg(long, value_name = "RUN")]
    pub parent: Option<String>,
    /// How long the run lives, such as `8h`.
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<String>,
    /// What is printed: a JSON object of HTTP headers, or the token alone.
    #[arg(long, value_name = "FORMAT", default_value = "headers")]
    pub format: PrintFormat,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// What `token print` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrintFormat {
    /// `{"Authorization": "Bearer …"}`.
    Headers,
    /// The token.
    Token,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Shown>,
}

#[derive(Deserialize)]
struct Shown {
    id: String,
    agent: Option<String>,
    admin: Option<String>,
    role: Option<String>,
    note: String,
    state: String,
    created: String,
    expires: Option<String>,
}

pub(super) async fn token(command: &TokenCommand) -> Exit {
    let done = match command {
        TokenCommand::Create(args) => create(args).await,
        TokenCommand::List(args) => list(args).await,
        TokenCommand::Revoke(args) => revoke(args).await,
        TokenCommand::Print(args) => printed(args).await,
    };
    done.unwrap_or_else(|error| {
        complain(&error.to_string());
        error.exit()
    })
}

async fn create(args: &TokenCreateArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<&str>| {
        body.extend(value.map(|value| (key.to_owned(), Value::from(value))));
    };
    put("agent", args.agent.as_deref());
    put("admin", args.admin.as_deref());
    put("role", args.role.map(RoleName::as_str));
    put("expires", args.expires.as_deref());
    put("note", args.note.as_deref());
    put("overlap", args.overlap.as_deref());
    if let Some(replaces) = &args.replaces {
        put("replaces", Some(&whole_id(&admin, replaces).await?));
    }
    if !args.agents.is_empty() {
        body.insert("agents".to_owned(), Value::from(args.agents.clone()));
    }
    let answer = admin.post("/v1/tokens", Value::Object(body).to_string()).await?;
    let text = answer.done()?;
    if args.json {
        return Ok(print(&json(&text)));
    }
    let made: Value = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    let member = |name| made.get(name).and_then(Value::as_str).unwrap_or_default();
    complain(&plain(&format!("made {}; it is shown once, keep it now:", member("id"))));
    Ok(print(&plain(member("token"))))
}

async fn list(args: &TokenListArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let text = admin.get("/v1/tokens", &[]).await?;
    if args.json {
        return Ok(print(&json(&text)));
    }
    let List { items } = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    let mut rows = vec![["TOKEN", "FOR", "STATE", "CREATED", "EXPIRES", "NOTE"].map(String::from)];
    rows.extend(items.iter().filter(|token| args.all || token.state == "live").map(|token| {
        let holder = match (&token.agent, &token.admin) {
            (Some(agent), _) => format!("agent {agent}"),
            (None, Some(admin)) => {
                format!("{} {admin}", token.role.as_deref().unwrap_or_default())
            }
            (None, None) => String::new(),
        };
        let expires = token.expires.as_deref().unwrap_or("never");
        [&token.id, &holder, &token.state, &token.created, expires, &token.note].map(plain)
    }));
    if rows.len() == 1 {
        return Ok(print("no tokens; `portcullis token create` makes one"));
    }
    Ok(print(&aligned(&rows)))
}

async fn revoke(args: &TokenRevokeArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let id = whole_id(&admin, &args.id).await?;
    admin.delete(&format!("/v1/tokens/{id}")).await?.done()?;
    Ok(print(&format!("revoked {}; nothing is open on it any more", plain(&id))))
}

async fn printed(args: &TokenPrintArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<&str>| {
        body.extend(value.map(|value| (key.to_owned(), Value::from(value))));
    };
    put("agent", Some(&args.agent));
    put("parent", args.parent.as_deref());
    put("parentAgent", args.parent_agent.as_deref());
    put("ttl", args.ttl.as_deref());
    body.insert("helper".to_owned(), Value::from(true));
    let text = admin.post("/v1/runs", Value::Object(body).to_string()).await?.done()?;
    let run: Value = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    let token = plain(run.get("token").and_then(Value::as_str).unwrap_or_default());
    Ok(match args.format {
        PrintFormat::Token => print(&token),
        PrintFormat::Headers => {
            print(&serde_json::json!({"Authorization": format!("Bearer {token}")}).to_string())
        }
    })
}

// The id that a beginning of one stands for.
async fn whole_id(admin: &Admin, prefix: &str) -> Result<String, DoorError> {
    let text = admin.get("/v1/tokens", &[]).await?;
    let List { items } = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    let bare = |id: &str| id.strip_prefix("tok_").unwrap_or(id).to_owned();
    let wanted = bare(prefix);
    if wanted.is_empty() {
        return Err(DoorError::Refused(
            "name a token; `portcullis token list` shows them".to_owned(),
        ));
    }
    let mut found = items.into_iter().filter(|token| bare(&token.id).starts_with(&wanted));
    match (found.next(), found.next()) {
        (Some(token), None) => Ok(token.id),
        (Some(_), Some(_)) => Err(DoorError::Refused(format!(
            "several tokens begin with `{}`; give more characters of the id",
            plain(prefix)
        ))),
        (None, _) => Err(DoorError::Refused(format!(
            "there is no token `{}`; `portcullis token list --all` shows them",
            plain(prefix)
        ))),
    }
}
