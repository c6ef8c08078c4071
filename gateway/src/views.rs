//! What the admin API tells about the generation that serves.

use crate::admin::{AgentSummary, Effective, MissingView, ToolView, Views};
use crate::decisions::Schemas;
use crate::scopes::Scopes;
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::decide::external_offer;
use portcullis_policy::diagnostic::Diagnostic;
use portcullis_policy::ledger::Card;
use portcullis_policy::scope::{Approve, Missing, Scope, ScopedTool, Shown};
use std::sync::Arc;

/// The views of the newest generation; `findings` are those of the policy files.
pub(crate) fn views(scopes: Scopes, findings: Vec<Diagnostic>) -> Views {
    let (agents, agent, offers) = (scopes.clone(), scopes.clone(), scopes.clone());
    Views {
        agents: Box::new(move || {
            let generation = agents.snapshot();
            let summary = |scope: &Scope| AgentSummary {
                agent: scope.agent.name.to_string(),
                description: scope.agent.description.clone(),
                tools: scope.all.tools().len(),
                missing: scope.all.missing.len(),
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
        offer: Box::new(move |card| offer_of(&offers, card)),
    }
}

// The tool of a card as its server defines it at this moment.
fn offer_of(scopes: &Scopes, card: &Card) -> Option<Arc<ToolOffer>> {
    let asked = card.asked();
    if asked.external.is_some() {
        return external_offer(asked.tool.as_str());
    }
    let generation = scopes.snapshot();
    let offer = generation.catalogue.servers.get(&asked.server)?;
    offer.tools.iter().find(|tool| tool.name == asked.tool.as_str()).map(Arc::clone)
}

/// The tools of cards as their servers define them at this moment.
pub(crate) fn schemas(scopes: Scopes) -> Schemas {
    Schemas::new(move |card| offer_of(&scopes, card))
}

/// The tools of a scope.
pub(crate) fn reach(scope: &Scope) -> Vec<ToolView> {
    let view = |(name, tool): (&str, &Arc<ScopedTool>)| {
        let (approval, rule) = match &tool.approve {
            Approve::Auto { rule } => ("auto", rule),
            Approve::Ask { rule } => ("asks", rule),
        };
        ToolView {
            name: name.to_owned(),
            server: tool.server.to_string(),
            tool: tool.name.to_string(),
            title: tool.offer.title.clone(),
            approval,
            rule: rule.to_string(),
        }
    };
    scope.all.tools().map(view).collect()
}

/// What a scope declares and has not.
pub(crate) fn missing(scope: &Scope) -> Vec<MissingView> {
    let view = |gone: &Missing| MissingView {
        server: gone.server.to_string(),
        tool: gone.tool.clone(),
        why: gone.kind.as_str(),
        declared: gone.location.to_string(),
    };
    scope.all.missing.iter().map(view).collect()
}

fn effective(scope: &Scope) -> Effective {
    Effective {
        agent: scope.agent.name.to_string(),
        description: scope.agent.description.clone(),
        generation: scope.generation,
        exposed: match scope.all.shown {
            Shown::Direct => "direct",
            Shown::Search => "search",
        },
        tools: reach(scope),
        missing: missing(scope),
        instructions: scope.all.instructions.to_string(),
    }
}
