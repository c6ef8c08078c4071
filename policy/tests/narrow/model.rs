//! The rules once more, as a person would say them.

use super::world::{Entries, NAMES, PATTERNS, TEMPLATES, URI_PATTERNS, URIS, World};
use std::collections::BTreeSet;

/// What came of asking for something: the server that it goes to, and whether it runs or waits.
pub(crate) type Reached = Option<(usize, &'static str)>;

pub(crate) fn tool(world: &World, narrows: &[&Entries], server: usize, tool: usize) -> Reached {
    let lists = world.grants.get(&server)?;
    let offered = world.offered.get(&server).is_some_and(|o| o.up && o.tools.contains(&tool));
    let granted = names(&lists.allow, tool) && !names(&lists.deny, tool);
    let left = narrows.iter().all(|n| n.get(&server).is_some_and(|l| names(&l.allow, tool)));
    let verdict = if names(&lists.auto, tool) { "run" } else { "park" };
    (offered && granted && left).then_some((server, verdict))
}

pub(crate) fn prompt(world: &World, narrows: &[&Entries], server: usize, prompt: usize) -> Reached {
    let lists = world.grants.get(&server)?;
    let offered = world.offered.get(&server).is_some_and(|o| o.up && o.prompts.contains(&prompt));
    let left = narrows.iter().all(|n| n.get(&server).is_some_and(|l| names(&l.prompts, prompt)));
    (offered && names(&lists.prompts, prompt) && left).then_some((server, "run"))
}

/// A URI goes where it goes without the narrows, or nowhere.
pub(crate) fn uri(world: &World, narrows: &[&Entries], uri: &str) -> Reached {
    let granted = |server: &usize, text: &str| {
        world.grants.get(server).is_some_and(|lists| uris(&lists.resources, text))
    };
    let up = || world.offered.iter().filter(|(_, offered)| offered.up);
    let listed: Vec<usize> = up()
        .filter(|(s, o)| o.uris.iter().any(|&u| URIS[u] == uri) && granted(s, uri))
        .map(|(&server, _)| server)
        .collect();
    let templated: Vec<usize> = up()
        .filter(|(s, o)| {
            let mut there = o.templates.iter().map(|&t| TEMPLATES[t]);
            there.any(|t| granted(s, t) && expands(t, uri)) && granted(s, uri)
        })
        .map(|(&server, _)| server)
        .collect();
    let owners = if listed.is_empty() { templated } else { listed };
    left(narrows, &owners, uri)
}

pub(crate) fn template(world: &World, narrows: &[&Entries], template: usize) -> Reached {
    let text = TEMPLATES[template];
    let offers = world.offered.iter().filter(|(s, o)| {
        let granted = world.grants.get(s).is_some_and(|lists| uris(&lists.resources, text));
        o.up && o.templates.contains(&template) && granted
    });
    left(narrows, &offers.map(|(&server, _)| server).collect::<Vec<_>>(), text)
}

fn left(narrows: &[&Entries], owners: &[usize], text: &str) -> Reached {
    let &[owner] = owners else { return None };
    let left = |n: &&Entries| n.get(&owner).is_some_and(|l| uris(&l.resources, text));
    narrows.iter().all(left).then_some((owner, "run"))
}

pub(crate) fn names(patterns: &BTreeSet<usize>, name: usize) -> bool {
    let name = NAMES[name].to_lowercase();
    patterns.iter().any(|&p| like(&PATTERNS[p].to_lowercase(), &name))
}

fn uris(patterns: &BTreeSet<usize>, uri: &str) -> bool {
    patterns.iter().any(|&p| like(URI_PATTERNS[p], uri))
}

/// The one variable stands last in every template here.
fn expands(template: &str, uri: &str) -> bool {
    let value = uri.strip_prefix(template.trim_end_matches("{id}"));
    value.is_some_and(|value| !value.is_empty() && value.chars().all(char::is_alphanumeric))
}

/// `*` and `?` by plain recursion.
fn like(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => {
            like(&pattern[1..], text) || (!text.is_empty() && like(pattern, &text[1..]))
        }
        (Some(a), Some(b)) if a == '?' || a == b => like(&pattern[1..], &text[1..]),
        _ => false,
    }
}
