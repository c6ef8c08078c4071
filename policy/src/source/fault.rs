//! Reads a screened document into a wire struct, and says in an author's words what did not fit.

use super::document::Document;
use super::nearest::did_you_mean;
use super::strict::DEPTH_MAX;
use crate::diagnostic::Diagnostic;
use serde::de::DeserializeOwned;
use serde_saphyr::{DuplicateKeyPolicy, Error, MergeKeyPolicy};

/// Most nodes (keys, values, lists, mappings) in one document.
const NODES_MAX: usize = 250_000;

/// Keys that the format foresees and this build does not read.
const FORESEEN: &[&str] =
    &["when", "sse", "isolation", "callsPerRun", "callsPerDay", "tls", "oauth", "foreign", "jwt"];

/// Keys of other systems, and how the same is said here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("requireApproval", "every tool asks unless `autoApprove` lists it"),
    ("approveTools", "list the tools that run without asking in `autoApprove`"),
    ("alwaysAllow", "list the tools that run without asking in `autoApprove`"),
    ("toolNames", "list the tools in `allow`"),
    ("disallowedTools", "list the tools in `deny`"),
    ("mcp", "name the server in `server`"),
    ("mcpServers", "write an entry of `tools` for each server"),
    ("onTimeout", "a call that nobody decides is denied"),
];

/// The document as a `T`; what does not fit is a finding.
pub fn parse<T: DeserializeOwned>(
    document: &Document<'_>,
    found: &mut Vec<Diagnostic>,
) -> Option<T> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // A second one has its own error; this only bounds the third.
            max_documents: 2,
            max_depth: DEPTH_MAX,
            max_aliases: 0,
            max_anchors: 0,
            max_nodes: NODES_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(document.text, options) {
        Ok(value) => Some(value),
        Err(error) => {
            found.push(finding(document, &error));
            None
        }
    }
}

fn finding(document: &Document<'_>, error: &Error) -> Diagnostic {
    let place = error.location();
    let (line, column) = (place.map_or(0, |l| l.line()), place.map_or(0, |l| l.column()));
    let at = document.at(line, column);
    let here = key_before(document.text, line, column)
        .map_or_else(|| "here".to_owned(), |key| format!("for `{}`", key.escape_debug()));
    let (code, text) = if let Error::SerdeUnknownField { field, expected, .. } = error {
        ("unknown_key", unknown_key(field, expected))
    } else if let Error::SerdeMissingField { field, .. } = error {
        ("missing_key", format!("`{field}` is missing here; write it"))
    } else if let Error::SerdeInvalidType { unexpected, expected, .. }
    | Error::SerdeInvalidValue { unexpected, expected, .. } = error
    {
        ("wrong_type", format!("found {}, expected {expected}", plain_words(unexpected)))
    } else if let Error::Unexpected { expected, .. } = error {
        ("wrong_type", format!("expected {} {here}", plain_words(expected)))
    } else if let Error::InvalidBooleanStrict { .. } = error {
        ("wrong_type", format!("expected `true` or `false` {here}"))
    } else if let Error::Budget { .. } = error {
        ("too_large", format!("the document has more than {NODES_MAX} values; split it"))
    } else if let Error::MultipleDocuments { .. } = error {
        ("syntax", "a second document follows; start it with a line `---`".to_owned())
    } else {
        let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        let text = text.split(" at line ").next().unwrap_or_default().to_owned();
        ("wrong_value", text)
    };
    Diagnostic::error(code, &at, text)
}

/// The key whose value starts at a place, if it stands on the same line.
fn key_before(text: &str, line: u64, column: u64) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let (end, _) = line.char_indices().nth(column)?;
    let (before, _) = line.split_at_checked(end)?;
    let key = before.trim_end().strip_suffix(':')?.rsplit([' ', '{', '[', ',']).next()?;
    Some(key.trim_matches(['"', '\'']))
}

fn unknown_key(field: &str, known: &[&'static str]) -> String {
    let field = field.escape_debug();
    if FORESEEN.contains(&field.to_string().as_str()) {
        return format!("`{field}` is not supported yet; remove it");
    }
    if let Some((_, meaning)) = ELSEWHERE.iter().find(|(word, _)| *word == field.to_string()) {
        return format!("`{field}` is no key here; {meaning}");
    }
    let hint = did_you_mean(&field.to_string(), known.iter().copied());
    if hint.is_empty() {
        return format!("`{field}` is no key here; the keys are {}", list(known));
    }
    format!("`{field}` is no key here{hint}")
}

/// Words in backticks, with commas.
pub(super) fn list(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// The parser's words for a kind of value, in those of an author.
fn plain_words(kind: &str) -> String {
    match kind {
        "sequence" | "sequence start" => "a list".to_owned(),
        "map" | "mapping" | "mapping start" => "a mapping (`key: value`)".to_owned(),
        "string scalar" | "scalar" | "string" => "a single text".to_owned(),
        "unit value" => "nothing".to_owned(),
        _ if kind.starts_with("integer ") => kind.replacen("integer", "the number", 1),
        _ if kind.starts_with("floating point ") => {
            kind.replacen("floating point", "the number", 1)
        }
        other => other.replace("string \"", "the text `").replace('"', "`"),
    }
}
