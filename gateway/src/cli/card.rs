//! A card as a person reads it: everything that would run, nothing hidden.

use super::screen::plain;
use portcullis_policy::canonical::Digest;
use serde::Deserialize;
use std::fmt::Write as _;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Card {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) agent: String,
    pub(super) run: String,
    #[serde(default)]
    pub(super) parents: Vec<Parent>,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) title: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) digest: Option<String>,
    pub(super) rule: String,
    pub(super) created: String,
    pub(super) deadline: Option<String>,
    pub(super) unattended: bool,
    #[serde(default)]
    pub(super) approvers: Vec<String>,
    #[serde(default = "one")]
    pub(super) needed: u32,
    #[serde(default)]
    pub(super) votes: Vec<Decision>,
    #[serde(default)]
    pub(super) edit: Option<Edit>,
    pub(super) decision: Option<Decision>,
    pub(super) outcome: Option<String>,
    pub(super) detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Parent {
    pub(super) agent: String,
    pub(super) run: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Decision {
    pub(super) decision: String,
    pub(super) reason: Option<String>,
    pub(super) by: String,
    pub(super) at: String,
}

/// What an approver made of the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Edit {
    asked: Option<String>,
    by: String,
}

fn one() -> u32 {
    1
}

/// Longest piece of arguments in a list, in characters.
const LIST_ARGUMENTS_CHARS: usize = 60;

impl Card {
    /// True if the digest is that of the arguments that are shown.
    pub(super) fn is_whole(&self) -> bool {
        self.arguments
            .as_ref()
            .is_some_and(|text| Some(Digest::of(text.as_bytes()).to_string()) == self.digest)
    }

    /// The whole card.
    pub(super) fn shown(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, value: &str| {
            // Writing into a String cannot fail.
            let _ = writeln!(out, "{name:<10} {value}");
        };
        row("approval", &format!("{} ({})", plain(&self.id), plain(&self.state)));
        row("agent", &format!("{} in {}", plain(&self.agent), plain(&self.run)));
        for parent in &self.parents {
            row("below", &format!("{} in {}", plain(&parent.agent), plain(&parent.run)));
        }
        row("server", &plain(&self.server));
        row("tool", &plain(&self.tool));
        if let Some(title) = &self.title {
            row("title", &format!("\"{}\" (the server's own words)", plain(title)));
        }
        match &self.arguments {
            Some(text) => row("arguments", &format!("{} ({} bytes)", plain(text), text.len())),
            None => row(
                "arguments",
                "not shown: they hold secrets, and this credential does not decide",
            ),
        }
        if let Some(digest) = &self.digest {
            row("digest", &plain(digest));
        }
        if let Some(Edit { asked, by }) = &self.edit {
            let asked = asked.as_deref().map_or("not shown".to_owned(), plain);
            row("asked for", &format!("{asked} (changed by {})", plain(by)));
        }
        row("rule", &plain(&self.rule));
        if !self.approvers.is_empty() {
            let of = match self.needed {
                1 => String::new(),
                needed => format!(", {needed} different ones"),
            };
            row("decides", &plain(&format!("{}{of}", self.approvers.join(" or "))));
        }
        for vote in &self.votes {
            row("vote", &vote.shown());
        }
        row("created", &plain(&self.created));
        if let Some(deadline) = &self.deadline {
            row("until", &plain(deadline));
        }
        if self.unattended {
            row("caller", "not waiting now; an approval is used by its identical repeat");
        }
        if let Some(decision) = &self.decision {
            row("decided", &decision.shown());
        }
        out
    }

    /// One line about what became of it.
    pub(super) fn ended(&self) -> String {
        let mut text = format!("approval {} is {}", plain(&self.id), plain(&self.state));
        if let Some(outcome) = &self.outcome {
            let _ = write!(text, " ({})", plain(outcome));
        }
        if let Some(decision) = &self.decision {
            let _ = write!(text, ", decided: {}", decision.shown());
        }
        if !self.detail.is_empty() {
            let _ = write!(text, "; {}", plain(&self.detail));
        }
        text
    }

    fn row(&self) -> [String; 5] {
        let arguments = match &self.arguments {
            Some(text) => folded(&plain(text)),
            None => "(secret)".to_owned(),
        };
        let until = self.deadline.as_deref().unwrap_or("-");
        [
            plain(&self.id),
            plain(&self.state),
            plain(&self.agent),
            format!("{}.{} {arguments}", plain(&self.server), plain(&self.tool)),
            plain(until),
        ]
    }
}

impl Decision {
    fn shown(&self) -> String {
        let mut text =
            format!("{} by {} at {}", plain(&self.decision), plain(&self.by), plain(&self.at));
        if let Some(reason) = &self.reason {
            let _ = write!(text, ", \"{}\"", plain(reason));
        }
        text
    }
}

/// The list of cards as a table.
pub(super) fn table(cards: &[Card]) -> String {
    if cards.is_empty() {
        return "nothing waits for a decision\n".to_owned();
    }
    let head = ["ID", "STATE", "AGENT", "CALL", "UNTIL"].map(ToOwned::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(cards.iter().map(Card::row)).collect();
    aligned(&rows)
}

/// Rows with their columns under each other.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or_default()).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn folded(text: &str) -> String {
    let count = text.chars().count();
    if count <= LIST_ARGUMENTS_CHARS {
        return text.to_owned();
    }
    let cut: String = text.chars().take(LIST_ARGUMENTS_CHARS).collect();
    format!("{cut}… (+{} characters)", count - LIST_ARGUMENTS_CHARS)
}
