//! `portcullis backup`: a copy of the store, while the gateway may run.

use super::screen::{complain, lines, plain, print};
use super::{Exit, config_file, environment};
use crate::config::{Config, ConfigError, StorePlace};
use crate::store::{BackupFault, Inspection, Place, StoreFault, backup, inspect};
use clap::Args;
use std::path::{Path, PathBuf};

/// The store in a state folder, where no configuration names another.
const STORE_FILE: &str = "state.db";

/// Arguments of `backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// The copy to make; nothing is overwritten.
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    /// The configuration; else what `PORTCULLIS_CONFIG` names, else `gateway.yaml` here, if there is
    /// one, else the defaults.
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub config: Option<PathBuf>,
    /// The gateway's state folder, where the store is `state.db`.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

impl BackupArgs {
    fn place(&self) -> Result<StorePlace, ConfigError> {
        if let Some(folder) = &self.state_dir {
            return Ok(StorePlace::Sqlite(folder.join(STORE_FILE)));
        }
        let env = environment();
        let named = self.config.clone().or_else(|| Some(env.get("PORTCULLIS_CONFIG")?.into()));
        Ok(Config::load(config_file(named.as_deref()), &env)?.store.place)
    }
}

pub(super) async fn back_up(args: &BackupArgs) -> Exit {
    let file = match args.place() {
        Ok(StorePlace::Sqlite(file)) => file,
        Ok(StorePlace::Postgres(url)) => {
            let to = plain(&args.to.display().to_string());
            complain(&format!(
                "the store is PostgreSQL at {}; copy it with its own tool: \
                 `pg_dump --format=custom --file={to}` and the URL of the database",
                plain(url.shown())
            ));
            return Exit::Finding;
        }
        Err(error) => {
            complain(&lines(&error.to_string()));
            return Exit::Config;
        }
    };
    match copy(&file, &args.to).await {
        Ok(made) => print(&format!(
            "{}: {} bytes, {} cards, schema {}; read whole and found in order\n",
            plain(&args.to.display().to_string()),
            made.bytes,
            made.cards.iter().map(|(_, count)| count).sum::<u64>(),
            made.schema
        )),
        Err(fault) => {
            complain(&lines(&fault.to_string()));
            match fault {
                BackupFault::Taken(_) => Exit::Usage,
                BackupFault::Damaged(_) | BackupFault::Store(StoreFault::Corrupt { .. }) => {
                    Exit::Finding
                }
                BackupFault::Store(_) | BackupFault::Target { .. } => Exit::Unavailable,
            }
        }
    }
}

async fn copy(file: &Path, to: &Path) -> Result<Inspection, BackupFault> {
    backup(file, to).await?;
    Ok(inspect(&Place::Sqlite(to.to_owned())).await?)
}
