//! The files with keys and tokens.

use super::{Check, as_the_gateway, folders};
use crate::cli::keys::age;
use crate::config::{self, Config, StorePlace};
use crate::identity::{
    OPERATOR_TOKEN_FILE, PrivateFileError, QUICKSTART_TOKENS_FILE, read_operator_token,
};
use crate::seal::{self, KeyFileError};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

const MADE_LATER: &str = "not there yet; the first start makes it";

/// The sealing keys.
pub(super) fn seal(config: &Config) -> Check {
    let (name, file) = ("key file", &config.seal.key_file);
    let keys = match seal::keys(file) {
        Ok(keys) => keys,
        Err(KeyFileError::Private(error)) => {
            let shared = matches!(config.store.place, StorePlace::Postgres(_));
            let missing = matches!(error, PrivateFileError::Missing(_));
            return match (missing, shared) {
                (true, true) => {
                    let remedy = "put a copy of the other gateways' file there, or make the first \
                                  with `portcullis keys rotate`";
                    Check::failed(name, &file.display(), "it is not there", remedy)
                }
                (true, false) => Check::ok(name, &file.display(), MADE_LATER),
                (false, _) => private(name, file, &error),
            };
        }
        Err(error @ (KeyFileError::Malformed { .. } | KeyFileError::Random(_))) => {
            let remedy = "restore it from a copy, or move it away: then sessions end";
            return Check::failed(name, &file.display(), error.to_string(), remedy);
        }
    };
    let newest = keys.first().map(|key| age(key.created, SystemTime::now()));
    let newest = newest.unwrap_or_default();
    Check::ok(name, &file.display(), format!("keys: {}, the newest {newest} old", keys.len()))
}

/// The operator's token.
pub(super) fn operator(state_dir: &Path) -> Check {
    let (name, file) = ("admin token", state_dir.join(OPERATOR_TOKEN_FILE));
    match read_operator_token(state_dir) {
        Ok(_) => Check::ok(name, &file.display(), "for its owner alone"),
        Err(PrivateFileError::Missing(_)) => Check::ok(name, &file.display(), MADE_LATER),
        Err(error) => private(name, &file, &error),
    }
}

/// The tokens of agents: hashes in the token file, or those made at the first start.
pub(super) fn agents(file: &Path, state_dir: &Path) -> Check {
    let name = "token file";
    if !file.exists() {
        let made = state_dir.join(QUICKSTART_TOKENS_FILE);
        let found = "not there, so each agent has a token that the first start makes";
        return Check::ok(name, &made.display(), found);
    }
    let tokens = match config::tokens(file) {
        Ok(tokens) => tokens,
        Err(error) => {
            let text = error.to_string().replace('\n', "; ");
            return Check::failed(name, &file.display(), text, "correct the file");
        }
    };
    let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
    if mode & 0o022 != 0 {
        let found = format!("others can add tokens of their own (mode {mode:03o})");
        return Check::failed(
            name,
            &file.display(),
            found,
            format!("chmod 600 {}", file.display()),
        );
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let over = |token: &&config::TokenEntry| token.expires_ms.is_some_and(|ms| ms <= now_ms);
    let expired = tokens.iter().filter(over).count();
    let found = format!("tokens: {}, expired: {expired}", tokens.len());
    if expired > 0 {
        let remedy = "give those agents new tokens and remove the old entries";
        return Check::warning(name, &file.display(), found, remedy);
    }
    Check::ok(name, &file.display(), found)
}

fn private(name: &'static str, file: &Path, error: &PrivateFileError) -> Check {
    let (found, remedy) = match error {
        PrivateFileError::Missing(_) => ("it is not there".to_owned(), "restore it".to_owned()),
        PrivateFileError::Loose { mode, .. } => (
            format!("others can read it (mode {mode:03o})"),
            format!("chmod 600 {} and replace what is in it: others may know it", file.display()),
        ),
        PrivateFileError::Kind(_) => (
            "it is no regular file of the right kind".to_owned(),
            "move it away: the next start makes a new one".to_owned(),
        ),
        PrivateFileError::Io { source, .. } => (folders::said(source), as_the_gateway(file)),
    };
    Check::failed(name, &file.display(), found, remedy)
}
