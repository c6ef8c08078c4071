//! The strict subset of YAML that is accepted: one pass over the parser's events, before any
//! value is built, that stops at the first broken line and at the first limit.
//!
//! Not accepted: anchors, aliases, tags, directives, merge keys, `null`, keys that are not
//! text, a key twice.

use super::document::Document;
use crate::diagnostic::{Diagnostic, Location};
use serde_saphyr::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};
use std::collections::BTreeMap;

/// Deepest nesting of lists and mappings.
pub const DEPTH_MAX: usize = 32;
/// Most findings in one document; one more says that there are others.
const FINDINGS_MAX: usize = 64;

/// What is open at some point of a document.
enum Open {
    List,
    /// The keys so far, the last of them, and whether its value is due.
    Mapping {
        keys: BTreeMap<String, Location>,
        last: String,
        value_due: bool,
    },
}

/// True if the document keeps to the subset, so that it can be read on.
pub(super) fn screen(document: &Document<'_>, found: &mut Vec<Diagnostic>) -> bool {
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_anchor_events: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut pass = Pass { document, open: Vec::new(), root_seen: false, found: Vec::new() };
    for event in Parser::new_from_str_with_options(document.text, options) {
        match event {
            Ok((event, span)) => pass.step(&event, &span),
            Err(error) => pass.broken(&error),
        }
        if pass.open.len() > DEPTH_MAX || pass.found.len() > FINDINGS_MAX {
            break;
        }
    }
    let clean = pass.found.is_empty();
    found.append(&mut pass.found);
    clean
}

struct Pass<'a> {
    document: &'a Document<'a>,
    open: Vec<Open>,
    root_seen: bool,
    found: Vec<Diagnostic>,
}

impl Pass<'_> {
    fn step(&mut self, event: &Event<'_>, span: &Span) {
        let at = self.at(span);
        if let Event::Anchor(_, name) = event {
            let text = format!("`&{name}` is a YAML anchor, which is not accepted; write it out");
            self.report("anchor", &at, text);
        } else if let Event::Alias(_) | Event::UnresolvedAlias(_) = event {
            let name = span.slice(self.document.text).unwrap_or("*");
            let text = format!(
                "`{name}` is a YAML alias, which is not accepted; for a pattern write it in quotes"
            );
            self.report("alias", &at, text);
            self.value();
        } else if let Event::Scalar(text, style, _, tag) = event {
            self.tag(tag.is_some(), &at);
            self.scalar(text, *style, &at);
        } else if let Event::SequenceStart(_, _, tag) = event {
            self.tag(tag.is_some(), &at);
            self.container(Open::List, &at);
        } else if let Event::MappingStart(_, _, tag) = event {
            self.tag(tag.is_some(), &at);
            let keys = BTreeMap::new();
            self.container(Open::Mapping { keys, last: String::new(), value_due: false }, &at);
        } else if let Event::SequenceEnd | Event::MappingEnd = event {
            self.open.pop();
            self.value();
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: &Location) {
        let plain = style == ScalarStyle::Plain;
        let null = plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
        if let Some(Open::Mapping { keys, last, value_due }) = self.open.last_mut()
            && !*value_due
        {
            *value_due = true;
            text.clone_into(last);
            let twin = keys.insert(text.to_owned(), at.clone());
            self.key(text, plain, null, (at, twin));
            return;
        }
        if null {
            let text = self.null();
            self.report("null_value", at, text);
        }
        self.value();
    }

    fn key(
        &mut self,
        text: &str,
        plain: bool,
        null: bool,
        (at, twin): (&Location, Option<Location>),
    ) {
        if plain && text == "<<" {
            let text = "`<<` is a YAML merge key, which is not accepted; write the keys out";
            self.report("merge_key", at, text.to_owned());
        } else if null {
            let text = "a key is missing before `:`; write the key".to_owned();
            self.report("null_key", at, text);
        } else if let Some(twin) = twin {
            let text = format!("`{}` stands twice, first at {twin}; keep one", text.escape_debug());
            self.report("duplicate_key", at, text);
        }
    }

    /// The words for a value that is not there.
    fn null(&self) -> String {
        match self.open.last() {
            Some(Open::Mapping { last, .. }) => format!(
                "`{}` has no value; write one (`[]` is an empty list) or remove the key",
                last.escape_debug()
            ),
            Some(Open::List) => "an entry of the list is empty; write it or remove it".to_owned(),
            None => "the document is empty; write it or remove its `---`".to_owned(),
        }
    }

    fn container(&mut self, opened: Open, at: &Location) {
        if let Some(Open::Mapping { value_due, .. }) = self.open.last_mut()
            && !*value_due
        {
            *value_due = true;
            let text = "a key must be plain text, not a list or a mapping".to_owned();
            self.report("key_type", at, text);
        }
        if self.open.is_empty() && !self.root_seen && matches!(opened, Open::List) {
            let text = "the document is a list; write a mapping with `apiVersion` and `kind`";
            self.report("not_a_mapping", at, text.to_owned());
        }
        self.root_seen = true;
        self.open.push(opened);
        if self.open.len() > DEPTH_MAX {
            self.too_deep(at);
        }
    }

    /// A value of the container that is open now is complete.
    fn value(&mut self) {
        self.root_seen = true;
        if let Some(Open::Mapping { value_due, .. }) = self.open.last_mut() {
            *value_due = false;
        }
    }

    fn tag(&mut self, present: bool, at: &Location) {
        if present {
            let text = "a YAML tag (`!`) is not accepted; remove it".to_owned();
            self.report("tag", at, text);
        }
    }

    fn broken(&mut self, error: &ScanError) {
        let mark = error.marker();
        let at = self.document.at(mark.line() as u64, mark.col() as u64 + 1);
        let kind = error.kind();
        if matches!(kind, ErrorKind::RecursionLimitExceeded) {
            return self.too_deep(&at);
        }
        let text = if matches!(
            kind,
            ErrorKind::TabNotAllowed
                | ErrorKind::TabInBlockIndentation
                | ErrorKind::TabInIndentation
                | ErrorKind::TabAtBlockScalarStart
                | ErrorKind::TabInPlainScalar
        ) {
            "a tab stands where YAML wants spaces; replace it by spaces".to_owned()
        } else if matches!(kind, ErrorKind::MissingAnchorOrAliasName) {
            "`*` and `&` start an alias or anchor here; put the text in quotes, such as `\"*\"`"
                .to_owned()
        } else if matches!(kind, ErrorKind::DirectiveDisallowed) {
            "a YAML directive (`%`) is not accepted; remove it".to_owned()
        } else if matches!(kind, ErrorKind::BomInsideDocument) {
            "a byte order mark stands inside the file; remove it".to_owned()
        } else {
            format!("this is not YAML: {}; mend this line or the one before", error.info())
        };
        self.report("syntax", &at, text);
    }

    fn too_deep(&mut self, at: &Location) {
        let text = format!("lists and mappings nest deeper than {DEPTH_MAX}; flatten them");
        self.report("too_deep", at, text);
    }

    fn report(&mut self, code: &'static str, at: &Location, text: String) {
        if self.found.len() == FINDINGS_MAX {
            let text =
                format!("more than {FINDINGS_MAX} findings in this document; mend those first");
            self.found.push(Diagnostic::error("too_many_findings", at, text));
        } else if self.found.len() < FINDINGS_MAX {
            self.found.push(Diagnostic::error(code, at, text));
        }
    }

    fn at(&self, span: &Span) -> Location {
        self.document.at(span.start.line() as u64, span.start.col() as u64 + 1)
    }
}
