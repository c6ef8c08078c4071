//! The texts of a view. No times and no counts that change by themselves: prompt caches depend
//! on these bytes.

use super::super::view::{Shown, View};
use super::super::{Missing, ScopedTool};
use crate::canonical::Digest;
use crate::definition::Agent;
use crate::name::ServerName;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

/// Most tools that a refusal names.
const NAMED_TOOLS_MAX: usize = 12;
/// Most missing things that the instructions name.
const NAMED_MISSING_MAX: usize = 10;

/// `json` with the value at `span` replaced by `name`, all other bytes as they came.
pub(super) fn renamed(json: &str, span: &Range<usize>, name: &str) -> String {
    super::named_quoted(json, span, name)
}

/// Entries of a JSON array, without the brackets.
pub(super) fn joined(entries: impl Iterator<Item = String>) -> String {
    let mut out = String::new();
    for entry in entries {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(&entry);
    }
    out
}

/// What the agent may use, in sentences.
pub(super) fn authorised(
    declared: &[ServerName],
    tools: &BTreeMap<String, Arc<ScopedTool>>,
    shown: Shown,
) -> String {
    let servers: Vec<&str> = declared.iter().map(ServerName::as_str).collect();
    let servers = if servers.is_empty() { "none".to_owned() } else { servers.join(", ") };
    let named: Vec<&str> = tools.keys().take(NAMED_TOOLS_MAX).map(String::as_str).collect();
    let named = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
    let more = match (tools.len().saturating_sub(NAMED_TOOLS_MAX), shown) {
        (0, _) => String::new(),
        (more, Shown::Search) => format!(" (+{more} more: use `search`)"),
        (more, Shown::Direct) => format!(" (+{more} more: see `tools/list`)"),
    };
    format!("Servers it may use: {servers}. Tools: {named}{more}.")
}

/// What the agent is told at the start. The first lines say the most: clients cut at 2 KB.
pub(super) fn instructions(
    agent: &Agent,
    authorised: &str,
    missing: &[Missing],
    collects: Option<&str>,
) -> String {
    let mut out = format!(
        "You are agent `{}` behind the Portcullis gateway. {authorised} Anything else is refused and never sent.",
        agent.name
    );
    if let Some(collects) = collects {
        // Writing into a String cannot fail.
        let _ = write!(
            out,
            " Some calls wait for an approval. A result that says the call did NOT run yet names an \
             approval: collect it with `{collects}`, or make the identical call again."
        );
    }
    for gone in missing.iter().take(NAMED_MISSING_MAX) {
        // Writing into a String cannot fail.
        let _ = match &gone.tool {
            Some(tool) => {
                write!(
                    out,
                    "\nGranted but not there: `{tool}` on `{}` ({}).",
                    gone.server,
                    gone.kind.as_str()
                )
            }
            None => write!(
                out,
                "\nGranted but not there: server `{}` ({}).",
                gone.server,
                gone.kind.as_str()
            ),
        };
    }
    if missing.len() > NAMED_MISSING_MAX {
        out.push_str("\nMore is missing: ask the operator for the gateway's diagnostics.");
    }
    out
}

/// Digest of all an agent can see in the view.
pub(super) fn view_hash(view: &View) -> Digest {
    let shown: &[u8] = match view.shown {
        Shown::Direct => b"direct",
        Shown::Search => b"search",
    };
    Digest::of_parts(&[
        shown,
        view.tools_json.as_bytes(),
        view.resources_json.as_bytes(),
        view.templates_json.as_bytes(),
        view.prompts_json.as_bytes(),
        view.instructions.as_bytes(),
    ])
}
