//! A connection to a stdio server: one writer, one reader, a table of open requests.
//!
//! Every request gets exactly one ending: the server's answer, or a failure that says whether
//! the request had left. Answers nobody waits for are dropped and counted, and too many of them
//! end the connection. Lines that cannot be parsed are never answered.

use crate::upstream::counters::{Counters, count};
use crate::upstream::frame::{self, Answer, Frame, FrameFault};
use crate::upstream::lines::Lines;
use crate::upstream::message::{self, Failure, Log, Outgoing, Voice};
use crate::upstream::process::Pipes;
use crate::upstream::session::Era;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Messages that wait for the writer.
const WRITES_MAX: usize = 64;
/// Answers nobody asked for, in the life of one connection, before it is closed.
const STRAYS_MAX: u32 = 100;
/// Lines in a row that are no message before the connection is closed.
const JUNK_LINES_MAX: u32 = 1000;
/// Requests given up whose late answers are told from strays.
const ABANDONED_MAX: usize = 1024;

/// A connection to a stdio server.
#[derive(Debug)]
pub(crate) struct Pipe {
    table: Mutex<Table>,
    next_id: AtomicU64,
    writes: mpsc::Sender<Write>,
    counters: Arc<Counters>,
    // Told when the server says that its lists changed.
    changed: Arc<Notify>,
    ended: watch::Sender<Option<String>>,
    // Unset until the handshake is over.
    era: OnceLock<Era>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Open>,
    abandoned: VecDeque<u64>,
    strays: u32,
    junk: u32,
    // Set once; nothing is opened after it.
    ended: Option<String>,
}

impl Table {
    // Gives a request up; true if it had left and has no ending yet.
    fn abandon(&mut self, id: u64) -> bool {
        let left = self.open.remove(&id).is_some_and(|open| open.stage == Stage::Leaving);
        if left && self.abandoned.len() == ABANDONED_MAX {
            self.abandoned.pop_front();
        }
        if left {
            self.abandoned.push_back(id);
        }
        left
    }
}

#[derive(Debug)]
struct Open {
    answer: oneshot::Sender<Result<Answer, Failure>>,
    progress: Option<mpsc::Sender<Bytes>>,
    log: Option<Log>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Leaving,
}

#[derive(Debug)]
struct Write {
    // The request the line carries, if it carries one.
    request: Option<u64>,
    line: Vec<u8>,
}

/// What a pipe tells others.
#[derive(Debug, Clone)]
pub(crate) struct Hears {
    /// Counters of the server.
    pub(crate) counters: Arc<Counters>,
    /// Told when the server's lists changed.
    pub(crate) changed: Arc<Notify>,
    /// Longest line, in bytes.
    pub(crate) line_bytes_max: usize,
}

impl Pipe {
    /// Connects to the streams of a child. The reader and the writer are put into `tasks`, which
    /// owns and ends them.
    pub(crate) fn connect(streams: Pipes, hears: Hears, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let (writes, queue) = mpsc::channel(WRITES_MAX);
        let pipe = Arc::new(Self {
            table: Mutex::default(),
            next_id: AtomicU64::new(1),
            writes,
            counters: hears.counters,
            changed: hears.changed,
            ended: watch::Sender::new(None),
            era: OnceLock::new(),
        });
        tasks.spawn(write(Arc::clone(&pipe), queue, streams.stdin));
        tasks.spawn(read(Arc::clone(&pipe), streams.stdout, hears.line_bytes_max));
        pipe
    }

    /// Sends a request and waits for its answer until `deadline`. A caller that goes away
    /// cancels the request.
    pub(crate) async fn request(
        &self,
        outgoing: &Outgoing,
        voice: &Voice,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut line = outgoing.encode(id, voice);
        // A message ends with its line. Strings hold no raw line ends, so these are blanks
        // between tokens.
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        line.push(b'\n');
        let (answer, mut wait) = oneshot::channel();
        self.open(id, answer, outgoing)?;
        let guard = Abandon { pipe: self, id, quiet: QUIET.contains(&outgoing.method) };
        let queued =
            timeout_at(deadline, self.writes.send(Write { request: Some(id), line })).await;
        if queued.is_err() {
            return Err(Failure::NotSent("the server does not read its input".to_owned()));
        }
        match timeout_at(deadline, &mut wait).await {
            Ok(Ok(ending)) => ending,
            Ok(Err(_)) => Err(Failure::Unknown("the connection was dropped".to_owned())),
            Err(_) => Err(guard.overdue(&mut wait)),
        }
    }

    /// Sends a notification; it is lost if the server does not read.
    pub(crate) fn notify(&self, message: &str) {
        let line = format!("{message}\n").into_bytes();
        if self.writes.try_send(Write { request: None, line }).is_err() {
            count(&self.counters.dropped_notices);
        }
    }

    /// Says which era the connection speaks.
    pub(crate) fn agree(&self, era: Era) {
        // A connection agrees once.
        let _ = self.era.set(era);
    }

    /// Waits until the connection has ended; returns why. Cancel-safe.
    pub(crate) async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_default()
    }

    /// Ends the connection: every open request fails, with what is known about it.
    pub(crate) fn end(&self, reason: &str) {
        let open = {
            let mut table = self.table.lock();
            if table.ended.is_some() {
                return;
            }
            table.ended = Some(reason.to_owned());
            std::mem::take(&mut table.open)
        };
        for open in open.into_values() {
            let failure = match open.stage {
                Stage::Queued => Failure::NotSent(reason.to_owned()),
                Stage::Leaving => Failure::Unknown(reason.to_owned()),
            };
            // The caller may be gone.
            let _ = open.answer.send(Err(failure));
        }
        self.ended.send_replace(Some(reason.to_owned()));
    }

    fn open(
        &self,
        id: u64,
        answer: oneshot::Sender<Result<Answer, Failure>>,
        outgoing: &Outgoing,
    ) -> Result<(), Failure> {
        let mut table = self.table.lock();
        if let Some(reason) = &table.ended {
            return Err(Failure::NotSent(reason.clone()));
        }
        let (progress, log) = (outgoing.progress.clone(), outgoing.log.clone());
        table.open.insert(id, Open { answer, progress, log, stage: Stage::Queued });
        Ok(())
    }

    // False if nobody waits for the request any more: then it never leaves.
    fn leaves(&self, id: u64) -> bool {
        match self.table.lock().open.get_mut(&id) {
            Some(open) => {
                open.stage = Stage::Leaving;
                true
            }
            None => false,
        }
    }

    fn receive(&self, line: &Bytes) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let fault = match frame::read(line) {
            Ok(Frame::Reply { id, answer }) => {
                self.table.lock().junk = 0;
                self.settle(id, answer)
            }
            Ok(Frame::Notice { method, params }) => {
                self.table.lock().junk = 0;
                self.hear(&method, params)
            }
            Ok(Frame::Request { id, method }) => self.reply(&id, &method),
            Err(FrameFault::Json(_)) => Stray::Junk,
            Err(FrameFault::Shape(_) | FrameFault::Id) => Stray::Frame,
        };
        self.tally(fault);
    }

    fn settle(&self, id: u64, answer: Answer) -> Stray {
        let mut table = self.table.lock();
        if let Some(open) = table.open.remove(&id) {
            drop(table);
            // The caller may be gone this very moment.
            let _ = open.answer.send(Ok(answer));
            return Stray::None;
        }
        match table.abandoned.iter().position(|&given_up| given_up == id) {
            Some(at) => {
                table.abandoned.remove(at);
                Stray::None
            }
            None => Stray::Frame,
        }
    }

    fn hear(&self, method: &str, params: Option<Bytes>) -> Stray {
        match method {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.changed.notify_one(),
            "notifications/progress" => {
                let Some(params) = params else { return Stray::Frame };
                let token = frame::progress_token(&params);
                let table = self.table.lock();
                let to = token
                    .and_then(|id| table.open.get(&id))
                    .and_then(|open| open.progress.as_ref());
                if to.is_none_or(|to| to.try_send(params).is_err()) {
                    count(&self.counters.dropped_notices);
                }
            }
            "notifications/message" => {
                // The pipe does not say whose it is: passed on if only one, none given up, can be meant.
                let table = self.table.lock();
                let mut open = table.open.values();
                let (only, more) = (open.next(), open.next());
                let alone = more.is_none() && table.abandoned.is_empty();
                let to = only.filter(|_| alone).and_then(|open| open.log.as_ref());
                let Some((log, params)) = to.zip(params) else { return Stray::None };
                if log.to.try_send(params).is_err() {
                    count(&self.counters.dropped_notices);
                }
            }
            _ => {}
        }
        Stray::None
    }

    fn reply(&self, id: &[u8], method: &str) -> Stray {
        // MCP 2026-07-28: a server writes no requests.
        if self.era.get() == Some(&Era::Modern) && method != "ping" {
            return Stray::Frame;
        }
        let mut line = message::answer(id, method);
        line.push(b'\n');
        // A server that asks faster than it reads gets no answer: the queue is bounded.
        match self.writes.try_send(Write { request: None, line }) {
            Ok(()) => Stray::None,
            Err(_) => Stray::Frame,
        }
    }

    fn tally(&self, stray: Stray) {
        let reason = {
            let mut table = self.table.lock();
            match stray {
                Stray::None => return,
                Stray::Junk => table.junk += 1,
                Stray::Frame => table.strays += 1,
            }
            if table.strays > STRAYS_MAX {
                Some(format!("it sent more than {STRAYS_MAX} messages nobody asked for"))
            } else if table.junk > JUNK_LINES_MAX {
                Some(format!("it wrote more than {JUNK_LINES_MAX} lines that are no messages"))
            } else {
                None
            }
        };
        count(&self.counters.dropped_frames);
        if let Some(reason) = reason {
            self.end(&reason);
        }
    }
}

/// What a line was, if it was not what it should be.
#[derive(Debug, Clone, Copy)]
enum Stray {
    None,
    Junk,
    Frame,
}

/// Requests that are given up without a word: a server that is not open yet may not know
/// `notifications/cancelled`, and `initialize` must not be cancelled.
const QUIET: [&str; 2] = ["initialize", "server/discover"];

// Removes an open request when its caller stops waiting, and cancels it if it had left.
struct Abandon<'a> {
    pipe: &'a Pipe,
    id: u64,
    quiet: bool,
}

impl Abandon<'_> {
    // The time is over. Had the request left?
    fn overdue(&self, wait: &mut oneshot::Receiver<Result<Answer, Failure>>) -> Failure {
        let stage = self.pipe.table.lock().open.get(&self.id).map(|open| open.stage);
        match stage {
            Some(Stage::Queued) => {
                Failure::NotSent("the server does not read its input".to_owned())
            }
            Some(Stage::Leaving) => Failure::Timeout("the server did not answer".to_owned()),
            // The ending came this very moment.
            None => match wait.try_recv() {
                Ok(Err(failure)) => failure,
                Ok(Ok(_)) | Err(_) => Failure::Timeout("the answer came too late".to_owned()),
            },
        }
    }
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let left = self.pipe.table.lock().abandon(self.id);
        if left && !self.quiet {
            self.pipe.notify(&message::cancelled(self.id));
        }
    }
}

async fn write(pipe: Arc<Pipe>, mut queue: mpsc::Receiver<Write>, mut stdin: ChildStdin) {
    while let Some(write) = queue.recv().await {
        if write.request.is_some_and(|id| !pipe.leaves(id)) {
            continue;
        }
        if let Err(error) = stdin.write_all(&write.line).await {
            pipe.end(&format!("it does not take input: {error}"));
            return;
        }
    }
}

async fn read(pipe: Arc<Pipe>, mut stdout: ChildStdout, line_bytes_max: usize) {
    let mut lines = Lines::new(line_bytes_max);
    let reason = loop {
        match stdout.read_buf(lines.room()).await {
            Ok(0) => break "it closed its output".to_owned(),
            Ok(_) => {}
            Err(error) => break format!("its output cannot be read: {error}"),
        }
        while let Some(line) = lines.take() {
            pipe.receive(&line);
        }
        if lines.is_over() {
            break format!("it wrote a line of more than {line_bytes_max} bytes");
        }
    };
    pipe.end(&reason);
}
