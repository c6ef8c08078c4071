//! The laws of the decision, checked against a naive model on random policies and catalogues.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and asks its environment how long to run"
)]

use bytes::Bytes;
use portcullis_policy::catalogue::{Catalogue, Offer, Status, ToolOffer};
use portcullis_policy::decide::{Ask, Decision, Usage, decide};
use portcullis_policy::definition::{
    Agent, AgentLimits, Approval, Definition, EraPin, Expose, Grant, Rule, SERVER_PARKED_CALLS,
    Selection, Server, Transport,
};
use portcullis_policy::diagnostic::Location;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::name::{AgentName, ServerName};
use portcullis_policy::narrow::Narrowing;
use portcullis_policy::pattern::Pattern;
use portcullis_policy::scope::{Scope, exposed_name};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SERVERS: &[&str] = &["crm", "Notes", "git-hub"];
const TOOLS: &[&str] = &["get", "Get_All", "delete", "search_a", "search_b", "x.y/z"];
const PATTERNS: &[&str] = &["get", "GET_all", "search_*", "*", "del?te", "nothing", "X.Y/Z", "?et"];

/// What a case is made of: plain lists, so that the model can stay naive.
#[derive(Debug, Clone)]
struct World {
    grants: BTreeMap<usize, Lists>,
    offered: BTreeMap<usize, Vec<usize>>,
    search: bool,
    /// How the patterns are spelled.
    spelled: Spelling,
}

#[derive(Debug, Clone, Copy)]
enum Spelling {
    AsListed,
    Upper,
    Lower,
}

#[derive(Debug, Clone)]
struct Lists {
    allow: Vec<usize>,
    auto: Vec<usize>,
    deny: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Run,
    Park,
    Refuse,
}

/// The rules once more, as a person would say them.
fn model(world: &World, server: usize, tool: usize) -> Verdict {
    let covered = |patterns: &[usize]| patterns.iter().any(|&p| like(PATTERNS[p], TOOLS[tool]));
    let offered = world.offered.get(&server).is_some_and(|tools| tools.contains(&tool));
    match world.grants.get(&server) {
        Some(lists) if offered && covered(&lists.allow) && !covered(&lists.deny) => {
            if covered(&lists.auto) { Verdict::Run } else { Verdict::Park }
        }
        _ => Verdict::Refuse,
    }
}

/// `*` and `?` by plain recursion.
fn like(pattern: &str, text: &str) -> bool {
    let (p, t) = (pattern.to_lowercase(), text.to_lowercase());
    match (p.chars().next(), t.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => like(&p[1..], &t) || (!t.is_empty() && like(&p, &t[1..])),
        (Some(a), Some(b)) if a == '?' || a == b => like(&p[1..], &t[1..]),
        _ => false,
    }
}

fn here() -> Location {
    Location { file: "law.yaml".into(), line: 1, column: 1 }
}

fn selection(patterns: &[usize], spelled: Spelling) -> Selection {
    let spell = |pattern: &str| match spelled {
        Spelling::AsListed => pattern.to_owned(),
        Spelling::Upper => pattern.to_uppercase(),
        Spelling::Lower => pattern.to_lowercase(),
    };
    let rule = |&p: &usize| Rule { pattern: Pattern::new(&spell(PATTERNS[p])), location: here() };
    Selection::Listed(patterns.iter().map(rule).collect())
}

fn scope(world: &World) -> Scope {
    let mut definition = Definition::default();
    let mut catalogue = Catalogue::default();
    for (index, name) in SERVERS.iter().enumerate() {
        let name = ServerName::new(name).unwrap();
        let tools = world.offered.get(&index).into_iter().flatten().map(|&tool| {
            let json = format!(
                r#"{{"name":"{}","description":"{} it","inputSchema":{{}}}}"#,
                TOOLS[tool], TOOLS[tool]
            );
            Arc::new(ToolOffer::parse(&json, JsonLimits::default()).unwrap())
        });
        let offer = Offer { status: Status::Ready, tools: tools.collect(), ..Offer::default() };
        catalogue.servers.insert(name.clone(), Arc::new(offer));
        let server = Server {
            name: name.clone(),
            transport: Transport::Http {
                url: "http://127.0.0.1:1/mcp".into(),
                headers: BTreeMap::new(),
            },
            enabled: true,
            era: EraPin::Auto,
            call_timeout: Duration::from_secs(60),
            parked_calls: SERVER_PARKED_CALLS,
            location: here(),
        };
        definition.servers.insert(name, server);
    }
    let grant = |(&index, lists): (&usize, &Lists)| Grant {
        // The other case than the definition's: it must not matter.
        server: ServerName::new(&SERVERS[index].to_uppercase()).unwrap(),
        allow: selection(&lists.allow, world.spelled),
        auto_approve: selection(&lists.auto, world.spelled),
        deny: selection(&lists.deny, world.spelled),
        resources: Vec::new(),
        prompts: Selection::none(),
        secret: Vec::new(),
        location: here(),
    };
    let agent = Agent {
        name: AgentName::new("law").unwrap(),
        description: String::new(),
        grants: world.grants.iter().map(grant).collect(),
        sub_agents: Vec::new(),
        permission_prompt: None,
        expose: if world.search { Expose::Search } else { Expose::Auto },
        approval: Approval::default(),
        limits: AgentLimits::default(),
        narrowing: Narrowing::default(),
        location: here(),
    };
    Scope::resolve(&agent, &definition, &catalogue, 1).0
}

fn verdict(scope: &Scope, name: &str) -> Verdict {
    let ask = Ask::Tool { name: name.to_owned(), arguments: Some(Bytes::from_static(b"{}")) };
    match decide(scope, &scope.all, ask, &Usage::default()) {
        Decision::Run(_) => Verdict::Run,
        Decision::Park(_) => Verdict::Park,
        Decision::Refuse(refusal) => {
            assert!(
                refusal.text.contains("nothing was sent")
                    || refusal.text.contains("Nothing was sent")
            );
            Verdict::Refuse
        }
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let some = |n: usize| prop::collection::vec(0..n, 0..4);
    let patterns = PATTERNS.len();
    let lists = (some(patterns), some(patterns), some(patterns), any::<bool>()).prop_map(
        |(allow, auto, deny, denies)| Lists {
            allow,
            auto,
            deny: if denies { deny } else { Vec::new() },
        },
    );
    let grants = prop::collection::btree_map(0..SERVERS.len(), lists, 0..4);
    let tools = prop::collection::btree_set(0..TOOLS.len(), 0..TOOLS.len());
    let offered = prop::collection::btree_map(0..SERVERS.len(), tools, 0..4);
    (grants, offered, any::<bool>()).prop_map(|(grants, offered, search)| World {
        grants,
        offered: offered.into_iter().map(|(s, tools)| (s, tools.into_iter().collect())).collect(),
        search,
        spelled: Spelling::AsListed,
    })
}

fn everything() -> impl Iterator<Item = (usize, usize, String)> {
    (0..SERVERS.len()).flat_map(|s| {
        (0..TOOLS.len())
            .map(move |t| (s, t, exposed_name(&ServerName::new(SERVERS[s]).unwrap(), TOOLS[t])))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decide_agrees_with_the_model_and_undeclared_is_unreachable(world in worlds()) {
        let scope = scope(&world);
        for (server, tool, name) in everything() {
            prop_assert_eq!(verdict(&scope, &name), model(&world, server, tool), "{}", name);
        }
    }

    #[test]
    fn case_never_matters(world in worlds()) {
        let listed = scope(&world);
        for spelled in [Spelling::Upper, Spelling::Lower] {
            let other = scope(&World { spelled, ..world.clone() });
            // What is missing is named as the policy spells it; all else is the server's spelling.
            prop_assert_eq!(&listed.all.tools_json, &other.all.tools_json);
            for (_, _, name) in everything() {
                prop_assert_eq!(verdict(&listed, &name), verdict(&other, &name), "{}", name);
            }
        }
    }

    #[test]
    fn visible_iff_callable(world in worlds()) {
        let scope = scope(&world);
        for (_, _, name) in everything() {
            let listed = scope.all.tools_json.contains(&format!("\"name\":\"{name}\""));
            prop_assert_eq!(listed, verdict(&scope, &name) != Verdict::Refuse, "{}", name);
        }
    }

    #[test]
    fn search_is_within_list(world in worlds(), query in "[a-z_ ]{0,20}") {
        let scope = scope(&world);
        for (name, _) in scope.all.search(&query, 50) {
            prop_assert!(verdict(&scope, name) != Verdict::Refuse);
        }
    }

    #[test]
    fn default_is_refuse(world in worlds(), name in "\\PC{0,40}") {
        let scope = scope(&World { grants: BTreeMap::new(), ..world });
        prop_assert_eq!(verdict(&scope, &name), Verdict::Refuse);
        prop_assert_eq!(&*scope.all.tools_json, "");
    }

    #[test]
    fn the_same_view_has_the_same_bytes(world in worlds()) {
        let (one, other) = (scope(&world), scope(&world));
        prop_assert_eq!(one.all.hash, other.all.hash);
        // Tools that the agent may not use leave no trace in what it is shown.
        let mut more = world.clone();
        for (server, tools) in &mut more.offered {
            let granted = world.grants.contains_key(server);
            if !granted {
                *tools = (0..TOOLS.len()).collect();
            }
        }
        prop_assert_eq!(one.all.hash, scope(&more).all.hash);
    }

    #[test]
    fn strict_json_agrees_with_another_parser(text in json_like()) {
        let ours = portcullis_policy::json::check(text.as_bytes(), JsonLimits::default());
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
        // Ours also refuses duplicates; theirs also refuses numbers beyond a double.
        if ours.is_ok() && theirs.is_err() {
            prop_assert!(text.contains('e') || text.contains('E'), "{}", text);
        }
        if let (Err(error), Ok(_)) = (&ours, &theirs) {
            prop_assert_eq!(error.fault, portcullis_policy::json::JsonFault::Duplicate, "{}", text);
        }
    }

    #[test]
    fn canonical_form_is_stable_and_means_the_same(text in json_like()) {
        let limits = JsonLimits::default();
        if let Ok(form) = portcullis_policy::canonical::canonical(text.as_bytes(), limits) {
            let again = portcullis_policy::canonical::canonical(form.as_bytes(), limits).unwrap();
            prop_assert_eq!(&form, &again);
            let before: Result<serde_json::Value, _> = serde_json::from_str(&text);
            let after: Result<serde_json::Value, _> = serde_json::from_str(&form);
            prop_assert_eq!(before.ok(), after.ok());
        }
    }
}

/// Texts that are often JSON and always close to it.
fn json_like() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?[0-9]{1,20}(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?",
        "\"(\\PC|\\\\[nrtbf/\\\\\"]|\\\\u[0-9a-f]{4}){0,6}\"",
        "[\\[\\]{}:,\" ]{1,3}",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(("[a-c]{1,2}", inner), 0..4).prop_map(|members| {
                let members: Vec<String> =
                    members.iter().map(|(k, v)| format!("\"{k}\": {v}")).collect();
                format!("{{{}}}", members.join(" ,"))
            }),
        ]
    })
}

/// Cases of each law; `PORTCULLIS_LAW_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PORTCULLIS_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}
