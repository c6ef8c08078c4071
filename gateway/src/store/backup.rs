//! A copy of a SQLite file, taken while a gateway uses it.

use super::StoreFault;
use super::place::Spot;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupFault {
    /// Something is there already.
    #[error("`{0}` is there already; name a file that is not")]
    Taken(PathBuf),
    /// The copy cannot be written.
    #[error("the copy `{file}` cannot be written: {cause}; check its folder and the free space")]
    Target {
        /// The copy.
        file: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file cannot be read or copied.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The copy is not sound.
    #[error("the copy was damaged ({0}) and is removed; check the file and the disk, then repeat")]
    Damaged(String),
}

/// Copies the state file `file`, as it is at one moment, to the new private file `to`, checks
/// the copy and syncs it. A gateway may use the file meanwhile.
///
/// # Errors
/// [`BackupFault`]; then nothing new is left at `to`.
pub async fn backup(file: &Path, to: &Path) -> Result<(), BackupFault> {
    let target = |cause| BackupFault::Target { file: to.to_owned(), cause };
    let made = create(to).map_err(|error| {
        let taken = error.kind() == io::ErrorKind::AlreadyExists;
        if taken { BackupFault::Taken(to.to_owned()) } else { target(error) }
    })?;
    let copied = async {
        copy(file, to).await?;
        check(to).await?;
        made.sync_all().map_err(target)?;
        sync_folder(to).map_err(target)
    };
    let outcome = copied.await;
    if outcome.is_err() {
        // It was made above, so nobody else's file is removed.
        drop(std::fs::remove_file(to));
    }
    outcome
}

async fn copy(file: &Path, to: &Path) -> Result<(), BackupFault> {
    let spot = Spot::file(file);
    let failed = |error: sqlx::Error| StoreFault::of(&spot, &error);
    let name = to.to_str().ok_or_else(|| BackupFault::Target {
        file: to.to_owned(),
        cause: io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"),
    })?;
    let mut connection = read_only(file).await.map_err(failed)?;
    let copied = sqlx::query("VACUUM INTO $1").bind(name).execute(&mut connection).await;
    copied.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(())
}

async fn check(copy: &Path) -> Result<(), BackupFault> {
    let failed = |error: sqlx::Error| StoreFault::of(&Spot::file(copy), &error);
    let mut connection = read_only(copy).await.map_err(failed)?;
    let findings = integrity(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    if findings.is_empty() { Ok(()) } else { Err(BackupFault::Damaged(findings.join("; "))) }
}

/// What is wrong with a file, as SQLite says; nothing if it is sound.
pub(super) async fn integrity(
    connection: &mut SqliteConnection,
) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query("PRAGMA integrity_check").fetch_all(connection).await?;
    let texts: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
    Ok(texts?.into_iter().filter(|text| text != "ok").collect())
}

/// A connection that changes nothing and needs no lock.
pub(super) async fn read_only(file: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(file).read_only(true);
    options.disable_statement_logging().connect().await
}

fn create(to: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(to)
}

// The name is on disk once its folder is.
fn sync_folder(to: &Path) -> io::Result<()> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
