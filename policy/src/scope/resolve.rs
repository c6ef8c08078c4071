//! Joins a definition with a catalogue.

use super::{Approve, Missing, MissingKind, Scope, ScopedTool, exposed_name};
use crate::catalogue::{Catalogue, EntryOffer, Offer, Status, ToolOffer};
use crate::definition::{Agent, Definition, Grant, Rule, Selection};
use crate::diagnostic::Diagnostic;
use crate::json::quote;
use crate::name::{ServerName, ToolName};
use crate::narrow::Within;
use crate::pattern::{Case, Pattern};
use crate::source::did_you_mean;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod text;
mod views;

pub(super) fn resolve(
    agent: &Agent,
    definition: &Definition,
    catalogue: &Catalogue,
    generation: u64,
) -> (Scope, Vec<Diagnostic>) {
    let mut found = Found::new(agent);
    for grant in &agent.grants {
        found.grant(grant, definition, catalogue);
    }
    for grant in agent.narrowing.outside() {
        found.outside(grant, definition, catalogue);
    }
    found.hide_collisions();
    let all = views::view(&found, None);
    let servers: BTreeMap<_, _> = agent
        .grants
        .iter()
        .map(|grant| canonical_server(&grant.server, definition))
        .map(|server| (server.clone(), views::view(&found, Some(&server))))
        .collect();
    let tools = found.parts.iter().flat_map(|part| &part.tools);
    let scope = Scope {
        agent: agent.clone(),
        generation,
        approval: agent.approval.clone(),
        limits: agent.limits,
        tools: tools
            .map(|t| ((t.server.clone(), t.name.as_str().to_owned()), Arc::clone(t)))
            .collect(),
        all,
        servers,
        existing: Arc::new(existing(catalogue)),
    };
    (scope, found.diagnostics)
}

/// The granted part of one server.
struct Part<'a> {
    server: ServerName,
    tools: Vec<Arc<ScopedTool>>,
    // Exposed names of tools that are granted, but not within.
    withheld: Vec<String>,
    prompts: Vec<Arc<EntryOffer>>,
    // Granted, also where it is not within: who owns a URI is settled before anything is taken away.
    resources: Vec<Arc<EntryOffer>>,
    templates: Vec<Arc<EntryOffer>>,
    granted: Vec<Pattern>,
    completes: bool,
    within: Within<'a>,
}

struct Found<'a> {
    agent: &'a Agent,
    missing: Vec<Missing>,
    diagnostics: Vec<Diagnostic>,
    parts: Vec<Part<'a>>,
}

fn canonical_server(written: &ServerName, definition: &Definition) -> ServerName {
    definition.servers.get(written).map_or_else(|| written.clone(), |server| server.name.clone())
}

fn existing(catalogue: &Catalogue) -> BTreeSet<String> {
    let offers = catalogue.servers.iter();
    offers
        .flat_map(|(server, offer)| offer.tools.iter().map(|t| exposed_name(server, &t.name)))
        .collect()
}

impl<'a> Found<'a> {
    fn new(agent: &'a Agent) -> Self {
        Self { agent, missing: Vec::new(), diagnostics: Vec::new(), parts: Vec::new() }
    }

    // A grant that is no longer the agent's: nothing of it is within, so that its part holds what
    // it owns alone, and what is missing of it concerns nobody.
    fn outside(&mut self, grant: &Grant, definition: &Definition, catalogue: &Catalogue) {
        let mut aside = Self::new(self.agent);
        aside.grant(grant, definition, catalogue);
        self.parts.append(&mut aside.parts);
    }

    fn grant(&mut self, grant: &Grant, definition: &Definition, catalogue: &Catalogue) {
        let server = canonical_server(&grant.server, definition);
        let offer = catalogue.servers.get(&server);
        let kind = match (definition.servers.get(&server), offer.map(|offer| &offer.status)) {
            (None, _) => Some(MissingKind::NotConfigured),
            (Some(defined), _) if !defined.enabled => Some(MissingKind::Disabled),
            (Some(_), Some(Status::Ready)) => None,
            (Some(_), Some(Status::Disabled)) => Some(MissingKind::Disabled),
            (Some(_), Some(Status::Unreachable { .. })) => Some(MissingKind::Unreachable),
            (Some(_), Some(Status::Starting) | None) => Some(MissingKind::Starting),
        };
        let stale = offer.is_some_and(|offer| !offer.tools.is_empty());
        let away = kind.filter(|kind| {
            matches!(kind, MissingKind::NotConfigured | MissingKind::Disabled) || !stale
        });
        if let Some(kind) = kind {
            self.diagnostics.push(Diagnostic::warning(
                "server_missing",
                &grant.location,
                format!("agent `{}`: {}", self.agent.name, kind.cause(&server)),
            ));
        }
        match (away, offer) {
            (Some(kind), _) => self.away(grant, &server, kind),
            (None, Some(offer)) => self.offered(grant, &server, offer),
            (None, None) => {}
        }
    }

    fn away(&mut self, grant: &Grant, server: &ServerName, kind: MissingKind) {
        let location = grant.location.clone();
        self.missing.push(Missing { server: server.clone(), tool: None, kind, location });
        for rule in self.exact_rules(grant) {
            self.missing.push(Missing {
                server: server.clone(),
                tool: Some(rule.pattern.as_str().to_owned()),
                kind,
                location: rule.location.clone(),
            });
        }
    }

    fn offered(&mut self, grant: &Grant, server: &ServerName, offer: &Offer) {
        for problem in &offer.problems {
            let message = format!("server `{server}`: {problem}; it was left out");
            self.diagnostics.push(Diagnostic::warning("offer_left_out", &grant.location, message));
        }
        let within = self.agent.narrowing.within(server);
        let (tools, withheld) = self.tools(grant, server, offer, &within);
        for rule in self.exact_rules(grant) {
            let named = |t: &Arc<ToolOffer>| t.name.eq_ignore_ascii_case(rule.pattern.as_str());
            if !offer.tools.iter().any(named) {
                self.not_offered(server, rule, offer);
            }
        }
        let granted: Vec<Pattern> =
            grant.resources.iter().map(|rule| rule.pattern.clone()).collect();
        let readable = |key: &str| granted.iter().any(|pattern| pattern.matches(key, Case::Exact));
        self.parts.push(Part {
            server: server.clone(),
            tools,
            withheld,
            prompts: select_prompts(&grant.prompts, offer, &within),
            resources: offer.resources.iter().filter(|r| readable(&r.key)).cloned().collect(),
            templates: offer.templates.iter().filter(|t| readable(&t.key)).cloned().collect(),
            completes: offer.completes
                && ((!granted.is_empty() && within.reads_some())
                    || (!grant.prompts.is_none() && within.prompts_some())),
            granted,
            within,
        });
    }

    // The tools that the grant names exactly and that are within.
    fn exact_rules<'g>(&self, grant: &'g Grant) -> Vec<&'g Rule> {
        let within = self.agent.narrowing.within(&grant.server);
        let named = |rule: &&Rule| {
            ToolName::new(rule.pattern.as_str()).is_ok_and(|name| within.covers(&name))
        };
        grant.allow.exact_rules().filter(named).collect()
    }

    fn not_offered(&mut self, server: &ServerName, rule: &Rule, offer: &Offer) {
        let offered = offer.tools.iter().map(|tool| tool.name.as_str());
        let hint = did_you_mean(rule.pattern.as_str(), offered);
        self.diagnostics.push(Diagnostic::warning(
            "tool_not_offered",
            &rule.location,
            format!("server `{server}` does not offer a tool `{}`{hint}", rule.pattern),
        ));
        self.missing.push(Missing {
            server: server.clone(),
            tool: Some(rule.pattern.as_str().to_owned()),
            kind: MissingKind::NotOffered,
            location: rule.location.clone(),
        });
    }

    fn tools(
        &mut self,
        grant: &Grant,
        server: &ServerName,
        offer: &Offer,
        within: &Within<'_>,
    ) -> (Vec<Arc<ScopedTool>>, Vec<String>) {
        let (mut tools, mut withheld) = (Vec::new(), Vec::new());
        let mut seen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for tool in &offer.tools {
            seen.entry(tool.name.to_ascii_lowercase()).or_default().push(&tool.name);
        }
        for tool in &offer.tools {
            let Ok(name) = ToolName::new(&tool.name) else {
                self.left_out(
                    grant,
                    server,
                    &tool.name,
                    "its name has characters outside `[A-Za-z0-9_./-]` or is too long",
                );
                continue;
            };
            let twins = seen.get(&tool.name.to_ascii_lowercase()).map_or(&[][..], Vec::as_slice);
            if twins.iter().filter(|twin| **twin == tool.name).count() > 1 {
                self.left_out(grant, server, &tool.name, "the server lists it twice");
                continue;
            }
            let twinned = twins.len() > 1;
            let Some(approve) = self.approve(grant, server, &name, twinned) else { continue };
            let exposed = exposed_name(server, &tool.name);
            let left = if twinned { within.spells(&name) } else { within.covers(&name) };
            if !left && within.covers(&name) {
                let why = "another tool differs only in case; spell it exactly in the run's narrow";
                self.left_out(grant, server, name.as_str(), why);
            }
            if !left {
                withheld.push(exposed);
                continue;
            }
            tools.push(Arc::new(ScopedTool {
                server: server.clone(),
                exposed,
                name,
                hash: tool.hash,
                approve,
                offer: Arc::clone(tool),
                secret: grant.secret.iter().chain(&tool.secret).cloned().collect(),
            }));
        }
        (tools, withheld)
    }

    // `twinned`: another tool of the server differs from this one only in case, so rules must
    // spell it.
    fn approve(
        &mut self,
        grant: &Grant,
        server: &ServerName,
        name: &ToolName,
        twinned: bool,
    ) -> Option<Approve> {
        let covering = |selection: &Selection| {
            if twinned { selection.spelling(name) } else { selection.covering(name) }.cloned()
        };
        if twinned && grant.allow.covering(name).is_some() && covering(&grant.allow).is_none() {
            self.left_out(
                grant,
                server,
                name.as_str(),
                "another tool differs only in case; spell it exactly in the policy",
            );
        }
        let allowed = covering(&grant.allow)?;
        // A deny covers every spelling: closed is the safe side.
        if grant.deny.covering(name).is_some() {
            return None;
        }
        Some(match covering(&grant.auto_approve) {
            Some(rule) => Approve::Auto { rule },
            None => Approve::Ask { rule: allowed },
        })
    }

    fn left_out(&mut self, grant: &Grant, server: &ServerName, tool: &str, why: &str) {
        let message =
            format!("tool {} of server `{server}` is held back: {why}", crate::decide::shown(tool));
        self.diagnostics.push(Diagnostic::warning("tool_held_back", &grant.location, message));
    }

    fn hide_collisions(&mut self) {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for part in &self.parts {
            let kept = part.tools.iter().map(|tool| &tool.exposed);
            kept.chain(&part.withheld).for_each(|name| *names.entry(name).or_default() += 1);
        }
        let twice: BTreeSet<String> =
            names.iter().filter(|(_, count)| **count > 1).map(|(&name, _)| name.into()).collect();
        let mut hidden = BTreeSet::new();
        for part in &mut self.parts {
            let gone = part.tools.extract_if(.., |tool| twice.contains(&tool.exposed));
            hidden.extend(gone.map(|tool| tool.exposed.clone()));
        }
        self.diagnostics.extend(hidden.iter().map(|name| {
            let message = format!("two tools would both be called `{name}`; both are hidden");
            Diagnostic::warning("name_collision", &self.agent.location, message)
        }));
    }
}

fn select_prompts(
    selection: &Selection,
    offer: &Offer,
    within: &Within<'_>,
) -> Vec<Arc<EntryOffer>> {
    let granted = |prompt: &&Arc<EntryOffer>| {
        ToolName::new(&prompt.key)
            .is_ok_and(|name| selection.covering(&name).is_some() && within.prompts(&name))
    };
    offer.prompts.iter().filter(granted).cloned().collect()
}

/// A tool entry with another name, all other bytes as they came.
#[must_use]
pub(crate) fn named_quoted(json: &str, span: &std::ops::Range<usize>, name: &str) -> String {
    let (head, tail) =
        (json.get(..span.start).unwrap_or_default(), json.get(span.end..).unwrap_or_default());
    format!("{head}{}{tail}", quote(name))
}
