//! Leave for a harness to use a tool of its own: it is asked for and decided like a call, and never
//! run here.

use super::refusal::{nobody_to_ask, over_limit};
use super::{Decision, Permit, Reason, Refusal, Request, Target, Usage, shown};
use crate::canonical::{Digest, canonical};
use crate::catalogue::ToolOffer;
use crate::diagnostic::Location;
use crate::json::{JsonLimits, Kind, kind_of, quote};
use crate::ledger::{Approved, External};
use crate::name::{ServerName, ToolName};
use crate::scope::{Approve, Scope, ScopedTool};
use bytes::Bytes;
use std::sync::Arc;

/// What stands for the harness where a server is named. No server can be meant by it: the card
/// says that it is external.
const HARNESS: &str = "claude-code";
/// The tool by which a harness asks.
const ASKS_BY: &str = "permission_prompt";

pub(super) fn decide(
    scope: &Scope,
    (name, input, use_id): (&str, &Bytes, String),
    usage: &Usage,
) -> Decision {
    let refuse = |reason, text: String| Decision::Refuse(Refusal { reason, text });
    let Some(rule) = &scope.agent.permission_prompt else {
        let text = format!(
            "`{ASKS_BY}` is not available to agent `{}`, and nothing was asked. Its policy does not \
             say `permissionPrompt: true`.",
            scope.agent.name
        );
        return refuse(Reason::Unknown, text);
    };
    if let Some(refusal) = over_limit(scope, usage).or_else(|| nobody_to_ask(scope, name, usage)) {
        return Decision::Refuse(refusal);
    }
    let Some(tool) = tool(name, rule.clone()) else {
        let text = format!("{} is no name of a tool. Nothing was asked.", shown(name));
        return refuse(Reason::Arguments, text);
    };
    let input = match canonical(input, JsonLimits::default()) {
        Ok(input) if kind_of(&input) == Kind::Object => input,
        Ok(_) => {
            let text = format!("The input of {} is no object. Nothing was asked.", shown(name));
            return refuse(Reason::Arguments, text);
        }
        Err(error) => {
            let text =
                format!("The input of {} cannot be used: {error}. Nothing was asked.", shown(name));
            return refuse(Reason::Arguments, text);
        }
    };
    Decision::Park(Request {
        tool: Arc::new(tool),
        digest: Digest::of(input.as_bytes()),
        arguments: input,
        rule: rule.clone(),
        approval: scope.approval.clone(),
        generation: scope.generation,
        external: Some(External { use_id }),
    })
}

/// The permit for what was approved, if the policy of this moment still lets the harness ask.
pub(super) fn decide_approved(scope: &Scope, approved: &Approved) -> Option<Permit> {
    scope.agent.permission_prompt.as_ref()?;
    let target = Target::Permission {
        server: approved.server().clone(),
        name: approved.tool().to_owned(),
        input: Bytes::copy_from_slice(approved.arguments().as_bytes()),
    };
    Some(Permit { target, generation: scope.generation })
}

/// What approvers are shown of a tool of a harness, which nobody describes here.
#[must_use]
pub fn external_offer(name: &str) -> Option<Arc<ToolOffer>> {
    let text = "A tool of the agent's own harness. The gateway does not run it: it answers \
                whether the harness may.";
    let json = format!(
        "{{\"name\":{},\"description\":{},\"inputSchema\":{{\"type\":\"object\"}}}}",
        quote(name),
        quote(text)
    );
    ToolOffer::parse(&json, JsonLimits::default()).ok().map(Arc::new)
}

fn tool(name: &str, rule: Location) -> Option<ScopedTool> {
    let offer = external_offer(name)?;
    Some(ScopedTool {
        server: ServerName::new(HARNESS).ok()?,
        name: ToolName::new(name).ok()?,
        exposed: ASKS_BY.to_owned(),
        hash: offer.hash,
        approve: Approve::Ask { rule },
        offer,
        secret: Vec::new(),
    })
}
