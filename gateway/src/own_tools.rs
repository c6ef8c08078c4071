//! The gateway's own tools: `search`, `describe`, `call`, `approval_status`, and those of parents.
//!
//! They show and reach what the agent's view holds and nothing else; the names cannot collide
//! with those of servers, which hold `__`.

use crate::children::{self, ChildTool};
use crate::door::Visit;
use crate::mcp::answer::{Remedy, tool_error, tool_text};
use crate::mcp::envelope::{Raw, member_of};
use crate::permission;
use portcullis_policy::json::{JsonLimits, Kind, Reader, decode, quote};
use portcullis_policy::scope::{Approve, ScopedTool, Shown, View};
use std::borrow::Cow;
use std::ops::Range;

/// Matches returned when the agent names no limit.
const SEARCH_LIMIT_DEFAULT: usize = 10;
/// Most matches returned.
const SEARCH_LIMIT_MAX: usize = 50;
/// Longest summary, in characters (SEP-2636).
const SUMMARY_CHARS_MAX: usize = 200;
/// Most bytes of definitions that one `describe` returns.
const DESCRIBE_BYTES_MAX: usize = 24 * 1024;

/// One of the gateway's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnTool {
    /// Finds tools.
    Search,
    /// Shows definitions.
    Describe,
    /// Calls a tool by its name.
    Call,
    /// Collects a call that waited for an approval.
    ApprovalStatus,
    /// Lets the agent's harness ask about tools of its own.
    PermissionPrompt,
    /// One for agents that start others.
    Child(ChildTool),
}

const SEARCH: &str = r#"{"name":"search","title":"Search tools","description":"Finds tools you may use by what they do. Returns names to pass to `describe` and `call`, the servers in your scope, and what is granted but not there. An empty list of matches means that no tool you may use fits.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, or its name"},"limit":{"type":"integer","minimum":1,"maximum":50,"default":10,"description":"Most matches to return"}},"required":["query"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}"#;
const DESCRIBE: &str = r#"{"name":"describe","title":"Describe tools","description":"Returns the full definitions, with input schemas, of tools that `search` named.","inputSchema":{"type":"object","properties":{"names":{"type":"array","items":{"type":"string"},"minItems":1,"description":"Names as `search` returned them"}},"required":["names"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}"#;
const CALL: &str = r#"{"name":"call","title":"Call a tool","description":"Calls a tool that `search` named; the result is the tool's own. Some calls wait for an approval.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"Name as `search` returned it"},"arguments":{"type":"object","description":"Arguments as `describe` shows them"}},"required":["name"]}}"#;

fn approval_status(name: &str) -> String {
    format!(
        "{{\"name\":{},\"title\":\"Collect an approval\",\"description\":\"Waits for the decision on a call that did NOT run yet. An approved call runs now, once, and its own result is returned; a denial comes with its reason.\",\"inputSchema\":{{\"type\":\"object\",\"properties\":{{\"id\":{{\"type\":\"string\",\"description\":\"The approval id that the pending result named\"}}}},\"required\":[\"id\"]}}}}",
        quote(name)
    )
}

/// The definitions listed at an endpoint, without brackets; always the same for a view.
pub(crate) fn listed(visit: &Visit) -> String {
    let mut entries: Vec<Cow<'_, str>> = Vec::new();
    if offers_search(visit) {
        entries.extend([SEARCH, DESCRIBE, CALL].map(Cow::Borrowed));
    }
    if visit.view().may_park() {
        entries.push(Cow::Owned(approval_status(status_name(visit))));
    }
    entries.extend(permission::listed(visit).map(Cow::Borrowed));
    entries.extend(children::listed(visit).into_iter().map(Cow::Owned));
    entries.join(",")
}

/// The own tool of that name, if it is offered at this endpoint.
pub(crate) fn find(visit: &Visit, name: &str) -> Option<OwnTool> {
    match name {
        "search" if offers_search(visit) => Some(OwnTool::Search),
        "describe" if offers_search(visit) => Some(OwnTool::Describe),
        "call" if offers_search(visit) => Some(OwnTool::Call),
        _ if name == status_name(visit) && visit.view().may_park() => Some(OwnTool::ApprovalStatus),
        permission::NAME if permission::offered(visit) => Some(OwnTool::PermissionPrompt),
        _ => children::find(visit, name).map(OwnTool::Child),
    }
}

// A one-server endpoint has the server's own names; a name with `__` keeps ours apart.
pub(crate) fn status_name(visit: &Visit) -> &'static str {
    if visit.server.is_some() { "portcullis__approval_status" } else { "approval_status" }
}

fn offers_search(visit: &Visit) -> bool {
    visit.server.is_none() && visit.view().shown == Shown::Search
}

/// Runs `search`; returns a tool result.
pub(crate) fn search(view: &View, arguments: Option<&Raw>) -> String {
    let limits = JsonLimits::default();
    let member = |name| arguments.and_then(|arguments| member_of(arguments, name, limits));
    let query = member("query");
    let Some(query) = query.as_ref().and_then(Raw::text) else {
        return tool_error("`search` needs `query`, a string.", Remedy::None, None);
    };
    let limit = member("limit").and_then(|limit| limit.as_str().parse::<usize>().ok());
    let limit = limit.unwrap_or(SEARCH_LIMIT_DEFAULT).clamp(1, SEARCH_LIMIT_MAX);
    let matches: Vec<String> =
        view.search(&query, limit).iter().map(|(name, tool)| match_entry(name, tool)).collect();
    let servers: Vec<String> = view.declared.iter().map(|server| quote(server.as_str())).collect();
    let missing: Vec<String> = view
        .missing
        .iter()
        .map(|gone| {
            let tool = gone.tool.as_deref().map_or("null".to_owned(), quote);
            format!(
                "{{\"server\":{},\"tool\":{tool},\"why\":{}}}",
                quote(gone.server.as_str()),
                quote(gone.kind.as_str())
            )
        })
        .collect();
    let found = format!(
        "{{\"matches\":[{}],\"servers\":[{}],\"missing\":[{}]}}",
        matches.join(","),
        servers.join(","),
        missing.join(",")
    );
    tool_text(&found, Some(&found))
}

fn match_entry(name: &str, tool: &ScopedTool) -> String {
    let approval = match tool.approve {
        Approve::Auto { .. } => "auto",
        Approve::Ask { .. } => "asks",
    };
    let title = tool.offer.title.as_deref().map_or("null".to_owned(), quote);
    format!(
        "{{\"name\":{},\"title\":{title},\"summary\":{},\"schemaHash\":{},\"approval\":\"{approval}\"}}",
        quote(name),
        quote(&summary(&tool.offer.description)),
        quote(&tool.hash.hex())
    )
}

// The first sentence.
fn summary(description: &str) -> String {
    let line = description.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let sentence = line.split_once(". ").map_or(line, |(first, _)| first);
    let mut short: String = sentence.chars().take(SUMMARY_CHARS_MAX - 1).collect();
    if short.len() < sentence.len() {
        short.push('…');
    }
    short
}

/// Runs `describe`; returns a tool result.
pub(crate) fn describe(view: &View, arguments: Option<&Raw>) -> String {
    let Some(names) = arguments.and_then(names) else {
        return tool_error(
            "`describe` needs `names`, a list of names from `search`.",
            Remedy::None,
            None,
        );
    };
    let unknown: Vec<String> =
        names.iter().filter(|name| view.tool(name).is_none()).map(|name| quote(name)).collect();
    if !unknown.is_empty() {
        let text = format!(
            "Not available to you: {}. {} Use names that `search` returned.",
            unknown.join(", "),
            view.authorised()
        );
        return tool_error(&text, Remedy::Unavailable, None);
    }
    let mut shown = String::new();
    let mut left = Vec::new();
    for name in &names {
        let Some(tool) = view.tool(name) else { continue };
        let entry = renamed(&tool.offer.json, &tool.offer.name_span, name);
        if !shown.is_empty() && shown.len() + entry.len() > DESCRIBE_BYTES_MAX {
            left.push(quote(name));
            continue;
        }
        if !shown.is_empty() {
            shown.push(',');
        }
        shown.push_str(&entry);
    }
    let left = if left.is_empty() {
        String::new()
    } else {
        format!(
            ",\"notShown\":[{}],\"why\":\"more than 24 KiB; ask for these again\"",
            left.join(",")
        )
    };
    let found = format!("{{\"tools\":[{shown}]{left}}}");
    tool_text(&found, Some(&found))
}

fn renamed(json: &str, span: &Range<usize>, name: &str) -> String {
    let head = json.get(..span.start).unwrap_or_default();
    let tail = json.get(span.end..).unwrap_or_default();
    format!("{head}{}{tail}", quote(name))
}

fn names(arguments: &Raw) -> Option<Vec<String>> {
    let list = member_of(arguments, "names", JsonLimits::default())?;
    if list.kind() != Kind::Array {
        return None;
    }
    let mut names = Vec::new();
    let mut reader = Reader::new(list.bytes(), JsonLimits::default()).ok()?;
    reader
        .array(|reader| {
            let value = reader.value()?;
            names.push(decode(value).map(Cow::into_owned));
            Ok(())
        })
        .ok()?;
    let names: Option<Vec<String>> = names.into_iter().collect();
    names.filter(|names| !names.is_empty())
}
