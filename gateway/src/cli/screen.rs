//! What a terminal is given: never a character that hides, moves or colours others.

use super::Exit;

pub use crate::plain::plain;
pub(super) use crate::plain::{json, lines};
use std::io::{self, IsTerminal as _, Write as _};

/// `text`, whose lines begin with a name of their own, with these names set back. Colour is
/// decoration: it goes to terminals alone, and not where somebody asks for none
/// (<https://no-color.org>).
pub(super) fn decorated(text: &str) -> String {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if !io::stdout().is_terminal() || set("NO_COLOR") || dumb {
        return text.to_owned();
    }
    text.lines().map(|line| format!("{}\n", set_back(line))).collect()
}

fn set_back(line: &str) -> String {
    match line.split_once(' ') {
        Some((name, rest)) if !name.is_empty() => format!("{DIM}{name}{PLAIN} {rest}"),
        Some(_) | None => line.to_owned(),
    }
}

const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// Writes `text`, escaped before, to standard output. A reader that went away has seen enough.
pub fn print(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(_) => Exit::Unavailable,
    }
}

/// Writes a message, escaped before, to standard error.
pub fn complain(message: &str) {
    // With standard error gone there is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "portcullis: {message}");
}
