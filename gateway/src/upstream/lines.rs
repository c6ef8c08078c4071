//! Cuts the output of a stdio server into lines without copying them. A line has a longest
//! length, so that a server that never ends one does not decide how much memory is used.

use bytes::{Bytes, BytesMut};

/// Read at one time at least, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Bytes read and not yet cut.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: BytesMut,
    // So many bytes of the buffer are known to hold no line end.
    scanned: usize,
    line_bytes_max: usize,
}

impl Lines {
    /// Lines of up to `line_bytes_max` bytes.
    pub(crate) fn new(line_bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, line_bytes_max }
    }

    /// Where to read into.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    /// The next whole line, without its end.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
        match fresh.iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                let mut line = self.buffer.split_to(self.scanned + at + 1);
                line.truncate(line.len() - 1);
                self.scanned = 0;
                Some(line.freeze())
            }
            None => {
                self.scanned = self.buffer.len();
                None
            }
        }
    }

    /// True if the line that is being read is too long already.
    pub(crate) fn is_over(&self) -> bool {
        self.scanned > self.line_bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_arrive() {
        let text = b"one\n\ntwo two\r\nthree";
        for step in 1..text.len() {
            let mut lines = Lines::new(100);
            let mut seen = Vec::new();
            for piece in text.chunks(step) {
                lines.room().extend_from_slice(piece);
                seen.extend(std::iter::from_fn(|| lines.take()));
            }
            assert_eq!(seen, ["one", "", "two two\r"], "step {step}");
            assert!(!lines.is_over());
        }
    }

    #[test]
    fn a_line_without_end_is_noticed() {
        let mut lines = Lines::new(10);
        lines.room().extend_from_slice(b"01234567890");
        assert_eq!(lines.take(), None);
        assert!(lines.is_over());
    }
}
