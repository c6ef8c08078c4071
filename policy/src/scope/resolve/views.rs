//! Makes a view: the tables a request is looked up in and the texts the agent is shown.

use super::super::view::{Shown, Template, View};
use super::super::{DIRECT_LIST_BYTES_MAX, DIRECT_TOOLS_MAX, Missing, ScopedTool, exposed_name};
use super::{Found, Part, text};
use crate::canonical::Digest;
use crate::catalogue::EntryOffer;
use crate::definition::{Agent, Expose};
use crate::name::ServerName;
use crate::scope::uri_template::UriTemplate;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// What the agent is shown: everything, or one server under its own names.
pub(super) fn view(found: &Found<'_>, only: Option<&ServerName>) -> View {
    let agent = found.agent;
    let parts: Vec<&Part<'_>> =
        found.parts.iter().filter(|part| only.is_none_or(|only| *only == part.server)).collect();
    let name_of = |server: &ServerName, native: &str| {
        if only.is_some() { native.to_owned() } else { exposed_name(server, native) }
    };
    let tools: BTreeMap<String, Arc<ScopedTool>> = parts
        .iter()
        .flat_map(|part| &part.tools)
        .map(|tool| (name_of(&tool.server, tool.name.as_str()), Arc::clone(tool)))
        .collect();
    let missing = missing(found, only);
    let missing_tools = missing
        .iter()
        .enumerate()
        .filter_map(|(at, m)| Some((name_of(&m.server, m.tool.as_deref()?), at)))
        .collect();
    let declared = declared(agent, &parts, &missing, only);
    let tools_json = text::joined(
        tools
            .iter()
            .map(|(name, tool)| text::renamed(&tool.offer.json, &tool.offer.name_span, name)),
    );
    // An endpoint of one server has that server's own names and nothing beside them.
    let shown = match only {
        Some(_) => Shown::Direct,
        None => shown(agent.expose, tools.len(), tools_json.len()),
    };
    let authorised = text::authorised(&declared, &tools, shown);
    let may_park = may_park(agent, only);
    let collects = may_park.then_some(match only {
        Some(_) => "portcullis__approval_status",
        None => "approval_status",
    });
    let instructions = text::instructions(agent, &authorised, &missing, collects);
    let prompts = prompts(&parts, &name_of);
    let resources = owners(&parts, |part| &part.resources);
    let template_owners = owners(&parts, |part| &part.templates);
    let owned = |entry: &&Arc<EntryOffer>| matches!(resources.get(&entry.key), Some(Some(_)));
    let alone = |entry: &&Arc<EntryOffer>| matches!(template_owners.get(&entry.key), Some(Some(_)));
    let mut view = View {
        shown,
        may_park,
        index: OnceLock::new(),
        tools_json: tools_json.into(),
        resources_json: entries(parts.iter().flat_map(|part| &part.resources).filter(owned)),
        templates_json: entries(parts.iter().flat_map(|part| &part.templates).filter(alone)),
        prompts_json: text::joined(
            prompts
                .iter()
                .map(|(name, (_, entry))| text::renamed(&entry.json, &entry.key_span, name)),
        )
        .into(),
        instructions: instructions.into(),
        hash: Digest::of(b""),
        tools,
        missing,
        missing_tools,
        declared,
        prompts: prompts
            .into_iter()
            .map(|(name, (server, entry))| (name, (server, entry.key.clone())))
            .collect(),
        resources,
        templates: parts.iter().flat_map(|part| templates(part)).collect(),
        authorised: authorised.into(),
        completes: parts.iter().any(|part| part.completes),
        narrowing: agent.narrowing.clone(),
    };
    view.hash = text::view_hash(&view);
    view
}

fn missing(found: &Found<'_>, only: Option<&ServerName>) -> Vec<Missing> {
    let here = |gone: &&Missing| only.is_none_or(|only| *only == gone.server);
    found.missing.iter().filter(here).cloned().collect()
}

fn may_park(agent: &Agent, only: Option<&ServerName>) -> bool {
    let mut grants =
        agent.grants.iter().filter(|grant| only.is_none_or(|only| *only == grant.server));
    grants.any(|grant| agent.narrowing.within(&grant.server).may_park(grant))
}

fn entries<'a>(entries: impl Iterator<Item = &'a Arc<EntryOffer>>) -> Arc<str> {
    text::joined(entries.map(|entry| entry.json.to_string())).into()
}

fn shown(expose: Expose, tools: usize, list_bytes: usize) -> Shown {
    match expose {
        Expose::Direct => Shown::Direct,
        Expose::Search => Shown::Search,
        Expose::Auto if tools > DIRECT_TOOLS_MAX || list_bytes > DIRECT_LIST_BYTES_MAX => {
            Shown::Search
        }
        Expose::Auto => Shown::Direct,
    }
}

fn declared(
    agent: &Agent,
    parts: &[&Part<'_>],
    missing: &[Missing],
    only: Option<&ServerName>,
) -> Vec<ServerName> {
    let spelled = parts.iter().map(|part| &part.server).chain(missing.iter().map(|m| &m.server));
    let spelled: BTreeSet<&ServerName> = spelled.collect();
    let servers: BTreeSet<ServerName> = agent
        .grants
        .iter()
        .filter(|grant| only.is_none_or(|only| *only == grant.server))
        .map(|grant| spelled.get(&grant.server).copied().unwrap_or(&grant.server).clone())
        .collect();
    servers.into_iter().collect()
}

fn prompts(
    parts: &[&Part<'_>],
    name_of: &impl Fn(&ServerName, &str) -> String,
) -> BTreeMap<String, (ServerName, Arc<EntryOffer>)> {
    let entries =
        parts.iter().flat_map(|part| part.prompts.iter().map(|prompt| (&part.server, prompt)));
    entries
        .map(|(server, prompt)| {
            (name_of(server, &prompt.key), (server.clone(), Arc::clone(prompt)))
        })
        .collect()
}

/// The server of each key, or `None` where several have it or where the server's is not within.
fn owners<'a>(
    parts: &[&'a Part<'_>],
    of: impl Fn(&'a Part<'_>) -> &'a [Arc<EntryOffer>],
) -> BTreeMap<String, Option<ServerName>> {
    let mut owners: BTreeMap<String, Option<ServerName>> = BTreeMap::new();
    for &part in parts {
        for entry in of(part) {
            owners
                .entry(entry.key.clone())
                .and_modify(|owner| *owner = owner.take().filter(|owner| *owner == part.server))
                .or_insert_with(|| Some(part.server.clone()));
        }
    }
    for &part in parts {
        for taken in of(part).iter().filter(|entry| !part.within.reads(&entry.key)) {
            owners
                .entry(taken.key.clone())
                .and_modify(|owner| *owner = owner.take().filter(|owner| *owner != part.server));
        }
    }
    owners
}

fn templates<'a>(part: &'a Part<'_>) -> impl Iterator<Item = Template> + 'a {
    part.templates.iter().map(|entry| Template {
        template: entry.key.clone(),
        covers: UriTemplate::new(&entry.key),
        granted: part.granted.clone(),
        server: part.server.clone(),
    })
}
