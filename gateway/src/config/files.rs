//! Reads files into memory, once, with a limit; warns of files that others can change.

use super::ConfigError;
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::source::FILE_BYTES_MAX;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most policy files in a set.
pub const FILES_MAX: usize = 4_096;
/// Most bytes in all policy files of a set.
pub const SET_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Permission bit of files that everyone may write.
const WORLD_WRITABLE: u32 = 0o002;

/// The files of a policy set, in the order of their folders and names.
#[derive(Debug, Clone, Default)]
pub struct PolicyFiles {
    /// Name, as shown in locations, and text.
    pub files: Vec<(Arc<str>, String)>,
    /// Files that someone else may change or that lead elsewhere.
    pub warnings: Vec<Diagnostic>,
}

/// Reads the `*.yaml` and `*.yml` files of `dirs`, without those whose name starts with a dot
/// and without folders below.
///
/// # Errors
/// [`ConfigError::Unreadable`] for the first folder or file that cannot be read, is empty of
/// policy files, or is too large.
pub fn policy_files(dirs: &[PathBuf]) -> Result<PolicyFiles, ConfigError> {
    let mut set = PolicyFiles::default();
    let mut bytes = 0;
    for dir in dirs {
        let paths = list(dir, &mut set.warnings)?;
        if paths.is_empty() {
            return Err(unreadable(dir, "the folder has no `*.yaml` file; write a policy into it"));
        }
        warn_of_writers(dir, "folder", &mut set.warnings);
        for path in paths {
            if set.files.len() == FILES_MAX {
                let advice = format!("there are more than {FILES_MAX} policy files; merge some");
                return Err(unreadable(dir, advice));
            }
            warn_of_strays(dir, &path, &mut set.warnings);
            let text = read(&path)?;
            bytes += text.len();
            if bytes > SET_BYTES_MAX {
                let advice = format!("the policy files have more than {SET_BYTES_MAX} bytes");
                return Err(unreadable(dir, advice));
            }
            set.files.push((path.display().to_string().into(), text));
        }
    }
    Ok(set)
}

/// The text of a file.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let refused =
        |error: std::io::Error| unreadable(path, format!("{}; {}", plain(&error), advice(&error)));
    // Opening anything else, such as a pipe, could hold up the start for ever.
    if !fs::metadata(path).map_err(refused)?.is_file() {
        return Err(unreadable(path, "this is not a regular file; write one in its place"));
    }
    let file = File::open(path).map_err(refused)?;
    let mut bytes = Vec::new();
    // One byte more than accepted tells a file that is too large.
    file.take(FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(path, format!("{}; check the file", plain(&error))))?;
    if bytes.len() > FILE_BYTES_MAX {
        let advice = format!("the file has more than {FILE_BYTES_MAX} bytes; split it");
        return Err(unreadable(path, advice));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unreadable(path, format!("byte {at} is not UTF-8; save the file as UTF-8"))
    })
}

fn list(dir: &Path, warnings: &mut Vec<Diagnostic>) -> Result<Vec<PathBuf>, ConfigError> {
    let unlisted = |error: std::io::Error| {
        unreadable(
            dir,
            format!("{}; make the folder or name another in `policy.dirs`", plain(&error)),
        )
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unlisted)? {
        let path = entry.map_err(unlisted)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            let text = "folders inside a policy folder are not read; name it in `policy.dirs`";
            warnings.push(Diagnostic::warning("folder_not_read", &whole(&path), text));
        } else if path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A policy that others can write or swap is theirs.
fn warn_of_strays(dir: &Path, path: &Path, warnings: &mut Vec<Diagnostic>) {
    let inside = match (dir.canonicalize(), path.canonicalize()) {
        (Ok(dir), Ok(path)) => path.starts_with(dir),
        (Ok(_) | Err(_), _) => true,
    };
    if !inside {
        let text = "the link leads out of the policy folder; copy the file into it";
        warnings.push(Diagnostic::warning("outside_folder", &whole(path), text));
    }
    warn_of_writers(path, "file", warnings);
}

fn warn_of_writers(path: &Path, kind: &str, warnings: &mut Vec<Diagnostic>) {
    let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & WORLD_WRITABLE != 0 {
        let text = format!("everyone can write this {kind}; take that right away: `chmod o-w`");
        warnings.push(Diagnostic::warning("world_writable", &whole(path), text));
    }
}

fn whole(path: &Path) -> Location {
    Location::new(&path.display().to_string().into(), 0, 0)
}

fn unreadable(path: &Path, advice: impl Into<String>) -> ConfigError {
    ConfigError::Unreadable { path: path.to_owned(), advice: advice.into() }
}

/// The system's words without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn advice(error: &std::io::Error) -> &'static str {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return "let the gateway's user read it";
    }
    "create it or name another"
}
