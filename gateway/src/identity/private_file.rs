//! Files with secrets: made for the owner alone, and refused when others could read them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Largest file with secrets, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why a file with secrets is not used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// It is not there.
    #[error("`{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// Others may read or change it.
    #[error(
        "`{}` may be read by others (mode {mode:03o}); it holds secrets: run `chmod 600 {}` \
         and replace what is in it",
        path.display(), path.display()
    )]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is a link or a folder, or far too large.
    #[error("`{}` is not a regular file of a sensible size", .0.display())]
    Kind(PathBuf),
    /// It cannot be read or made.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

pub(crate) fn read(path: &Path) -> Result<String, PrivateFileError> {
    let failed = |source: io::Error| {
        if source.kind() == io::ErrorKind::NotFound {
            return PrivateFileError::Missing(path.to_owned());
        }
        PrivateFileError::Io { path: path.to_owned(), source }
    };
    // The name itself, so that a link to another file is not followed.
    if !std::fs::symlink_metadata(path).map_err(failed)?.is_file() {
        return Err(PrivateFileError::Kind(path.to_owned()));
    }
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(PrivateFileError::Kind(path.to_owned()));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::Loose { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Makes or replaces a file whole: a crash leaves the old one or the new one.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), PrivateFileError> {
    replace(path, text).map_err(|source| PrivateFileError::Io { path: path.to_owned(), source })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Random, so that one that a crash left behind is in nobody's way.
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|error| io::Error::other(error.to_string()))?;
    let draft = path.with_extension(format!("{:016x}.draft", u64::from_be_bytes(bits)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&draft, path))
        .and_then(|()| File::open(dir)?.sync_all());
    if written.is_err() {
        // The first cause is what the operator needs to see.
        let _ = std::fs::remove_file(&draft);
    }
    written
}
