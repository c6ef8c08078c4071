//! Reads a stream of server-sent events piece by piece (HTML standard, "Server-sent events").
//! Memory is bounded by the size of one event; comments cost none.

use bytes::{Bytes, BytesMut};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// `event`; empty is `message`.
    pub(crate) kind: String,
    /// `data`, its lines joined.
    pub(crate) data: Bytes,
}

/// An event is larger than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// A stream that is being read.
#[derive(Debug)]
pub(crate) struct Events {
    buffer: BytesMut,
    // So many bytes of the buffer are known to hold no line end.
    scanned: usize,
    // The last line ended with CR: a LF that follows belongs to it.
    after_cr: bool,
    started: bool,
    data: Vec<Bytes>,
    data_bytes: usize,
    kind: String,
    event_bytes_max: usize,
}

impl Events {
    /// A stream whose events have up to `event_bytes_max` bytes.
    pub(crate) fn new(event_bytes_max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            after_cr: false,
            started: false,
            data: Vec::new(),
            data_bytes: 0,
            kind: String::new(),
            event_bytes_max,
        }
    }

    /// Takes the next piece of the stream.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole event.
    pub(crate) fn take(&mut self) -> Result<Option<Event>, TooLong> {
        while let Some(line) = self.line() {
            if !line.is_empty() {
                self.field(&line);
            } else if let Some(event) = self.dispatch() {
                return Ok(Some(event));
            }
            if self.data_bytes > self.event_bytes_max {
                return Err(TooLong);
            }
        }
        if self.buffer.len() + self.data_bytes > self.event_bytes_max {
            return Err(TooLong);
        }
        Ok(None)
    }

    fn line(&mut self) -> Option<Bytes> {
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer.first() == Some(&b'\n') {
                let _ = self.buffer.split_to(1);
            }
        }
        let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.scanned = self.buffer.len();
            return None;
        };
        self.after_cr = fresh.get(at) == Some(&b'\r');
        let mut line = self.buffer.split_to(self.scanned + at + 1);
        line.truncate(line.len() - 1);
        self.scanned = 0;
        if !std::mem::replace(&mut self.started, true) && line.starts_with(b"\xef\xbb\xbf") {
            let _ = line.split_to(3);
        }
        Some(line.freeze())
    }

    fn field(&mut self, line: &Bytes) {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let name = line.get(..colon).unwrap_or_default();
        let mut value = line.slice((colon + 1).min(line.len())..);
        if value.first() == Some(&b' ') {
            value = value.slice(1..);
        }
        match name {
            b"data" => {
                self.data_bytes += value.len() + 1;
                self.data.push(value);
            }
            b"event" => self.kind = String::from_utf8_lossy(&value).into_owned(),
            // `id` and `retry` serve resumption, which is not used; an empty name is a comment.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let kind = std::mem::take(&mut self.kind);
        let mut lines = std::mem::take(&mut self.data);
        self.data_bytes = 0;
        let data = match (lines.pop(), lines.is_empty()) {
            (None, _) => return None,
            (Some(only), true) => only,
            (Some(last), false) => {
                lines.push(last);
                Bytes::from(lines.join(&b'\n'))
            }
        };
        Some(Event { kind, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], step: usize) -> Vec<(String, String)> {
        let mut events = Events::new(100);
        let mut seen = Vec::new();
        for piece in text.chunks(step) {
            events.feed(piece);
            let plain =
                |event: Event| (event.kind, String::from_utf8(event.data.to_vec()).unwrap());
            seen.extend(std::iter::from_fn(|| events.take().unwrap()).map(plain));
        }
        seen
    }

    #[test]
    fn events_come_out_whole_however_they_arrive() {
        let text = b"\xef\xbb\xbf: hello\r\n\r\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n\
                     id: 7\nretry: 10\ndata\n\ndata:x\rdata: y\r\r: bye\n\nevent: lost\n\ndata: cut";
        let expected = [("message", "{\"a\":\n1}"), ("", ""), ("", "x\ny")]
            .map(|(kind, data)| (kind.to_owned(), data.to_owned()));
        for step in 1..=text.len() {
            assert_eq!(all(text, step), expected, "step {step}");
        }
    }

    #[test]
    fn an_event_has_a_largest_size_and_comments_have_none() {
        let mut events = Events::new(50);
        for _ in 0..1000 {
            events.feed(b": a comment of some length\n");
            assert_eq!(events.take(), Ok(None));
        }
        events.feed(&[b'x'; 51]);
        assert_eq!(events.take(), Err(TooLong));
        let mut events = Events::new(50);
        for _ in 0..3 {
            events.feed(b"data: twenty bytes of it\n");
        }
        assert_eq!(events.take(), Err(TooLong));
    }
}
