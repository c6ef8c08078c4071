//! `portcullis doctor`: looks at everything the gateway needs, changes nothing, and says what to
//! do about what is wrong.

mod folders;
mod listeners;
mod secrets;
mod store;

use super::screen::{complain, lines, plain, print};
use super::{Exit, config_file, environment, quickstart};
use crate::config::{Config, ConfigError};
use crate::gateway::{StartError, read_policy};
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Arguments of `doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// The configuration; else `gateway.yaml` here, if there is one, else the built-in demo's.
    #[arg(long, value_name = "FILE", env = "PORTCULLIS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// Worth a look; the gateway works.
    Warning,
    /// The gateway does not work, or not safely.
    Failed,
}

/// One check: what was looked at, what was found there, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    check: &'static str,
    verdict: Verdict,
    #[serde(rename = "where")]
    place: String,
    found: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

impl Check {
    pub(super) fn ok(
        check: &'static str,
        place: &dyn fmt::Display,
        found: impl Into<String>,
    ) -> Self {
        let (place, found) = (place.to_string(), found.into());
        Self { check, verdict: Verdict::Ok, place, found, remedy: String::new() }
    }

    pub(super) fn warning(
        check: &'static str,
        place: &dyn fmt::Display,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = remedy.into();
        Self { verdict: Verdict::Warning, remedy, ..Self::ok(check, place, found) }
    }

    pub(super) fn failed(
        check: &'static str,
        place: &dyn fmt::Display,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = remedy.into();
        Self { verdict: Verdict::Failed, remedy, ..Self::ok(check, place, found) }
    }
}

/// All checks.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    checks: Vec<Check>,
    failed: usize,
    warnings: usize,
    // The number the shell sees.
    #[serde(skip)]
    exit: Exit,
}

impl Report {
    fn new(checks: Vec<Check>, broken: Exit) -> Self {
        let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
        let (failed, warnings) = (count(Verdict::Failed), count(Verdict::Warning));
        Self { failed, warnings, exit: if failed == 0 { Exit::Done } else { broken }, checks }
    }

    pub(super) fn text(&self) -> String {
        let mut page = String::new();
        for check in &self.checks {
            let verdict = match check.verdict {
                Verdict::Ok => "ok",
                Verdict::Warning => "warning",
                Verdict::Failed => "FAILED",
            };
            let (place, found) = (plain(&check.place), plain(&check.found));
            page.push_str(&format!("{verdict:<8} {:<14} {found} ({place})\n", check.check));
            if !check.remedy.is_empty() {
                page.push_str(&format!("{:<23} do: {}\n", "", plain(&check.remedy)));
            }
        }
        let (checks, failed, warnings) = (self.checks.len(), self.failed, self.warnings);
        page.push_str(&format!("{checks} checks: {failed} failed, {warnings} with a warning\n"));
        page
    }
}

pub(super) async fn doctor(args: &DoctorArgs) -> Exit {
    let report = examine(args).await;
    let printed = if args.json {
        match serde_json::to_string_pretty(&report) {
            Ok(text) => print(&super::screen::json(&text)),
            Err(error) => {
                complain(&lines(&error.to_string()));
                Exit::Unavailable
            }
        }
    } else {
        print(&report.text())
    };
    if printed == Exit::Done { report.exit } else { printed }
}

async fn examine(args: &DoctorArgs) -> Report {
    let file = config_file(args.config.as_deref());
    let (place, config) = match (file, quickstart::prepared()) {
        (Some(file), _) => (file.display().to_string(), Config::load(Some(file), &environment())),
        (None, Some(demo)) => ("the built-in demo".to_owned(), demo.config(environment())),
        (None, None) => ("the defaults".to_owned(), Config::load(None, &environment())),
    };
    let config = match config {
        Ok(config) => config,
        Err(error) => return Report::new(vec![refused(&place, &error)], Exit::Config),
    };
    let mut checks = vec![configuration(&place, &config)];
    let policy = policy(&config);
    let broken = if policy.verdict == Verdict::Failed { Exit::Config } else { Exit::Finding };
    checks.push(policy);
    checks.extend(folders::state(&config.state_dir));
    checks.push(secrets::seal(&config));
    checks.push(secrets::operator(&config.state_dir));
    checks.push(secrets::agents(&config.auth.token_file, &config.state_dir));
    let (store, running) = store::store(&config).await;
    checks.push(store);
    checks.push(folders::audit(&config.audit.dir));
    checks.extend(listeners::listeners(&config, running).await);
    Report::new(checks, broken)
}

fn refused(place: &str, error: &ConfigError) -> Check {
    let text = error.to_string().replace('\n', "; ");
    Check::failed(
        "configuration",
        &place,
        text,
        "correct the file; `portcullis config` reads it alone",
    )
}

fn configuration(place: &str, config: &Config) -> Check {
    if config.warnings.is_empty() {
        return Check::ok("configuration", &place, "it is understood");
    }
    let said: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    Check::warning("configuration", &place, said.join("; "), "correct what it warns of")
}

fn policy(config: &Config) -> Check {
    let dirs: Vec<String> =
        config.policy.dirs.iter().map(|dir| dir.display().to_string()).collect();
    let place = dirs.join(", ");
    match read_policy(config) {
        Ok((definition, _)) => {
            let (agents, servers) = (definition.agents.len(), definition.servers.len());
            Check::ok("policy", &place, format!("agents: {agents}, servers: {servers}"))
        }
        Err(StartError::Policy(found)) => {
            let found = format!("{} findings, so the gateway does not start", found.len());
            Check::failed("policy", &place, found, "`portcullis check` shows each with its line")
        }
        Err(error) => Check::failed(
            "policy",
            &place,
            error.to_string(),
            "correct `policy.dirs` or the folder",
        ),
    }
}

/// A size for people.
fn spelled(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..1_048_576 => format!("{} KiB", bytes / KIB),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        1_073_741_824.. => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// The user who has to own what the gateway uses, as a hint for who runs the command.
fn as_the_gateway(path: &Path) -> String {
    format!(
        "run this command as the gateway's user, or give that user the right: `ls -ld {}`",
        path.display()
    )
}
