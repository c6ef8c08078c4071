//! What the admin API tells about the generation that serves.

use crate::admin::{Claims, Views};
use crate::decisions::Schemas;
use crate::scopes::Scopes;
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::diagnostic::Diagnostic;
use portcullis_policy::ledger::Card;
use portcullis_policy::scope::{Approve, Scope, Shown};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The views of the newest generation; `findings` are those of the policy files.
pub(crate) fn views(scopes: Scopes, findings: Vec<Diagnostic>) -> Views {
    let (agents, agent, titles) = (scopes.clone(), scopes.clone(), scopes.clone());
    let claims = scopes.clone();
    Views {
        agents: Box::new(move || {
            let generation = agents.snapshot();
            let summary = |scope: &Scope| {
                json!({
                    "agent": scope.agent.name.as_str(),
                    "description": scope.agent.description,
                    "tools": scope.all.tools().len(),
                    "missing": scope.all.missing.len(),
                })
            };
            generation.scopes.iter().map(|(name, scope)| (name.clone(), summary(scope))).collect()
        }),
        agent: Box::new(move |name| {
            agent.snapshot().scopes.get(name).map(|scope| effective(scope))
        }),
        diagnostics: Box::new(move || {
            let mut all = findings.clone();
            all.extend(scopes.snapshot().diagnostics.iter().cloned());
            all
        }),
        title: Box::new(move |card| offer_of(&titles, card)?.title.clone()),
        claims: Box::new(move |card| {
            let definition: Defined = serde_json::from_str(&offer_of(&claims, card)?.json).ok()?;
            definition.annotations
        }),
    }
}

#[derive(Deserialize)]
struct Defined {
    annotations: Option<Claims>,
}

// The tool of a card as its server defines it at this moment.
fn offer_of(scopes: &Scopes, card: &Card) -> Option<Arc<ToolOffer>> {
    let asked = card.asked();
    let generation = scopes.snapshot();
    let offer = generation.catalogue.servers.get(&asked.server)?;
    offer.tools.iter().find(|tool| tool.name == asked.tool.as_str()).map(Arc::clone)
}

/// The tools of cards as their servers define them at this moment.
pub(crate) fn schemas(scopes: Scopes) -> Schemas {
    Schemas::new(move |card| offer_of(&scopes, card))
}

/// The tools of a scope, as those who start runs are told.
pub(crate) fn reach(scope: &Scope) -> Vec<Value> {
    let entry = |(name, tool): (&str, &Arc<portcullis_policy::scope::ScopedTool>)| {
        let approval = match tool.approve {
            Approve::Auto { .. } => "auto",
            Approve::Ask { .. } => "asks",
        };
        json!({
            "name": name,
            "server": tool.server.as_str(),
            "tool": tool.name.as_str(),
            "approval": approval,
        })
    };
    scope.all.tools().map(entry).collect()
}

fn effective(scope: &Scope) -> Value {
    let tool = |(name, tool): (&str, &Arc<portcullis_policy::scope::ScopedTool>)| {
        let (approval, rule) = match &tool.approve {
            Approve::Auto { rule } => ("auto", rule),
            Approve::Ask { rule } => ("asks", rule),
        };
        json!({
            "name": name,
            "server": tool.server.as_str(),
            "tool": tool.name.as_str(),
            "title": tool.offer.title,
            "approval": approval,
            "rule": rule.to_string(),
        })
    };
    let missing = scope.all.missing.iter().map(|gone| {
        json!({
            "server": gone.server.as_str(),
            "tool": gone.tool,
            "why": gone.kind.as_str(),
            "declared": gone.location.to_string(),
        })
    });
    json!({
        "agent": scope.agent.name.as_str(),
        "description": scope.agent.description,
        "generation": scope.generation,
        "exposed": match scope.all.shown { Shown::Direct => "direct", Shown::Search => "search" },
        "tools": scope.all.tools().map(tool).collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
        "instructions": &*scope.all.instructions,
        "diagnostics": Vec::<Value>::new(),
    })
}
