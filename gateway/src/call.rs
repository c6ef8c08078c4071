//! `tools/call`: run what is auto-approved, park what asks, refuse the rest.

use crate::asked::Asked;
use crate::mcp::answer::{self, HEADER_MISMATCH, INVALID_PARAMS, Remedy, tool_error};
use crate::mcp::envelope::{Raw, member_of};
use crate::mcp::era::Era;
use crate::mcp::headers;
use crate::mcp::sse::Body;
use crate::own_tools::{self, OwnTool};
use crate::record::Record;
use crate::{children, park, permission, reply, run};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use portcullis_policy::decide::{Ask, Decision, Refusal, decide};
use portcullis_policy::json::Kind;

/// Longest name of a tool in a request, in bytes; longer ones name nothing.
const NAME_BYTES_MAX: usize = 512;

/// Answers `tools/call`.
pub(crate) async fn call(asked: Asked, headers: &HeaderMap) -> Response<Body> {
    let Some(name) =
        asked.call.params.value("name").and_then(|name| Some(name.text()?.into_owned()))
    else {
        return invalid(&asked, "`tools/call` needs `name`, a string");
    };
    if name.len() > NAME_BYTES_MAX {
        return invalid(&asked, "`name` is longer than 512 bytes");
    }
    let arguments = asked.call.params.value("arguments").cloned();
    if arguments.as_ref().is_some_and(|arguments| arguments.kind() != Kind::Object) {
        return invalid(&asked, "`arguments` must be an object or absent");
    }
    match own_tools::find(&asked.visit, &name) {
        None => {
            if let Some(refusal) = mirrored_wrongly(&asked, headers, &name, arguments.as_ref()) {
                return refusal;
            }
            named(asked, &name, arguments).await
        }
        Some(OwnTool::Search) => own(&asked, &own_tools::search(asked.view(), arguments.as_ref())),
        Some(OwnTool::Describe) => {
            own(&asked, &own_tools::describe(asked.view(), arguments.as_ref()))
        }
        Some(OwnTool::Child(tool)) => {
            // Boxed, as all that a plain call does not need: it would carry their room along.
            Box::pin(children::call(asked, tool, arguments.as_ref())).await
        }
        Some(OwnTool::PermissionPrompt) => {
            Box::pin(permission::call(asked, arguments.as_ref())).await
        }
        Some(OwnTool::ApprovalStatus) => Box::pin(park::collect(asked, arguments.as_ref())).await,
        Some(OwnTool::Call) => {
            let limits = asked.shared.limits.json;
            let member = |name| arguments.as_ref().and_then(|a| member_of(a, name, limits));
            let (inner, inner_arguments) = (member("name"), member("arguments"));
            let inner = inner.as_ref().and_then(|inner| Some(inner.text()?.into_owned()));
            let object = inner_arguments.as_ref().is_none_or(|a| a.kind() == Kind::Object);
            match inner {
                Some(inner) if object => named(asked, &inner, inner_arguments).await,
                _ => own(
                    &asked,
                    &tool_error(
                        "`call` needs `name`, a string, and `arguments`, an object.",
                        Remedy::None,
                        None,
                    ),
                ),
            }
        }
    }
}

// MCP 2026-07-28, streamable HTTP: headers that mirror arguments must agree with them. The tool
// `call` mirrors nothing, so what is called through it has no such headers.
fn mirrored_wrongly(
    asked: &Asked,
    headers: &HeaderMap,
    name: &str,
    arguments: Option<&Raw>,
) -> Option<Response<Body>> {
    if asked.session.is_some() {
        return None;
    }
    let tool = asked.view().tool(name)?;
    let mismatch = headers::check_params(headers, &tool.offer, arguments).err()?;
    let body = answer::error(Some(&asked.call.id), HEADER_MISMATCH, &mismatch.0, None);
    Some(reply::error(StatusCode::BAD_REQUEST, body))
}

async fn named(asked: Asked, name: &str, arguments: Option<Raw>) -> Response<Body> {
    let state = asked.call.params.value("requestState").filter(|_| asked.era == Era::Modern);
    if let Some(state) = state.cloned() {
        return Box::pin(park::resume(asked, &state, name, arguments.as_ref())).await;
    }
    let ask = Ask::Tool {
        name: name.to_owned(),
        arguments: arguments.as_ref().map(|arguments| arguments.bytes().clone()),
    };
    let (running, usage) = asked.enter_calls();
    let mut record = Record::new(&asked, name, arguments.as_ref());
    match decide(&asked.visit.scope, asked.view(), ask, &usage) {
        Decision::Run(permit) => {
            run::run(asked, permit, (record, running), crate::answer::Kind::Tool).await
        }
        // What waits takes no place among the calls in flight.
        Decision::Park(request) => {
            drop(running);
            Box::pin(park::park(asked, name, request, record)).await
        }
        Decision::Refuse(refusal) => {
            record.refuse(refusal.reason);
            refused(&asked, &refusal)
        }
    }
}

/// A refusal as the result of a tool call: clients show it to the model.
pub(crate) fn refused(asked: &Asked, refusal: &Refusal) -> Response<Body> {
    own(asked, &tool_error(&refusal.text, Remedy::Unavailable, None))
}

/// A tool result of ours.
pub(crate) fn own(asked: &Asked, result: &str) -> Response<Body> {
    reply::json(answer::result(&asked.call.id, result.as_bytes()))
}

/// A request whose `params` cannot be used.
pub(crate) fn invalid(asked: &Asked, text: &str) -> Response<Body> {
    let body: Bytes = answer::error(Some(&asked.call.id), INVALID_PARAMS, text, None);
    reply::json(body)
}
