//! Cuts a file into its YAML documents, so that a fault in one hides no finding in another.

use super::SourceFile;
use super::strict;
use crate::diagnostic::{Diagnostic, Location};
use std::sync::Arc;

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most documents in one file.
pub const DOCUMENTS_MAX: usize = 1_024;

/// One YAML document and its place in a file.
#[derive(Debug)]
pub struct Document<'a> {
    file: Arc<str>,
    /// The text, with the line of its `---`.
    pub(super) text: &'a str,
    // INVARIANT: the number of lines of the file before `text`.
    lines_before: u32,
}

impl Document<'_> {
    /// A place in the file, from a line and a column of this document that count from 1.
    pub(super) fn at(&self, line: u64, column: u64) -> Location {
        let line = u32::try_from(line).unwrap_or(u32::MAX).max(1);
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        Location::new(&self.file, self.lines_before.saturating_add(line), column)
    }

    /// The place of a value that was read from this document.
    #[must_use]
    pub fn place<T>(&self, value: &serde_saphyr::Spanned<T>) -> Location {
        self.at(value.referenced.line(), value.referenced.column())
    }
}

/// The documents of a file that pass the strict subset; what does not pass is a finding.
pub fn documents<'a>(file: &SourceFile<'a>, found: &mut Vec<Diagnostic>) -> Vec<Document<'a>> {
    let whole = Location::new(&file.name, 0, 0);
    if file.text.len() > FILE_BYTES_MAX {
        let text =
            format!("the file has {} bytes, more than {FILE_BYTES_MAX}; split it", file.text.len());
        found.push(Diagnostic::error("too_large", &whole, text));
        return Vec::new();
    }
    if file.text.starts_with('\u{feff}') {
        let text = "the file starts with a byte order mark; save it as UTF-8 without one";
        found.push(Diagnostic::error("byte_order_mark", &Location::new(&file.name, 1, 1), text));
        return Vec::new();
    }
    let parts = cut(file);
    if parts.len() > DOCUMENTS_MAX {
        let text = format!("the file has more than {DOCUMENTS_MAX} documents; split it");
        found.push(Diagnostic::error("too_many_documents", &whole, text));
        return Vec::new();
    }
    if parts.is_empty() {
        let text = "the file is empty: write a document into it or remove it";
        found.push(Diagnostic::error("empty_file", &whole, text));
    }
    parts
        .into_iter()
        .filter(|document| has_content(document, found) && strict::screen(document, found))
        .collect()
}

/// Cuts at each line that starts with `---`, which YAML reserves for nothing else.
fn cut<'a>(file: &SourceFile<'a>) -> Vec<Document<'a>> {
    let mut parts = Vec::new();
    let (mut rest, mut lines_before) = (file.text, 0);
    while !rest.is_empty() {
        let mut bytes = 0;
        let mut lines = 0;
        for line in rest.split_inclusive('\n') {
            if bytes > 0 && starts_document(line) {
                break;
            }
            bytes += line.len();
            lines += 1;
        }
        let (text, after) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
        // Comments before the first `---` are no document.
        if starts_document(text) || !is_blank(text) {
            parts.push(Document { file: Arc::clone(&file.name), text, lines_before });
        }
        if parts.len() > DOCUMENTS_MAX {
            break;
        }
        rest = after;
        lines_before += lines;
    }
    parts
}

/// A `---` with nothing after it, as generators like to write, does no harm.
fn has_content(document: &Document<'_>, found: &mut Vec<Diagnostic>) -> bool {
    let empty = document.text.strip_prefix("---").is_some_and(is_blank);
    if empty {
        let text = "nothing follows this `---`; write a document or remove the line";
        found.push(Diagnostic::warning("empty_document", &document.at(1, 1), text));
    }
    !empty
}

fn starts_document(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}
