//! The folders the gateway writes to: there, private, writable, with room left.

use super::{Check, as_the_gateway, spelled};
use crate::cli::keys::age;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// With less room than this the gateway soon refuses calls.
const ROOM_LEAST: u64 = 64 << 20;
/// With less room than this it is time to look.
const ROOM_LOW: u64 = 1 << 30;

/// The state folder and the room it has.
pub(super) fn state(dir: &Path) -> Vec<Check> {
    let folder = folder("state folder", dir);
    let checked = existing(dir);
    vec![folder, room(&checked, ROOM_LEAST, ROOM_LOW)]
}

/// The audit folder and its last record.
pub(super) fn audit(dir: &Path) -> Check {
    let check = folder("audit", dir);
    if check.verdict != super::Verdict::Ok || !dir.exists() {
        return check;
    }
    let last = fs::read_dir(dir).ok().into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let record = name.to_str()?.starts_with("audit-") && name.to_str()?.ends_with(".jsonl");
        record.then(|| entry.metadata().ok()?.modified().ok())?
    });
    match last.max() {
        Some(at) => {
            let found = format!(
                "private and writable; the last record is {} old",
                age(at, SystemTime::now())
            );
            Check::ok("audit", &dir.display(), found)
        }
        None => Check::ok("audit", &dir.display(), "private and writable; no record yet"),
    }
}

/// A folder that is for the gateway alone and can be written to.
fn folder(name: &'static str, dir: &Path) -> Check {
    let place = dir.display();
    let metadata = match fs::metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::ok(name, &place, "not there yet; the first start makes it");
        }
        Err(error) => return Check::failed(name, &place, said(&error), as_the_gateway(dir)),
    };
    if !metadata.is_dir() {
        let remedy = "move it away, or name another folder in the configuration";
        return Check::failed(name, &place, "this is no folder", remedy);
    }
    let mode = metadata.permissions().mode() & 0o777;
    let private = format!("chmod 700 {place}");
    if mode & 0o022 != 0 {
        let found = format!("others can change what is in it (mode {mode:03o})");
        return Check::failed(name, &place, found, private);
    }
    if let Err(error) = probe(dir) {
        let kind = error.kind();
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&kind);
        let remedy = if kind == io::ErrorKind::ReadOnlyFilesystem {
            "mount it so that it can be written, or name another folder".to_owned()
        } else if full {
            "free some room on that disk".to_owned()
        } else {
            as_the_gateway(dir)
        };
        return Check::failed(
            name,
            &place,
            format!("it cannot be written: {}", said(&error)),
            remedy,
        );
    }
    if mode & 0o055 != 0 {
        let found = format!("others can look into it (mode {mode:03o})");
        return Check::warning(name, &place, found, private);
    }
    Check::ok(name, &place, "private and writable")
}

/// Writes a file and removes it again: permissions alone do not tell a full or read-only disk.
fn probe(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let written = file.write_all(&[0; 4_096]).and_then(|()| file.sync_all());
    fs::remove_file(&path)?;
    written
}

/// What is free on the disk of a folder that exists.
fn room(dir: &Path, least: u64, low: u64) -> Check {
    let (name, place) = ("free space", dir.display());
    let disk = match rustix::fs::statvfs(dir) {
        Ok(disk) => disk,
        Err(error) => {
            return Check::warning(name, &place, error.to_string(), "look at the disk with `df`");
        }
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let found = format!("{} free", spelled(free));
    let remedy = "free some room: a full disk means that no call that asks is accepted";
    if free < least {
        return Check::failed(name, &place, found, remedy);
    }
    if disk.f_files > 0 && disk.f_favail == 0 {
        return Check::failed(
            name,
            &place,
            "no file can be made any more",
            "remove files on that disk",
        );
    }
    if free < low {
        Check::warning(name, &place, found, remedy)
    } else {
        Check::ok(name, &place, found)
    }
}

/// The folder itself or the nearest one above it that is there.
fn existing(dir: &Path) -> PathBuf {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let there = dir.ancestors().find(|dir| dir.exists());
    there.unwrap_or(Path::new("/")).to_owned()
}

/// The system's words without its number.
pub(super) fn said(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Verdict;

    #[test]
    fn little_room_is_a_warning_and_none_a_failure() {
        let dir = std::env::temp_dir();
        assert_eq!(room(&dir, 0, 0).verdict, Verdict::Ok);
        assert_eq!(room(&dir, 0, u64::MAX).verdict, Verdict::Warning);
        let full = room(&dir, u64::MAX, u64::MAX);
        assert_eq!(full.verdict, Verdict::Failed);
        assert!(full.remedy.contains("free some room"), "{full:?}");
        assert_eq!(existing(&dir.join("not/there")), dir);
    }
}
