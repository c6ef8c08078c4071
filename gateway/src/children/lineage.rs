//! Runs below a run: started, stopped, and what they may reach.

use super::{ChildTool, Done, Refused, bindings, read};
use crate::asked::Asked;
use crate::door::Visit;
use crate::parked::ParkError;
use crate::runs::{NewRun, ParentOf, StartRunError};
use crate::views::{missing, reach};
use portcullis_policy::decide::{Reason, shown};
use portcullis_policy::definition::SubAgent;
use portcullis_policy::json::quote;
use portcullis_policy::narrow::Narrow;
use portcullis_policy::source::duration;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Starting {
    sub_agent: String,
    ttl: Option<String>,
    narrow: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stopping {
    run: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Viewing {
    sub_agent: String,
}

/// `run_start`, which offers exactly the bindings of the agent.
pub(super) fn start_definition(visit: &Visit) -> String {
    let names = bindings(visit).join(",");
    let what: Vec<String> = visit
        .scope
        .agent
        .sub_agents
        .iter()
        .map(|bound| format!("`{}`: {}", bound.name, bound.description))
        .collect();
    let description = format!(
        "Starts a run of an agent below you and returns the URL and the token of its MCP endpoint, \
         for that agent alone, and what it may reach. It ends with its time, with `run_stop` or \
         with your own run. Agents: {}",
        what.join("; ")
    );
    format!(
        "{{\"name\":\"run_start\",\"title\":\"Start a run\",\"description\":{},\"inputSchema\":{{\"type\":\"object\",\"properties\":{{\"subAgent\":{{\"type\":\"string\",\"enum\":[{names}]}},\"ttl\":{{\"type\":\"string\",\"description\":\"How long it lives, such as `30m`\"}},\"narrow\":{{\"type\":\"object\",\"description\":\"Less than its agent may reach: {{\\\"tools\\\": [{{\\\"server\\\": \\\"…\\\", \\\"allow\\\": [\\\"get_*\\\"]}}]}}\"}}}},\"required\":[\"subAgent\"],\"additionalProperties\":false}},\"annotations\":{{\"openWorldHint\":false}}}}",
        quote(&description)
    )
}

/// `agent_view`.
pub(super) fn view_definition(visit: &Visit) -> String {
    let names = bindings(visit).join(",");
    format!(
        "{{\"name\":\"agent_view\",\"title\":\"What an agent below you may reach\",\"description\":\"Shows the tools that an agent you may start can use, and which of them ask.\",\"inputSchema\":{{\"type\":\"object\",\"properties\":{{\"subAgent\":{{\"type\":\"string\",\"enum\":[{names}]}}}},\"required\":[\"subAgent\"],\"additionalProperties\":false}},\"annotations\":{{\"readOnlyHint\":true,\"openWorldHint\":false}}}}"
    )
}

/// `run_start`.
pub(super) async fn start(asked: &Asked, arguments: &str) -> Done {
    let wanted: Starting = read(ChildTool::Start, arguments)?;
    let bound = bound(asked, &wanted.sub_agent)?;
    let ttl = wanted.ttl.map(|text| {
        duration(&text, Duration::from_secs(1)..=Duration::MAX).map_err(|message| {
            Refused::arguments(format!("`ttl`: {message}. Nothing was started."))
        })
    });
    let narrow = wanted.narrow.map(|text| {
        Narrow::read(text.get())
            .map_err(|fault| Refused::arguments(format!("{fault}. Nothing was started.")))
    });
    let principal = &asked.visit.principal;
    let new = NewRun {
        agent: bound.agent.clone(),
        parent: Some(ParentOf::Run(principal.run.clone())),
        ttl: ttl.transpose()?,
        narrow: narrow.transpose()?,
        unattended: false,
        by: format!("{} in {}", principal.agent, principal.run),
    };
    match asked.shared.runs.ensure(principal).await {
        Ok(()) => {}
        Err(ParkError::RunEnded) => {
            return Err(Refused::unknown("Your own run has ended, so nothing was started."));
        }
        Err(error) => return Err(Refused::failed("no run was started", &error)),
    }
    let started = asked.shared.runs.start(new).await.map_err(|error| not_started(&error))?;
    Ok(json!({
        "run": started.row.id,
        "agent": started.row.agent.as_str(),
        "url": asked.shared.runs.url(&started.row),
        "token": started.token.reveal(),
        "tools": reach(&started.scope),
        "diagnostics": started.diagnostics.iter().map(|d| d.message.clone()).collect::<Vec<_>>(),
    }))
}

fn not_started(error: &StartRunError) -> Refused {
    match error {
        StartRunError::Store(_)
        | StartRunError::Stop(_)
        | StartRunError::Audit(_)
        | StartRunError::Random(_) => Refused::failed("no run was started", error),
        StartRunError::Ttl(most) => {
            let most = portcullis_policy::source::spell(*most);
            Refused::arguments(format!("No run was started: `ttl` is at most {most}."))
        }
        StartRunError::Agent(_) => {
            Refused::unknown("No run was started: no policy defines that agent any more.")
        }
        StartRunError::Parent(_) | StartRunError::Parents { .. } => {
            Refused::unknown("No run was started: your own run has ended.")
        }
        StartRunError::Depth | StartRunError::Full(_) => {
            Refused { reason: Some(Reason::Limit), text: format!("No run was started: {error}.") }
        }
    }
}

/// `run_stop`.
pub(super) async fn stop(asked: &Asked, arguments: &str) -> Done {
    let Stopping { run } = read(ChildTool::Stop, arguments)?;
    let live = asked.shared.table.find(&run).filter(|run| !run.unnamed);
    let definition = &asked.visit.generation.definition;
    let asker = &asked.visit.principal.run;
    let below = live.is_some_and(|run| {
        let above = asked.shared.above_run(Some(&run), &run.agent, definition);
        above.iter().any(|ancestor| ancestor.run == *asker)
    });
    if !below {
        let text = format!("There is no live run {} below yours.", shown(&run));
        return Err(Refused::unknown(text));
    }
    let principal = &asked.visit.principal;
    let by = format!("{} in {}", principal.agent, principal.run);
    let ended = asked.shared.runs.end(&run, "its parent stopped it", &by).await;
    let ended = ended.map_err(|fault| Refused::failed("the run was not stopped", &fault))?;
    Ok(json!({
        "ended": ended.runs.iter().map(|run| &run.id).collect::<Vec<_>>(),
        "settled": ended.cards.iter().map(|card| json!({
            "id": card.id(), "state": card.state().as_str(),
        })).collect::<Vec<_>>(),
    }))
}

/// `agent_view`.
pub(super) fn view(asked: &Asked, arguments: &str) -> Done {
    let Viewing { sub_agent } = read(ChildTool::View, arguments)?;
    let bound = bound(asked, &sub_agent)?;
    let Some(scope) = asked.visit.generation.scopes.get(&bound.agent) else {
        let text = format!("No policy defines the agent behind {}.", shown(&sub_agent));
        return Err(Refused::unknown(text));
    };
    Ok(json!({
        "subAgent": bound.name,
        "agent": bound.agent.as_str(),
        "description": bound.description,
        "tools": reach(scope),
        "missing": missing(scope),
    }))
}

fn bound<'a>(asked: &'a Asked, name: &str) -> Result<&'a SubAgent, Refused> {
    let bound = asked.visit.scope.agent.sub_agents.iter().find(|bound| bound.name == name);
    bound.ok_or_else(|| {
        let names = bindings(&asked.visit).join(", ");
        Refused::unknown(format!("You have no subagent {}. You may start: {names}.", shown(name)))
    })
}
