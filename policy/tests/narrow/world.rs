//! Random agents, offers and narrows, and what they are when made real.

use portcullis_policy::catalogue::{Catalogue, EntryOffer, Offer, Status, ToolOffer};
use portcullis_policy::definition::{Agent, Definition};
use portcullis_policy::diagnostic::Severity;
use portcullis_policy::json::{JsonLimits, quote};
use portcullis_policy::name::{AgentName, ServerName};
use portcullis_policy::narrow::Narrow;
use portcullis_policy::scope::Scope;
use portcullis_policy::source::{SourceFile, read};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const SERVERS: &[&str] = &["crm", "Notes", "git-hub"];
pub(crate) const NAMES: &[&str] = &["get", "Get_All", "delete", "search_a", "search_b", "x.y/z"];
pub(crate) const PATTERNS: &[&str] =
    &["get", "GET_all", "search_*", "*", "del?te", "nothing", "X.Y/Z", "?et"];
pub(crate) const URIS: &[&str] = &["a://1", "a://2", "b://1", "b://x/y", "A://1"];
pub(crate) const TEMPLATES: &[&str] = &["a://{id}", "b://{id}", "b://x/{id}"];
pub(crate) const URI_PATTERNS: &[&str] = &["a://1", "a://*", "b://?", "*", "b://x/*", "A://*"];

/// The lists of an entry, in a policy or in a narrow: numbers of patterns. The list that has
/// `*` is everything.
#[derive(Debug, Clone)]
pub(crate) struct Lists {
    pub(crate) allow: BTreeSet<usize>,
    pub(crate) auto: BTreeSet<usize>,
    pub(crate) deny: BTreeSet<usize>,
    pub(crate) resources: BTreeSet<usize>,
    pub(crate) prompts: BTreeSet<usize>,
}

pub(crate) type Entries = BTreeMap<usize, Lists>;

#[derive(Debug, Clone)]
pub(crate) struct Offered {
    pub(crate) tools: BTreeSet<usize>,
    pub(crate) prompts: BTreeSet<usize>,
    pub(crate) uris: BTreeSet<usize>,
    pub(crate) templates: BTreeSet<usize>,
    pub(crate) up: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) grants: Entries,
    pub(crate) offered: BTreeMap<usize, Offered>,
    pub(crate) search: bool,
}

pub(crate) fn list(patterns: &BTreeSet<usize>, of: &[&str]) -> String {
    if of == PATTERNS && patterns.iter().any(|&p| of[p] == "*") {
        return "\"*\"".to_owned();
    }
    let quoted: Vec<String> = patterns.iter().map(|&p| quote(of[p])).collect();
    format!("[{}]", quoted.join(", "))
}

pub(crate) fn entries<'a>(
    entries: impl Iterator<Item = (&'a usize, &'a Lists)>,
    more: impl Fn(&Lists) -> String,
) -> String {
    let written = entries.map(|(&server, lists)| {
        format!(
            r#"{{"server": {}, "allow": {}, "resources": {}, "prompts": {}{}}}"#,
            quote(SERVERS[server]),
            list(&lists.allow, PATTERNS),
            list(&lists.resources, URI_PATTERNS),
            list(&lists.prompts, PATTERNS),
            more(lists)
        )
    });
    format!("[{}]", written.collect::<Vec<_>>().join(", "))
}

pub(crate) fn narrow_text(narrow: &Entries) -> String {
    format!(r#"{{"tools": {}}}"#, entries(narrow.iter(), |_| String::new()))
}

pub(crate) fn narrow(entries: &Entries) -> Narrow {
    Narrow::read(&narrow_text(entries)).unwrap()
}

/// Everything on every server.
pub(crate) fn everything() -> Entries {
    let star = |of: &[&str]| of.iter().position(|p| *p == "*").into_iter().collect();
    let all = Lists {
        allow: star(PATTERNS),
        auto: BTreeSet::new(),
        deny: BTreeSet::new(),
        resources: star(URI_PATTERNS),
        prompts: star(PATTERNS),
    };
    (0..SERVERS.len()).map(|server| (server, all.clone())).collect()
}

/// A world made real.
pub(crate) struct Real {
    pub(crate) agent: Agent,
    pub(crate) definition: Definition,
    pub(crate) catalogue: Catalogue,
}

impl Real {
    pub(crate) fn new(world: &World) -> Self {
        let tools = entries(world.grants.iter(), |lists| {
            let (auto, deny) = (list(&lists.auto, PATTERNS), list(&lists.deny, PATTERNS));
            format!(r#", "autoApprove": {auto}, "deny": {deny}"#)
        });
        let expose = if world.search { "search" } else { "auto" };
        let mut text = format!(
            r#"{{"apiVersion": "portcullis.dev/v1", "kind": "Agent", "metadata": {{"name": "law"}}, "spec": {{"tools": {tools}, "expose": "{expose}"}}}}"#
        );
        for server in SERVERS {
            text.push_str(&format!(
                "\n---\n{{\"apiVersion\": \"portcullis.dev/v1\", \"kind\": \"Server\", \"metadata\": {{\"name\": \"{server}\"}}, \"spec\": {{\"http\": {{\"url\": \"http://127.0.0.1:1/mcp\"}}}}}}"
            ));
        }
        let (definition, found) = read(&[SourceFile { name: "law.yaml".into(), text: &text }]);
        assert!(found.iter().all(|f| f.severity < Severity::Error), "{found:?}\n{text}");
        let agent = definition.agents[&AgentName::new("law").unwrap()].clone();
        let offers =
            world.offered.iter().map(|(&s, offered)| (server(s), Arc::new(offer(offered))));
        Self { agent, catalogue: Catalogue { servers: offers.collect() }, definition }
    }

    pub(crate) fn resolve(&self, agent: &Agent) -> Scope {
        Scope::resolve(agent, &self.definition, &self.catalogue, 1).0
    }

    pub(crate) fn narrowed(&self, narrows: &[&Entries]) -> Scope {
        self.resolve(&narrows.iter().fold(self.agent.clone(), |a, n| a.narrowed(&narrow(n)).0))
    }
}

pub(crate) fn server(at: usize) -> ServerName {
    ServerName::new(SERVERS[at]).unwrap()
}

pub(crate) fn offer(offered: &Offered) -> Offer {
    if !offered.up {
        let status = Status::Unreachable { since_ms: 0, reason: "away".to_owned() };
        return Offer { status, ..Offer::default() };
    }
    let limits = JsonLimits::default();
    let entry = |key: &'static str, value: &str| {
        Arc::new(
            EntryOffer::parse(&format!("{{{}:{}}}", quote(key), quote(value)), key, limits)
                .unwrap(),
        )
    };
    let tool = |&at: &usize| {
        let json = format!(r#"{{"name":{},"inputSchema":{{}}}}"#, quote(NAMES[at]));
        Arc::new(ToolOffer::parse(&json, limits).unwrap())
    };
    Offer {
        status: Status::Ready,
        tools: offered.tools.iter().map(tool).collect(),
        prompts: offered.prompts.iter().map(|&at| entry("name", NAMES[at])).collect(),
        resources: offered.uris.iter().map(|&at| entry("uri", URIS[at])).collect(),
        templates: offered
            .templates
            .iter()
            .map(|&at| entry("uriTemplate", TEMPLATES[at]))
            .collect(),
        completes: true,
        ..Offer::default()
    }
}

pub(crate) fn lists() -> impl Strategy<Value = Lists> {
    let names = || prop::collection::btree_set(0..PATTERNS.len(), 0..4);
    let uris = prop::collection::btree_set(0..URI_PATTERNS.len(), 0..4);
    let deny = prop::option::weighted(0.3, names());
    (names(), names(), deny, uris, names()).prop_map(|(allow, auto, deny, resources, prompts)| {
        Lists { allow, auto, deny: deny.unwrap_or_default(), resources, prompts }
    })
}

pub(crate) fn narrows() -> impl Strategy<Value = Entries> {
    prop::collection::btree_map(0..SERVERS.len(), lists(), 0..4)
}

pub(crate) fn worlds() -> impl Strategy<Value = World> {
    let some = |most: usize| prop::collection::btree_set(0..most, 0..=most);
    let (names, uris) = (NAMES.len(), URIS.len());
    let offered = (some(names), some(names), some(uris), some(TEMPLATES.len()), 0..8);
    let offered = offered.prop_map(|(tools, prompts, uris, templates, away)| Offered {
        tools,
        prompts,
        uris,
        templates,
        up: away > 0,
    });
    let offered = prop::collection::btree_map(0..SERVERS.len(), offered, 1..4);
    (narrows(), offered, any::<bool>()).prop_map(|(grants, offered, search)| World {
        grants,
        offered,
        search,
    })
}

/// Narrows with one piece replaced, so that they are always close to right.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof!["\\PC{0,6}", "[\\[\\]{}:,\"* ]{1,3}", Just("\\u0000".to_owned())];
    (narrows(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), piece).prop_map(
        |(narrow, from, to, piece)| {
            let text = narrow_text(&narrow);
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            let to = to.clamp(from, from + 3).min(text.len());
            format!("{}{piece}{}", &text[..from], &text[to..])
        },
    )
}
