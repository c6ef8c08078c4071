//! `portcullis keys`: make a new sealing key, or show which there are; never a key itself.

use super::screen::{complain, lines, plain, print};
use super::{Exit, config_file, environment};
use crate::audit::time::rfc3339;
use crate::config::Config;
use crate::seal::{self, KeyFileError, KeyLine, Rotation};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The key file in a state folder, where no configuration names another.
const KEY_FILE: &str = "keys/seal.json";

/// What to do with the sealing keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Make a new key that seals from now on; the newest of those before still opens.
    #[command(after_help = "Examples:\n  portcullis keys rotate\n  \
        portcullis keys rotate --state-dir /var/lib/portcullis\n\
        A running gateway takes the change up within a second. Rotating twice ends all sessions.")]
    Rotate(KeyPlace),
    /// Show the ids of the keys and when they were made.
    #[command(after_help = "Example: portcullis keys list")]
    List(KeyPlace),
}

/// Where the key file is.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct KeyPlace {
    /// The configuration that names it; else `gateway.yaml` here, if there is one, else the defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The gateway's state folder, where the file is `keys/seal.json`.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The file itself.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

impl KeyPlace {
    fn file(&self) -> Result<PathBuf, crate::config::ConfigError> {
        if let Some(file) = &self.key_file {
            return Ok(file.clone());
        }
        if let Some(folder) = &self.state_dir {
            return Ok(folder.join(KEY_FILE));
        }
        let env = environment();
        let named = self.config.clone().or_else(|| Some(env.get("PORTCULLIS_CONFIG")?.into()));
        Ok(Config::load(config_file(named.as_deref()), &env)?.seal.key_file)
    }
}

pub(super) fn keys(command: &KeysCommand) -> Exit {
    let (KeysCommand::Rotate(place) | KeysCommand::List(place)) = command;
    let file = match place.file() {
        Ok(file) => file,
        Err(error) => {
            complain(&lines(&error.to_string()));
            return Exit::Config;
        }
    };
    let now = SystemTime::now();
    let page = match command {
        KeysCommand::Rotate(_) => seal::rotate(&file, now).map(|done| rotated(&done, &file)),
        KeysCommand::List(_) => seal::keys(&file).map(|keys| listed(&keys, now)),
    };
    match page {
        Ok(page) => print(&page),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &KeyFileError) -> Exit {
    complain(&plain(&error.to_string()));
    match error {
        KeyFileError::Malformed { .. } => Exit::Config,
        KeyFileError::Private(_) | KeyFileError::Random(_) => Exit::Unavailable,
    }
}

pub(super) fn rotated(done: &Rotation, file: &Path) -> String {
    let mut page = format!("made     {}  it seals from now on\n", done.made);
    if let Some(kept) = &done.kept {
        page.push_str(&format!("kept     {kept}  what it sealed is still accepted\n"));
    }
    if let Some(dropped) = &done.dropped {
        page.push_str(&format!(
            "dropped  {dropped}  what it sealed is not accepted any more: sessions opened then \
             must be opened again\n"
        ));
    }
    page.push_str(&format!(
        "written to {}; a running gateway takes it up within a second\n",
        plain(&file.display().to_string())
    ));
    page
}

pub(super) fn listed(keys: &[KeyLine], now: SystemTime) -> String {
    let mut page = String::new();
    for (key, duty) in keys.iter().zip(["seals and opens", "opens"]) {
        let made = rfc3339(key.created);
        let made = made.split('.').next().unwrap_or_default();
        let age = age(key.created, now);
        page.push_str(&format!("{}  {duty:<15}  made {made}Z, {age} ago\n", plain(&key.id)));
    }
    page
}

/// How long ago, in the largest unit that fits.
pub(super) fn age(then: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    let (count, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        86_400.. => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}
