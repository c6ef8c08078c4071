//! `GET /v1/openapi.json`: the API as an OpenAPI 3.1 document, made from the types that are read
//! and written. And the table of its requests, of which the router is made as well.

use super::operation::{Operation, Schemas};
use super::views::{Agents, Diagnostics, Effective};
use super::{
    Api, approvals, batch, card, decision, events, grants, hooks, page, runs, tokens, views,
};
use crate::decisions::Wish;
use axum::extract::State;
use axum::http::Method;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use portcullis_policy::ledger;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;

const ABOUT: &str = "What approvers, harnesses and operators use. Authenticate with a bearer token \
     of an admin principal. Unknown members and parameters are refused. Times are RFC 3339 in UTC.";

/// Every request of the API.
fn operations() -> Vec<Operation> {
    let mut all = of_approvals();
    all.extend(of_runs());
    all.extend(of_operators());
    all
}

fn of_approvals() -> Vec<Operation> {
    let decided = "It is as the decision says.";
    vec![
        Operation::new((GET, "/v1/approvals"), ("listApprovals", "Lists approvals, at once or when something changes."), get(approvals::list))
            .query::<approvals::Wanted>()
            .answers::<approvals::Listed<'_>>(200, "The approvals, or kagent's form of them."),
        Operation::new((GET, "/v1/approvals/{id}"), ("getApproval", "Shows one approval, at once or after its next step."), get(approvals::one))
            .query::<approvals::Watching>()
            .answers::<card::CardView<'_>>(200, "The approval."),
        Operation::new((POST, "/v1/approvals/{id}/decision"), ("decide", "Approves or denies one call, as it was shown."), post(decision::decide))
            .body::<Wish>()
            .answers::<card::CardView<'_>>(200, decided)
            .answers::<card::CardView<'_>>(409, "It was settled before; this is how."),
        Operation::new((POST, "/v1/decisions"), ("decideMany", "Decides several calls, each by itself; takes kagent's answer as it is."), post(batch::decide))
            .body::<batch::Written>()
            .answers::<batch::Results>(200, "One result for each."),
        Operation::new((GET, "/v1/events"), ("followEvents", "Tells what stands and then what happens. `Last-Event-ID` goes on where a reader was."), get(events::stream))
            .query::<events::Wanted>()
            .answers_events("`snapshot` with `{approvals, runs, done}`, then `card`, `run`, `token` and `grant` with `{kind, id, agent, run, state, version, at}`."),
        Operation::new((GET, "/v1/grants"), ("listGrants", "Lists standing approvals: what passes without asking."), get(grants::list))
            .query::<grants::Wanted>()
            .answers::<grants::GrantList>(200, "The standing approvals."),
        Operation::new((DELETE, "/v1/grants/{id}"), ("endGrant", "Ends a standing approval."), delete(grants::end))
            .answers::<grants::GrantView>(200, "It has ended."),
    ]
}

fn of_runs() -> Vec<Operation> {
    vec![
        Operation::new(
            (GET, "/v1/runs"),
            ("listRuns", "Lists runs: live delegations of an agent."),
            get(runs::list),
        )
        .query::<runs::Wanted>()
        .answers::<runs::RunList<'_>>(200, "The runs."),
        Operation::new(
            (POST, "/v1/runs"),
            ("startRun", "Starts a run: a URL and a token for one subagent."),
            post(runs::start),
        )
        .body::<runs::WireRun>()
        .answers::<runs::StartedView>(201, "The run, with its token.")
        .leads_to(&[("getRun", "run"), ("stopRun", "run")]),
        Operation::new((GET, "/v1/runs/{id}"), ("getRun", "Shows one run."), get(runs::one))
            .answers::<runs::RunView<'_>>(200, "The run."),
        Operation::new(
            (DELETE, "/v1/runs/{id}"),
            ("stopRun", "Stops a run and everything below it."),
            delete(runs::end),
        )
        .query::<runs::Ending>()
        .answers::<runs::EndedView>(200, "What ended with it; all of it is settled."),
        Operation::new(
            (POST, "/v1/hooks/claude-code"),
            (
                "tellOfSubagent",
                "Takes the hooks SubagentStart, SubagentStop and SessionEnd of Claude Code.",
            ),
            post(hooks::claude_code),
        )
        .body::<hooks::Told>()
        .answers_nothing(204, "Taken.")
        .answers::<hooks::Message>(200, "Taken, but it is not clear which run is meant."),
    ]
}

fn of_operators() -> Vec<Operation> {
    vec![
        Operation::new((GET, "/v1/agents"), ("listAgents", "Lists agents."), get(views::agents))
            .answers::<Agents>(200, "The agents."),
        Operation::new(
            (GET, "/v1/agents/{agent}"),
            (
                "getAgent",
                "Shows what an agent may use at this moment, and what is declared but not there.",
            ),
            get(views::agent),
        )
        .answers::<Effective>(200, "The agent."),
        Operation::new(
            (GET, "/v1/diagnostics"),
            ("listDiagnostics", "Lists what is wrong with policy and servers."),
            get(views::diagnostics),
        )
        .answers::<Diagnostics>(200, "The findings."),
        Operation::new(
            (GET, "/v1/tokens"),
            ("listTokens", "Lists tokens that were made here."),
            get(tokens::list),
        )
        .answers::<tokens::TokenList>(200, "The tokens, without themselves."),
        Operation::new(
            (POST, "/v1/tokens"),
            ("createToken", "Makes a token of an agent or an admin principal."),
            post(tokens::create),
        )
        .body::<tokens::WireToken>()
        .answers::<tokens::TokenView>(201, "The token; it is shown once.")
        .leads_to(&[("revokeToken", "id")]),
        Operation::new(
            (DELETE, "/v1/tokens/{id}"),
            ("revokeToken", "Revokes a token; nothing is open on it afterwards."),
            delete(tokens::revoke),
        )
        .answers::<tokens::TokenView>(200, "It is revoked."),
        Operation::new(
            (POST, "/v1/login-links"),
            (
                "createLoginLink",
                "Makes a link that signs a browser in as its maker, once, within five minutes.",
            ),
            post(page::link),
        )
        .answers::<page::Link>(201, "The link."),
        Operation::new((GET, "/v1/openapi.json"), ("getDocument", "This document."), get(document))
            .answers::<Map<String, Value>>(200, "It."),
    ]
}

/// The routes of the API.
pub(super) fn routes() -> Router<Arc<Api>> {
    let operations = operations().into_iter();
    operations
        .fold(Router::new(), |router, operation| router.route(operation.path, operation.route))
}

async fn document(State(api): State<Arc<Api>>) -> Json<Value> {
    Json(described(&api.url))
}

/// The document of a gateway that people reach at `url` (OpenAPI 3.1.0).
fn described(url: &str) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let said = operation.described(&mut schemas);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path.as_object_mut().map(|path| path.insert(operation.verb(), said));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Portcullis admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// The states of an approval.
pub(super) fn state_word(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ledger::State::ALL.map(ledger::State::as_str)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
        let document = described("http://127.0.0.1:7778");
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        let mut ids: Vec<_> =
            operations().iter().map(|operation| operation.verb() + operation.path).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
        let card = &document["components"]["schemas"]["Approval"];
        assert_eq!(card["properties"]["state"]["enum"][0], "parked");
        assert!(card["required"].as_array().unwrap().iter().any(|name| name == "digest"));
    }
}
