//! The `portcullis` command: what can be typed, and which function answers it.
//!
//! Everything that talks to a running gateway does so through the admin listener, as any
//! approver could. Text that came from elsewhere is escaped before a terminal sees it.

mod backup;
mod card;
mod check;
mod decide;
mod doctor;
mod door;
mod keys;
mod list;
mod login;
mod quickstart;
mod runs;
mod screen;
mod serve;
mod token;
mod tools;

use crate::demo::{self, Demo};
use crate::telemetry::logging::Format;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use backup::BackupArgs;
pub use decide::{ApproveArgs, DenyArgs, ShowArgs};
pub use doctor::DoctorArgs;
pub use door::Door;
pub use keys::{KeyPlace, KeysCommand};
pub use list::ApprovalsArgs;
pub use login::LoginLinkArgs;
pub use runs::{RunsArgs, StartArgs, StopArgs};
pub use screen::{complain, plain, print};
pub use token::{
    PrintFormat, RoleName, TokenCommand, TokenCreateArgs, TokenListArgs, TokenPrintArgs,
    TokenRevokeArgs,
};

/// The file that is read when no `--config` names one, if it is there.
pub const CONFIG_FILE: &str = "gateway.yaml";

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 a finding or a refusal, 2 wrong usage, 69 something is not reachable,
78 the configuration or the policy is wrong.";

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// There is something to look at: a finding, a refusal.
    Finding,
    /// The command was used in a wrong way.
    Usage,
    /// A gateway, an address or the store cannot be reached.
    Unavailable,
    /// The configuration or the policy is wrong.
    Config,
}

impl Exit {
    /// The number the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Finding => 1,
            Self::Usage => 2,
            Self::Unavailable => 69,
            Self::Config => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An MCP gateway that enforces per-agent scopes: what a policy does not declare is not reachable,
/// what it declares but does not pre-approve waits for a decision.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, after_help = EXIT_CODES, after_long_help = AFTER_HELP)]
pub struct Cli {
    /// What to do; nothing starts the gateway, as `serve` does.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const AFTER_HELP: &str = "\
Examples:
  portcullis                                     start on gateway.yaml, or on the built-in demo
  portcullis check policy/                       is this policy right?
  portcullis serve --config gateway.yaml         start the gateway
  portcullis tools --agent support               what may this agent use?
  portcullis approvals --watch                   calls that wait for a decision
  portcullis approve apr_7k2                     let one run, after seeing it whole
  portcullis deny apr_7k2 -m \"not this customer\"
  portcullis login-link                          open the page where people decide
  portcullis token create --agent support        a credential that can be revoked
  portcullis stop run_7k2                        end a run and all below it
  portcullis doctor                              is everything in order here?
  portcullis backup cards.db                     copy the store while the gateway runs
  portcullis keys rotate                         seal sessions and the like with a new key

Exit codes: 0 done, 1 a finding or a refusal, 2 wrong usage, 69 something is not reachable,
78 the configuration or the policy is wrong.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the gateway and serve until it is told to stop.
    #[command(after_help = "Example: portcullis serve --config gateway.yaml")]
    Serve(ServeArgs),
    /// Read a policy and say what is wrong with it, without starting anything.
    #[command(after_help = "Examples:\n  portcullis check policy/\n  \
        portcullis check --config gateway.yaml --strict --format json")]
    Check(CheckArgs),
    /// Show what an agent may use right now, and what is declared but missing.
    #[command(after_help = "Example: portcullis tools --agent support")]
    Tools(ToolsArgs),
    /// List the calls that wait for a decision.
    #[command(after_help = "Examples:\n  portcullis approvals --watch\n  \
        portcullis approvals --all --agent support --json")]
    Approvals(ApprovalsArgs),
    /// Show one approval whole, whatever became of it.
    #[command(after_help = "Example: portcullis show apr_7k2\n\
        The beginning of an id is enough.")]
    Show(ShowArgs),
    /// Show one waiting call whole, and let it run once.
    #[command(after_help = "Examples:\n  portcullis approve apr_7k2\n  \
        portcullis approve apr_7k2 --args smaller.json    run with these arguments instead\n  \
        portcullis approve apr_7k2 --for 10m              and the same call again for ten minutes\n  \
        portcullis approve apr_7k2 --for-run --any-args   and any call of the tool in this run\n\
        The beginning of an id is enough. At a terminal it asks before it decides.")]
    Approve(ApproveArgs),
    /// Refuse one waiting call; the agent reads the reason.
    #[command(after_help = "Example: portcullis deny apr_7k2 -m \"not this customer\"")]
    Deny(DenyArgs),
    /// Print a link that signs a browser in to the page, once, within five minutes.
    #[command(after_help = "Example: portcullis login-link\n\
        Whoever opens it first is signed in as you, for twelve hours.")]
    LoginLink(LoginLinkArgs),
    /// Make, list and revoke tokens of agents and admins.
    Token {
        /// What to do.
        #[command(subcommand)]
        what: TokenCommand,
    },
    /// List the live runs: who works, started by whom, until when.
    #[command(after_help = "Example: portcullis runs --agent support")]
    Runs(RunsArgs),
    /// Start a run of an agent: a URL and a token of its own, until its time is over.
    #[command(after_help = "Example: portcullis start --agent support --ttl 30m")]
    Start(StartArgs),
    /// Stop a run and everything below it: what waits is denied, what runs is cancelled.
    #[command(after_help = "Example: portcullis stop run_7k2")]
    Stop(StopArgs),
    /// Print the configuration in force, defaults and environment included, without secrets.
    #[command(after_help = "Example: portcullis config --config gateway.yaml")]
    Config(ConfigArgs),
    /// Look at everything the gateway needs, and say what is wrong and what to do.
    #[command(after_help = "Examples:\n  portcullis doctor --config gateway.yaml\n  \
        portcullis doctor --json\n\
        Exits with 0 if nothing failed, 1 if a check failed, 78 if configuration or policy is wrong.")]
    Doctor(DoctorArgs),
    /// Copy the store of parked calls to a new file, while the gateway may run.
    #[command(after_help = "Examples:\n  portcullis backup cards-monday.db\n  \
        portcullis backup cards.db --state-dir /var/lib/portcullis\n\
        To restore, stop the gateway and put the copy in place of the store.")]
    Backup(BackupArgs),
    /// Make a new sealing key, or show which there are.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Run one of the demo servers on standard input and output.
    #[command(after_help = "Example: portcullis demo-server crm")]
    DemoServer {
        /// Which one.
        which: Demo,
    },
    #[command(name = "__child", hide = true)]
    #[doc(hidden)]
    Child {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The configuration; else `gateway.yaml` here, if there is one, else the built-in demo.
    #[arg(long, value_name = "FILE", env = "PORTCULLIS_CONFIG")]
    pub config: Option<PathBuf>,
    /// How log lines on standard error look.
    #[arg(long, value_name = "FORMAT", env = "PORTCULLIS_LOG_FORMAT", default_value = "json")]
    pub log_format: Format,
}

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// A folder with policy files, instead of those that the configuration names.
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// The configuration; else what `PORTCULLIS_CONFIG` names, else `gateway.yaml` here, if there is
    /// one, else the defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Exit with 1 on warnings as well.
    #[arg(long)]
    pub strict: bool,
    /// How findings are printed.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: CheckFormat,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// With the line they are about, for people.
    Text,
    /// One JSON object, for programs.
    Json,
}

/// Arguments of `tools`.
#[derive(Debug, Clone, Args)]
pub struct ToolsArgs {
    /// The agent.
    #[arg(long, value_name = "AGENT")]
    pub agent: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The running gateway.
    #[command(flatten)]
    pub door: Door,
}

/// Arguments of `config`.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The configuration; else `gateway.yaml` here, if there is one, else the defaults.
    #[arg(long, value_name = "FILE", env = "PORTCULLIS_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Runs the command line `args`.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. A closed pipe is no reason to complain.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let command =
        cli.command.unwrap_or(Command::Serve(ServeArgs { config: None, log_format: Format::Text }));
    let exit = match command {
        Command::Serve(args) => serve::serve(&args),
        Command::Check(args) => check::check(&args),
        Command::Config(args) => config(&args),
        Command::Tools(args) => wait_for(tools::tools(&args)),
        Command::Approvals(args) => wait_for(list::approvals(&args)),
        Command::Show(args) => wait_for(decide::show(&args)),
        Command::Approve(args) => wait_for(decide::approve(&args)),
        Command::Deny(args) => wait_for(decide::deny(&args)),
        Command::LoginLink(args) => wait_for(login::link(&args)),
        Command::Token { what } => wait_for(token::token(&what)),
        Command::Runs(args) => wait_for(runs::runs(&args)),
        Command::Start(args) => wait_for(runs::start(&args)),
        Command::Stop(args) => wait_for(runs::stop(&args)),
        Command::Doctor(args) => wait_for(doctor::doctor(&args)),
        Command::Backup(args) => wait_for(backup::back_up(&args)),
        Command::Keys(command) => keys::keys(&command),
        Command::DemoServer { which } => wait_for(demo_server(which)),
        Command::Child { args } => return crate::child::run(args.into_iter()),
    };
    exit.into()
}

/// The configuration file to read: the one that was named, or the usual one if it is there.
#[must_use]
pub fn config_file(named: Option<&Path>) -> Option<&Path> {
    let usual = Path::new(CONFIG_FILE);
    named.or_else(|| usual.exists().then_some(usual))
}

/// The variables of this process that can be read as text.
#[must_use]
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn config(args: &ConfigArgs) -> Exit {
    match crate::config::Config::load(config_file(args.config.as_deref()), &environment()) {
        Ok(config) => print(&config.effective_yaml()),
        Err(error) => {
            complain(&screen::lines(&error.to_string()));
            Exit::Config
        }
    }
}

async fn demo_server(which: Demo) -> Exit {
    match demo::serve(which).await {
        Ok(()) => Exit::Done,
        Err(error) => {
            complain(&plain(&error.to_string()));
            Exit::Finding
        }
    }
}

fn wait_for(work: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            complain(&plain(&error.to_string()));
            Exit::Unavailable
        }
    }
}

#[cfg(test)]
mod tests;
