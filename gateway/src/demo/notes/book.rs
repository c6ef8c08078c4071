//! The notebook behind the demo notes server: numbered notes in memory, two at start.

use std::collections::BTreeMap;

/// One note.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) title: String,
    pub(super) text: String,
}

/// All notes by number. A number is never given twice, not even after a note is deleted.
#[derive(Debug)]
pub(super) struct Book {
    notes: BTreeMap<u32, Note>,
    next: u32,
}

impl Book {
    pub(super) fn new() -> Self {
        let mut book = Self { notes: BTreeMap::new(), next: 1 };
        book.add("Opening hours", "Support answers from 08:00 to 18:00, Monday to Friday.");
        book.add("Refund rule", "Refunds above 50.00 EUR need a second pair of eyes.");
        book
    }

    /// Adds a note and answers with its id.
    pub(super) fn add(&mut self, title: &str, text: &str) -> String {
        let number = self.next;
        self.next = number.saturating_add(1);
        self.notes.insert(number, Note { title: title.to_owned(), text: text.to_owned() });
        id(number)
    }

    /// Ids and titles in the order the notes were added.
    pub(super) fn titles(&self) -> impl Iterator<Item = (String, &str)> {
        self.notes.iter().map(|(number, note)| (id(*number), note.title.as_str()))
    }

    pub(super) fn read(&self, id: &str) -> Option<&Note> {
        self.notes.get(&number(id)?)
    }

    pub(super) fn delete(&mut self, id: &str) -> Option<Note> {
        self.notes.remove(&number(id)?)
    }
}

fn id(number: u32) -> String {
    format!("n-{number}")
}

fn number(id: &str) -> Option<u32> {
    id.strip_prefix("n-")?.parse().ok()
}
