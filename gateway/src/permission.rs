//! `permission_prompt`: the harness of an agent asks here whether it may use a tool of its own,
//! as Claude Code does with `--permission-prompt-tool`. The question is a card like any other; the
//! answer is what that option expects: `allow` with the input, or `deny` with a message.

use crate::asked::Asked;
use crate::call::{invalid, refused};
use crate::door::Visit;
use crate::identity::{Seat, random_id};
use crate::mcp::answer::tool_text;
use crate::mcp::envelope::{Raw, member_of};
use crate::mcp::sse::Body;
use crate::park;
use crate::record::Record;
use http::Response;
use portcullis_policy::decide::{Ask, Decision, decide};
use portcullis_policy::json::{Kind, quote};

/// Longest id of a use, in bytes.
const USE_ID_BYTES_MAX: usize = 256;

/// The name of the tool.
pub(crate) const NAME: &str = "permission_prompt";

const DEFINITION: &str = r#"{"name":"permission_prompt","title":"Ask for leave","description":"For the harness, not for the model: asks whether a tool of the harness may be used, and waits for the decision. Answers `{\"behavior\":\"allow\",\"updatedInput\":…}` or `{\"behavior\":\"deny\",\"message\":…}`.","inputSchema":{"type":"object","properties":{"tool_name":{"type":"string"},"input":{"type":"object"},"tool_use_id":{"type":"string"}},"required":["tool_name","input"]}}"#;

/// Its definition, where the policy offers it.
pub(crate) fn listed(visit: &Visit) -> Option<&'static str> {
    offered(visit).then_some(DEFINITION)
}

/// True if it is offered at this endpoint.
pub(crate) fn offered(visit: &Visit) -> bool {
    let proven = visit.principal.seat != Seat::Loopback;
    proven && visit.server.is_none() && visit.scope.agent.permission_prompt.is_some()
}

/// Asks.
pub(crate) async fn call(asked: Asked, arguments: Option<&Raw>) -> Response<Body> {
    let limits = asked.shared.limits.json;
    let member = |name| arguments.and_then(|arguments| member_of(arguments, name, limits));
    let text = |name| member(name).and_then(|raw| Some(raw.text()?.into_owned()));
    let input = member("input").filter(|input| input.kind() == Kind::Object);
    let (Some(tool), Some(input)) = (text("tool_name"), input) else {
        let text = "`permission_prompt` needs `tool_name`, a string, and `input`, an object";
        return invalid(&asked, text);
    };
    // Without an id nobody can tell two uses apart, so nothing joins.
    let use_id = match text("tool_use_id").filter(|id| (1..=USE_ID_BYTES_MAX).contains(&id.len())) {
        Some(id) => id,
        None => random_id("use_").unwrap_or_default(),
    };
    let (running, usage) = asked.enter_calls();
    let mut record = Record::new(&asked, NAME, Some(&input));
    let ask = Ask::Permission { tool, input: input.bytes().clone(), use_id };
    match decide(&asked.visit.scope, asked.view(), ask, &usage) {
        Decision::Park(request) => {
            drop(running);
            park::park(asked, NAME, request, record).await
        }
        Decision::Refuse(refusal) => {
            record.refuse(refusal.reason);
            refused(&asked, &refusal)
        }
        // Nothing is pre-approved here.
        Decision::Run(_) => invalid(&asked, "`permission_prompt` always asks"),
    }
}

/// What the harness reads when it may.
pub(crate) fn allow(input: &str) -> String {
    tool_text(&format!("{{\"behavior\":\"allow\",\"updatedInput\":{input}}}"), None)
}

/// What the harness reads when it may not, or not yet.
pub(crate) fn deny(message: &str) -> String {
    tool_text(&format!("{{\"behavior\":\"deny\",\"message\":{}}}", quote(message)), None)
}
