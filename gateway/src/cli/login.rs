//! `portcullis login-link`: the way to the page.

use super::Exit;
use super::door::{Door, DoorError};
use super::screen::{complain, json, plain, print};
use clap::Args;
use serde::Deserialize;

/// Arguments of `login-link`.
#[derive(Debug, Clone, Args)]
pub struct LoginLinkArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

#[derive(Deserialize)]
struct Link {
    url: String,
    expires: String,
}

pub(super) async fn link(args: &LoginLinkArgs) -> Exit {
    linked(args).await.unwrap_or_else(|error| {
        complain(&error.to_string());
        error.exit()
    })
}

async fn linked(args: &LoginLinkArgs) -> Result<Exit, DoorError> {
    let admin = args.door.open().await?;
    let text = admin.post("/v1/login-links", "{}".to_owned()).await?.done()?;
    if args.json {
        return Ok(print(&json(&text)));
    }
    let link: Link = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    complain(&format!("opens once, until {}:", plain(&link.expires)));
    Ok(print(&plain(&link.url)))
}
