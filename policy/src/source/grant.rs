//! One entry of an agent's `tools` that names a server.

use super::overlap;
use super::reader::Reader;
use super::wire::{Binding, Entry, Patterns, Text};
use crate::definition::{Grant, Rule, Selection};
use crate::diagnostic::{Diagnostic, Location};
use crate::name::{NAME_BYTES_MAX, ServerName};
use crate::pattern::{Case, Pattern};
use serde_saphyr::Spanned;

/// Most patterns in one list.
pub const RULES_MAX: usize = 1_000;
/// Longest resource pattern, in bytes.
pub const URI_BYTES_MAX: usize = 2_048;

/// What a pattern is matched against.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    /// Names of tools or prompts.
    Name,
    /// URIs of resources.
    Uri,
}

/// The grant of an entry whose `server` is `named`.
pub(super) fn grant(
    reader: &mut Reader<'_>,
    named: &Text,
    entry: &Spanned<Binding>,
) -> Option<Grant> {
    let location = reader.place(entry);
    let server = reader.name(named, ServerName::new);
    let entry = &entry.value;
    let Some(allow) = &entry.allow else {
        let text = format!(
            "`allow` is missing for server `{}`; write `allow: \"*\"` for every tool, a list of \
             tools, or `[]` for none",
            named.value.escape_debug()
        );
        reader.error("missing_key", &location, text);
        return None;
    };
    let allow = selection(reader, allow);
    let auto_approve = optional(reader, entry.auto_approve.as_ref());
    let deny = optional(reader, entry.deny.as_ref());
    warn_useless(reader, "autoApprove", &auto_approve, &allow);
    warn_useless(reader, "deny", &deny, &allow);
    note_denied(reader, &deny, &allow);
    let resources = entry.resources.as_deref().unwrap_or_default();
    let secret = entry.secret.as_deref().unwrap_or_default();
    Some(Grant {
        server: server?,
        allow,
        auto_approve,
        deny,
        resources: rules(reader, resources, Subject::Uri),
        prompts: optional(reader, entry.prompts.as_ref()),
        secret: secret.iter().filter_map(|text| argument(reader, text)).collect(),
        location,
    })
}

fn optional(reader: &mut Reader<'_>, patterns: Option<&Spanned<Patterns>>) -> Selection {
    patterns.map_or_else(Selection::none, |patterns| selection(reader, patterns))
}

fn selection(reader: &mut Reader<'_>, patterns: &Spanned<Patterns>) -> Selection {
    match &patterns.value {
        Patterns::Every => Selection::Every(reader.place(patterns)),
        Patterns::Listed(entries) => {
            let names: Vec<Text> =
                entries.iter().filter_map(|entry| unconditional(reader, entry)).collect();
            Selection::Listed(rules(reader, &names, Subject::Name))
        }
    }
}

/// The pattern of an entry; conditions are refused until they are understood.
fn unconditional(reader: &mut Reader<'_>, entry: &Spanned<Entry>) -> Option<Text> {
    match &entry.value {
        Entry::Pattern(pattern) => {
            Some(Spanned::new(pattern.clone(), entry.referenced, entry.defined))
        }
        Entry::Conditional(conditional) => {
            let tool = conditional.tool.value.escape_debug();
            let (code, text) = if conditional.when.is_some() {
                (
                    "not_supported",
                    format!(
                        "`when` is not supported yet, so `{tool}` cannot depend on arguments; \
                         remove the entry and the tool asks for approval"
                    ),
                )
            } else {
                ("wrong_type", format!("an entry without `when` is written `- {tool}`"))
            };
            reader.error(code, &reader.place(entry), text);
            None
        }
    }
}

fn rules(reader: &mut Reader<'_>, texts: &[Text], subject: Subject) -> Vec<Rule> {
    if let Some(first) = texts.get(RULES_MAX) {
        let text = format!("the list has more than {RULES_MAX} entries; use patterns");
        reader.error("too_many", &reader.place(first), text);
        return Vec::new();
    }
    let mut seen: Vec<Rule> = Vec::new();
    for text in texts {
        let Some(rule) = rule(reader, text, subject) else { continue };
        let case = match subject {
            Subject::Name => Case::Fold,
            Subject::Uri => Case::Exact,
        };
        if let Some(twin) =
            seen.iter().find(|other| overlap::same(&other.pattern, &rule.pattern, case))
        {
            let message =
                format!("`{}` stands twice, first at {}; keep one", rule.pattern, twin.location);
            reader.found.push(Diagnostic::warning("duplicate_pattern", &rule.location, message));
            continue;
        }
        seen.push(rule);
    }
    seen
}

fn rule(reader: &mut Reader<'_>, text: &Text, subject: Subject) -> Option<Rule> {
    let location = reader.place(text);
    if let Some(message) = wrong_pattern(&text.value, subject) {
        reader.error("bad_pattern", &location, message);
        return None;
    }
    Some(Rule { pattern: Pattern::new(&text.value), location })
}

/// Why `pattern` is not accepted in a list of patterns, and what to write instead.
pub(crate) fn wrong_pattern(pattern: &str, subject: Subject) -> Option<String> {
    let shown = pattern.escape_debug();
    match subject {
        Subject::Name if pattern == "*" => {
            Some("`*` inside a list: write `\"*\"` instead of the list to mean all".to_owned())
        }
        Subject::Name if pattern.is_empty() || pattern.len() > NAME_BYTES_MAX => {
            Some(format!("a pattern has 1 to {NAME_BYTES_MAX} characters, `{shown}` does not"))
        }
        Subject::Name if !pattern.bytes().all(in_names) => Some(format!(
            "`{shown}` can match nothing: names have letters, digits, `_`, `.`, `/` and `-`, and \
             patterns also `*` and `?`"
        )),
        Subject::Uri if pattern.is_empty() || pattern.len() > URI_BYTES_MAX => {
            Some(format!("a URI pattern has 1 to {URI_BYTES_MAX} bytes, `{shown}` does not"))
        }
        Subject::Uri if pattern.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Some(format!("`{shown}` can match nothing: a URI has no spaces"))
        }
        Subject::Name | Subject::Uri => None,
    }
}

fn in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./-*?".contains(&byte)
}

fn argument(reader: &mut Reader<'_>, text: &Text) -> Option<String> {
    let plain = !text.value.is_empty() && !text.value.contains(char::is_control);
    if !plain {
        let message = "a secret argument is a name such as `password` or a path such as `*.token`";
        reader.error("bad_pattern", &reader.place(text), message);
    }
    plain.then(|| text.value.clone())
}

/// A rule that covers nothing of `allow` does nothing, and the author should know.
fn warn_useless(reader: &mut Reader<'_>, key: &str, rules: &Selection, allow: &Selection) {
    let Selection::Listed(rules) = rules else { return };
    for rule in rules.iter().filter(|rule| !touches(rule, allow)) {
        let message = format!(
            "`{}` in `{key}` covers nothing in `allow`, so it does nothing; add the tool to \
             `allow` or remove the entry",
            rule.pattern
        );
        reader.found.push(Diagnostic::warning("covers_nothing", &rule.location, message));
    }
}

fn touches(rule: &Rule, allow: &Selection) -> bool {
    match allow {
        Selection::Every(_) => true,
        Selection::Listed(allowed) => allowed
            .iter()
            .any(|allowed| overlap::overlap(&allowed.pattern, &rule.pattern, Case::Fold)),
    }
}

fn note_denied(reader: &mut Reader<'_>, deny: &Selection, allow: &Selection) {
    let mut note = |what: &str, at: &Location| {
        let message =
            format!("{what} in `deny` is no grant: hidden and refused, whatever `allow` says");
        reader.found.push(Diagnostic::note("denied", at, message));
    };
    match deny {
        Selection::Every(at) => note("everything", at),
        Selection::Listed(rules) => rules
            .iter()
            .filter(|rule| touches(rule, allow))
            .for_each(|rule| note(&format!("`{}`", rule.pattern), &rule.location)),
    }
}
