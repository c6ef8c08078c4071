//! The files behind the audit: `audit-000001.jsonl`, `audit-000002.jsonl`, ….
//!
//! Lines are only ever appended, with a sequence that goes on across files and restarts. A line
//! that a crash left unfinished stays where it is as evidence; the next file begins after it.

use super::line::Line;
use super::{AuditError, Torn};
use serde::Deserialize;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file is closed and the next one begun at this size, in bytes.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How much of the end of a file is read to find its last record, in bytes: more than any line.
const TAIL_BYTES: u64 = 512 * 1024;

#[derive(Debug)]
pub(super) struct Trail {
    dir: PathBuf,
    number: u64,
    file: Arc<File>,
    // INVARIANT: the length of the file up to the end of its last whole line.
    bytes: u64,
    seq: u64,
    state: State,
    line: Line,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    // A write failed part way and could not be taken back yet.
    Partial,
}

impl Trail {
    pub(super) fn open(dir: &Path) -> Result<(Self, Option<Torn>), AuditError> {
        let failed = |source| AuditError::Open { path: dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let numbers = numbers(dir).map_err(failed)?;
        let Some(&last) = numbers.last() else {
            return Ok((Self::at(dir, 1, 0)?, None));
        };
        let end = End::read(&path(dir, last))?;
        let seq = match end.seq {
            Some(seq) => seq,
            None => seq_before(dir, &numbers)?,
        };
        if end.torn_bytes == 0 {
            return Ok((Self::at(dir, last, seq)?, None));
        }
        let torn = Torn { file: path(dir, last), bytes: end.torn_bytes };
        // The lock of the file left behind tells a crash from a gateway that is still writing.
        drop(locked(&path(dir, last))?);
        Ok((Self::at(dir, last + 1, seq)?, Some(torn)))
    }

    fn at(dir: &Path, number: u64, seq: u64) -> Result<Self, AuditError> {
        let path = path(dir, number);
        let file = locked(&path)?;
        let bytes = file
            .metadata()
            .map_err(|source| AuditError::Open { path: path.clone(), source })?
            .len();
        let file = Arc::new(file);
        let line = Line::default();
        Ok(Self { dir: dir.to_owned(), number, file, bytes, seq, state: State::Whole, line })
    }

    /// Appends one record and returns the file it went to, for the caller to sync.
    pub(super) fn append<F>(&mut self, kind: &'static str, fill: F) -> Result<Arc<File>, AuditError>
    where
        F: FnOnce(&mut Line),
    {
        if self.state == State::Partial {
            self.take_back().map_err(AuditError::Write)?;
        }
        if self.bytes >= FILE_BYTES_MAX {
            self.begin_next()?;
        }
        let seq = self.seq + 1;
        self.line.start(seq, kind);
        fill(&mut self.line);
        let bytes = self.line.end();
        match write_once(&self.file, bytes) {
            Ok(()) => {
                self.bytes += bytes.len() as u64;
                self.seq = seq;
                Ok(Arc::clone(&self.file))
            }
            Err(error) => {
                self.state = State::Partial;
                // If this fails as well, it is tried again before the next record.
                let _ = self.take_back();
                Err(AuditError::Write(error))
            }
        }
    }

    fn take_back(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() > self.bytes {
            self.file.set_len(self.bytes)?;
        }
        self.state = State::Whole;
        Ok(())
    }

    fn begin_next(&mut self) -> Result<(), AuditError> {
        let next = Self::at(&self.dir, self.number + 1, self.seq)?;
        self.file.sync_data().map_err(AuditError::Write)?;
        *self = next;
        Ok(())
    }
}

/// What the end of a file holds.
struct End {
    seq: Option<u64>,
    torn_bytes: u64,
}

#[derive(Deserialize)]
struct Record {
    seq: u64,
}

impl End {
    fn read(path: &Path) -> Result<Self, AuditError> {
        let tail = tail(path).map_err(|source| AuditError::Open { path: path.into(), source })?;
        let whole = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let torn_bytes = (tail.len() - whole) as u64;
        let line = tail.get(..whole).unwrap_or_default().trim_ascii_end().rsplit(|b| *b == b'\n');
        let Some(line) = line.into_iter().next().filter(|line| !line.is_empty()) else {
            return Ok(Self { seq: None, torn_bytes });
        };
        let record: Record = serde_json::from_slice(line)
            .map_err(|_| AuditError::Foreign { path: path.to_owned() })?;
        Ok(Self { seq: Some(record.seq), torn_bytes })
    }
}

fn tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(tail)
}

// The last file may hold nothing but a torn line: then an earlier one knows the sequence.
fn seq_before(dir: &Path, numbers: &[u64]) -> Result<u64, AuditError> {
    for number in numbers.iter().rev().skip(1) {
        if let Some(seq) = End::read(&path(dir, *number))?.seq {
            return Ok(seq);
        }
    }
    Ok(0)
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("audit-{number:06}.jsonl"))
}

fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number: Option<u64> = name
            .to_str()
            .and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"))
            .and_then(|digits| digits.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn locked(path: &Path) -> Result<File, AuditError> {
    let failed = |source| AuditError::Open { path: path.to_owned(), source };
    let made = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let file = made.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(AuditError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // The name of a new file must be as durable as the records in it.
    if let Some(dir) = path.parent() {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
    }
    Ok(file)
}

// One write, so that lines of one file never mix and a short write is a failure, not a pause.
fn write_once(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    loop {
        match file.write(bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_an_error_and_uses_no_sequence_number() {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut trail = Trail {
            dir: PathBuf::from("/nowhere"),
            number: 1,
            file: Arc::new(full),
            bytes: 0,
            seq: 7,
            state: State::Whole,
            line: Line::default(),
        };
        assert!(matches!(trail.append("call", |_| {}), Err(AuditError::Write(_))));
        assert!(matches!(trail.append("call", |_| {}), Err(AuditError::Write(_))));
        assert_eq!(trail.seq, 7);
    }
}
