//! `portcullis serve`: start, tell where, run until Ctrl-C or SIGTERM.

use super::quickstart::{self, Quickstart};
use super::screen::{complain, lines, plain, print};
use super::{Exit, ServeArgs, config_file, environment};
use crate::config::{Config, ConfigError};
use crate::gateway::{Gateway, StartError};
use crate::telemetry::logging;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) fn serve(args: &ServeArgs) -> Exit {
    if let Err(error) = logging::init(args.log_format) {
        complain(&plain(&error.to_string()));
        return Exit::Config;
    }
    let (config, quickstart) = match config_file(args.config.as_deref()) {
        Some(file) => (Config::load(Some(file), &environment()), None),
        None => match quickstart::prepare() {
            Ok(quickstart) => (quickstart.config(environment()), Some(quickstart)),
            Err(error) => {
                complain(&lines(&error));
                return Exit::Unavailable;
            }
        },
    };
    let config = match config {
        Ok(config) => config,
        Err(error) => return refuse(&StartError::Config(error)),
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run(config, quickstart)),
        Err(error) => {
            complain(&format!("the runtime did not start: {}", plain(&error.to_string())));
            Exit::Unavailable
        }
    }
}

async fn run(config: Config, quickstart: Option<Quickstart>) -> Exit {
    // Before anything starts: a signal that comes early ends an orderly start.
    let signals =
        signal(SignalKind::terminate()).and_then(|t| Ok((t, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = match signals {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("signals cannot be received: {}", plain(&error.to_string())));
            return Exit::Unavailable;
        }
    };
    let state_dir = config.state_dir.clone();
    let started = tokio::select! {
        started = Gateway::bind(config) => started,
        () = told(&mut terminate, &mut interrupt) => return Exit::Done,
    };
    let gateway = match started {
        Ok(gateway) => gateway,
        Err(error) => return refuse(&error),
    };
    let page = quickstart::banner(&gateway, &state_dir, quickstart.as_ref());
    if print(&page) != Exit::Done {
        complain("standard output is closed; the gateway runs all the same");
    }
    gateway.serve(told(&mut terminate, &mut interrupt)).await;
    Exit::Done
}

async fn told(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn refuse(error: &StartError) -> Exit {
    if let StartError::Policy(findings) | StartError::Config(ConfigError::Refused(findings)) = error
    {
        for finding in findings {
            complain(&plain(&finding.to_string()));
        }
    }
    complain(&lines(&error.to_string()));
    if let StartError::Policy(_) = error {
        complain("`portcullis check` shows the lines");
    }
    match error {
        StartError::Config(_)
        | StartError::Policy(_)
        | StartError::Upstream(_)
        | StartError::Tokens(_) => Exit::Config,
        StartError::Listen { .. }
        | StartError::Store(_)
        | StartError::Audit(_)
        | StartError::Private(_)
        | StartError::Seal(_)
        | StartError::State { .. } => Exit::Unavailable,
    }
}
