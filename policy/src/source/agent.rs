//! A document of kind `Agent`.

use super::approval::approval;
use super::grant::grant;
use super::reader::Reader;
use super::wire;
use crate::definition::{Agent, AgentLimits, Expose, Grant, SubAgent};
use crate::name::AgentName;
use crate::narrow::Narrowing;

/// Most calls a minute, in flight or parked that a limit may allow.
pub const LIMIT_MAX: u32 = 1_000_000;
/// Longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 4_096;

/// The agent that the document defines; `None` if its name is no name.
pub(super) fn agent(
    reader: &mut Reader<'_>,
    document: &wire::Document<wire::Agent>,
) -> Option<Agent> {
    let name = reader.name(&document.metadata.name, AgentName::new);
    let location = reader.place(&document.metadata.name);
    let spec = &document.spec;
    let (grants, sub_agents) = bindings(reader, spec);
    let expose = spec.expose.as_ref().and_then(|text| reader.choice(text, EXPOSE));
    Some(Agent {
        description: spec.description.as_ref().map_or_else(String::new, |d| described(reader, d)),
        grants,
        sub_agents,
        expose: expose.unwrap_or(Expose::Auto),
        approval: spec.approval.as_ref().map(|wire| approval(reader, wire)).unwrap_or_default(),
        limits: spec.limits.as_ref().map(|wire| limits(reader, wire)).unwrap_or_default(),
        permission_prompt: spec
            .permission_prompt
            .as_ref()
            .filter(|text| reader.choice(text, YES_OR_NO) == Some(true))
            .map(|text| reader.place(text)),
        narrowing: Narrowing::default(),
        location,
        name: name?,
    })
}

const EXPOSE: &[(&str, Expose)] =
    &[("direct", Expose::Direct), ("search", Expose::Search), ("auto", Expose::Auto)];

const YES_OR_NO: &[(&str, bool)] = &[("true", true), ("false", false)];

fn bindings(reader: &mut Reader<'_>, spec: &wire::Agent) -> (Vec<Grant>, Vec<SubAgent>) {
    let (mut grants, mut sub_agents): (Vec<Grant>, Vec<SubAgent>) = (Vec::new(), Vec::new());
    for entry in &spec.tools {
        match (&entry.value.server, &entry.value.sub_agent) {
            (Some(server), None) => {
                let Some(grant) = grant(reader, server, entry) else { continue };
                if let Some(twin) = grants.iter().find(|other| other.server == grant.server) {
                    let text = format!(
                        "server `{}` has an entry already, at {}; merge the two",
                        grant.server, twin.location
                    );
                    reader.error("duplicate_server", &grant.location, text);
                    continue;
                }
                grants.push(grant);
            }
            (None, Some(binding)) => {
                let Some(sub_agent) = sub_agent(reader, binding) else { continue };
                alone(reader, entry);
                if let Some(twin) = sub_agents.iter().find(|other| other.name == sub_agent.name) {
                    let text = format!(
                        "subagent `{}` has an entry already, at {}; give this one another name",
                        sub_agent.name, twin.location
                    );
                    reader.error("duplicate_sub_agent", &sub_agent.location, text);
                    continue;
                }
                sub_agents.push(sub_agent);
            }
            (Some(_), Some(_)) | (None, None) => {
                let text = "an entry of `tools` has exactly one of `server` and `subAgent`";
                reader.error("missing_key", &reader.place(entry), text);
            }
        }
    }
    (grants, sub_agents)
}

/// What belongs to a server has no meaning beside `subAgent`.
fn alone(reader: &mut Reader<'_>, entry: &serde_saphyr::Spanned<wire::Binding>) {
    let wire = &entry.value;
    let beside = [
        ("allow", wire.allow.is_some()),
        ("autoApprove", wire.auto_approve.is_some()),
        ("deny", wire.deny.is_some()),
        ("resources", wire.resources.is_some()),
        ("prompts", wire.prompts.is_some()),
        ("secret", wire.secret.is_some()),
    ];
    for (key, present) in beside {
        if present {
            let text = format!(
                "`{key}` has no meaning beside `subAgent`: what a subagent may do stands in its \
                 own definition; remove it"
            );
            reader.error("unknown_key", &reader.place(entry), text);
        }
    }
}

fn sub_agent(reader: &mut Reader<'_>, wire: &wire::SubAgent) -> Option<SubAgent> {
    let name = reader.name(&wire.name, AgentName::new);
    let agent = reader.name(&wire.template_ref.name, AgentName::new);
    let description = described(reader, &wire.description);
    let location = reader.place(&wire.name);
    if description.trim().is_empty() {
        let text = "`description` is empty; say what the subagent is for, its parent reads it";
        reader.error("missing_value", &reader.place(&wire.description), text);
    }
    Some(SubAgent { name: name?.as_str().to_owned(), description, agent: agent?, location })
}

fn described(reader: &mut Reader<'_>, text: &wire::Text) -> String {
    if text.value.len() > DESCRIPTION_BYTES_MAX {
        let message =
            format!("`description` has more than {DESCRIPTION_BYTES_MAX} bytes; shorten it");
        reader.error("too_long", &reader.place(text), message);
    }
    text.value.trim_end().to_owned()
}

fn limits(reader: &mut Reader<'_>, wire: &wire::Limits) -> AgentLimits {
    let usual = AgentLimits::default();
    let mut count = |text: &Option<wire::Text>| {
        text.as_ref().and_then(|text| reader.count(text, 1..=LIMIT_MAX))
    };
    AgentLimits {
        calls_per_minute: count(&wire.calls_per_minute),
        concurrent_calls: count(&wire.concurrent_calls).unwrap_or(usual.concurrent_calls),
        parked_calls: count(&wire.parked_calls).unwrap_or(usual.parked_calls),
        parked_calls_per_run: count(&wire.parked_calls_per_run),
    }
}
