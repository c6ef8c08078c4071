//! The laws of narrowing, checked against a naive model on random agents, offers and narrows.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and asks its environment how long to run"
)]

mod model;
mod world;

use model::Reached;
use portcullis_policy::decide::{Ask, Decision, Usage, decide};
use portcullis_policy::definition::Agent;
use portcullis_policy::diagnostic::{Diagnostic, Severity};
use portcullis_policy::json::quote;
use portcullis_policy::name::ServerName;
use portcullis_policy::narrow::Narrow;
use portcullis_policy::scope::{Scope, exposed_name};
use proptest::prelude::*;
use std::collections::BTreeSet;
use world::{
    Entries, NAMES, PATTERNS, Real, SERVERS, TEMPLATES, URIS, World, everything, narrow,
    narrow_text, narrows, server, texts, worlds,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_narrowed_scope_agrees_with_the_model(world in worlds(), first in narrows(), second in narrows()) {
        let real = Real::new(&world);
        for narrows in [&[][..], &[&first], &[&first, &second]] {
            let scope = real.narrowed(narrows);
            for (what, ask, expected) in asks(&world, narrows) {
                prop_assert_eq!(reached(&scope, &ask), expected, "{}", what);
            }
        }
    }

    #[test]
    fn it_can_only_take_away_and_what_asks_still_asks(world in worlds(), first in narrows()) {
        let real = Real::new(&world);
        let (whole, less) = (real.resolve(&real.agent), real.narrowed(&[&first]));
        for (what, ask, _) in asks(&world, &[]) {
            let left = reached(&less, &ask);
            prop_assert!(left.is_none() || left == reached(&whole, &ask), "{}", what);
            prop_assert!(!listed(&less, &ask) || listed(&whole, &ask), "{}", what);
        }
        let declared = |scope: &Scope| -> BTreeSet<_> { scope.all.declared.iter().cloned().collect() };
        prop_assert!(declared(&less).is_subset(&declared(&whole)));
        prop_assert!(less.all.missing.iter().all(|gone| whole.all.missing.contains(gone)));
        for (own, in_whole) in [
            (less.all.may_park(), whole.all.may_park()),
            (less.all.completes(), whole.all.completes()),
            (less.all.has_resources(), whole.all.has_resources()),
            (less.all.has_prompts(), whole.all.has_prompts()),
        ] {
            prop_assert!(!own || in_whole);
        }
    }

    #[test]
    fn everything_takes_nothing_away(world in worlds()) {
        let real = Real::new(&world);
        let granted: Entries =
            everything().into_iter().filter(|(s, _)| world.grants.contains_key(s)).collect();
        let (agent, found) = real.agent.narrowed(&narrow(&granted));
        prop_assert!(found.is_empty(), "{:?}", found);
        let (whole, same) = (real.resolve(&real.agent), real.resolve(&agent));
        prop_assert_eq!(whole.all.hash, same.all.hash);
        prop_assert_eq!(whole.all.has_resources(), same.all.has_resources());
        prop_assert_eq!(whole.all.completes(), same.all.completes());
        prop_assert_eq!(whole.servers.len(), same.servers.len());
        for (what, ask, _) in asks(&world, &[]) {
            prop_assert_eq!(reached(&whole, &ask), reached(&same, &ask), "{}", what);
        }
        // A narrow that lists servers the agent does not have adds none.
        prop_assert_eq!(real.narrowed(&[&everything()]).all.hash, whole.all.hash);
    }

    #[test]
    fn nothing_leaves_nothing(world in worlds()) {
        let real = Real::new(&world);
        let scope = real.narrowed(&[&Entries::new()]);
        let nobody = real.resolve(&Agent { grants: Vec::new(), ..real.agent.clone() });
        prop_assert_eq!(scope.all.hash, nobody.all.hash);
        prop_assert!(scope.servers.is_empty() && !scope.all.has_resources());
    }

    #[test]
    fn twice_is_what_both_leave_in_any_order(world in worlds(), first in narrows(), second in narrows()) {
        let real = Real::new(&world);
        let (one, other) = (real.narrowed(&[&first]), real.narrowed(&[&second]));
        let (both, turned) = (real.narrowed(&[&first, &second]), real.narrowed(&[&second, &first]));
        prop_assert_eq!(both.all.hash, turned.all.hash);
        prop_assert_eq!(both.all.has_resources(), turned.all.has_resources());
        prop_assert_eq!(both.all.completes(), turned.all.completes());
        prop_assert_eq!(real.narrowed(&[&first, &first]).all.hash, one.all.hash);
        for (what, ask, _) in asks(&world, &[]) {
            let left = reached(&one, &ask).and(reached(&other, &ask));
            prop_assert_eq!(reached(&both, &ask), left, "{}", what);
            prop_assert_eq!(reached(&turned, &ask), left, "{}", what);
        }
    }

    #[test]
    fn case_never_matters_for_names(world in worlds(), first in narrows()) {
        let real = Real::new(&world);
        // URIs compare with case; names of this world have no escapes and no `://`.
        let spelled = |spell: fn(&str) -> String| -> String {
            let text = narrow_text(&first);
            text.split('"').enumerate().map(|(at, piece)| {
                let key = ["tools", "server", "allow", "resources", "prompts"].contains(&piece);
                if at % 2 == 0 || key || piece.contains(':') { piece.to_owned() } else { spell(piece) }
            }).collect::<Vec<_>>().join("\"")
        };
        let scope = real.narrowed(&[&first]);
        for spell in [str::to_uppercase as fn(&str) -> String, str::to_lowercase] {
            let (agent, _) = real.agent.narrowed(&Narrow::read(&spelled(spell)).unwrap());
            let other = real.resolve(&agent);
            prop_assert_eq!(scope.all.hash, other.all.hash);
            for (what, ask, _) in asks(&world, &[]) {
                prop_assert_eq!(reached(&scope, &ask), reached(&other, &ask), "{}", what);
            }
        }
    }

    #[test]
    fn visible_iff_callable(world in worlds(), first in narrows(), query in "[a-z_ ]{0,20}") {
        let scope = Real::new(&world).narrowed(&[&first]);
        for (what, ask, _) in asks(&world, &[]) {
            let (shown, there) = (listed(&scope, &ask), reached(&scope, &ask).is_some());
            // What a template covers is readable without being listed one by one.
            let by_template = matches!(ask, Ask::Resource { .. });
            prop_assert!(shown == there || (there && by_template), "{}", what);
            prop_assert!(!(there && by_template) || scope.all.has_resources(), "{}", what);
        }
        for (name, _) in scope.all.search(&query, 50) {
            let ask = Ask::Tool { name: name.to_owned(), arguments: None };
            prop_assert!(reached(&scope, &ask).is_some(), "{}", name);
        }
    }

    #[test]
    fn each_server_alone_has_what_it_has_among_the_others(world in worlds(), first in narrows()) {
        let scope = Real::new(&world).narrowed(&[&first]);
        for s in 0..SERVERS.len() {
            let left = world.grants.contains_key(&s) && first.contains_key(&s);
            let view = scope.view(Some(&server(s)));
            prop_assert_eq!(view.is_some(), left);
            for (n, name) in NAMES.iter().enumerate() {
                let there = view.is_some_and(|view| view.tool(name).is_some());
                prop_assert_eq!(there, model::tool(&world, &[&first], s, n).is_some(), "{}", name);
                prop_assert_eq!(scope.tool(&server(s), name).is_some(), there, "{}", name);
            }
        }
    }

    #[test]
    fn what_may_park_says_so(world in worlds(), first in narrows(), second in narrows()) {
        let scope = Real::new(&world).narrowed(&[&first, &second]);
        let parks = asks(&world, &[]).iter().any(|(_, ask, _)| {
            reached(&scope, ask).is_some_and(|(_, verdict)| verdict == "park")
        });
        prop_assert!(!parks || scope.all.may_park());
    }

    #[test]
    fn no_text_names_what_is_outside(world in worlds(), first in narrows()) {
        let scope = Real::new(&world).narrowed(&[&first]);
        let refusal = |ask: Ask| match decide(&scope, &scope.all, ask, &Usage::default()) {
            Decision::Refuse(refusal) => refusal.text,
            Decision::Run(_) | Decision::Park(_) => String::new(),
        };
        let texts = [
            scope.all.instructions.to_string(),
            refusal(Ask::Tool { name: "zzz".to_owned(), arguments: None }),
            refusal(Ask::Prompt { name: "zzz".to_owned() }),
            refusal(Ask::Resource { uri: "zzz://".to_owned() }),
            refusal(Ask::CompleteTemplate { template: "zzz://{id}".to_owned() }),
        ];
        for (s, named_server) in SERVERS.iter().enumerate() {
            let left = first.get(&s).filter(|_| world.grants.contains_key(&s));
            for text in &texts {
                prop_assert!(left.is_some() || !text.contains(named_server), "{}", text);
                for (n, name) in NAMES.iter().enumerate() {
                    let named = text.contains(&exposed_name(&server(s), name));
                    let there = model::tool(&world, &[&first], s, n).is_some();
                    prop_assert!(there || !named, "{} {}", name, text);
                    let gone = text.contains(&format!("`{name}` on `{named_server}`"));
                    let may = left.is_some_and(|lists| model::names(&lists.allow, n));
                    prop_assert!(may || !gone, "{} {}", name, text);
                }
            }
        }
    }

    #[test]
    fn a_warning_is_about_what_gives_nothing(world in worlds(), first in narrows()) {
        let real = Real::new(&world);
        let (_, found) = real.agent.narrowed(&narrow(&first));
        let at = |place: String| found.iter().any(|f: &Diagnostic| {
            f.location.as_ref().is_some_and(|l| *l.file == *place)
        });
        prop_assert!(found.iter().all(|f| f.code == "narrow_not_granted" && f.severity == Severity::Warning));
        for (entry, (&s, lists)) in first.iter().enumerate() {
            prop_assert_eq!(at(format!("narrow.tools[{entry}]")), !world.grants.contains_key(&s));
            for (rule, &pattern) in lists.allow.iter().enumerate() {
                let gives = (0..NAMES.len()).any(|n| {
                    model::names(&[pattern].into(), n) && model::tool(&world, &[&first], s, n).is_some()
                });
                let warned = at(format!("narrow.tools[{entry}].allow[{rule}]"));
                prop_assert!(!(gives && warned), "{}", PATTERNS[pattern]);
            }
        }
    }

    #[test]
    fn what_is_written_reads_back(world in worlds(), first in narrows()) {
        let real = Real::new(&world);
        let text = narrow(&first).write();
        let again = Narrow::read(&text).unwrap();
        prop_assert_eq!(&again.write(), &text);
        let (agent, _) = real.agent.narrowed(&again);
        prop_assert_eq!(real.resolve(&agent).all.hash, real.narrowed(&[&first]).all.hash);
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_place(text in texts()) {
        match Narrow::read(&text) {
            Ok(narrow) => prop_assert!(Narrow::read(&narrow.write()).is_ok(), "{}", text),
            Err(fault) => {
                prop_assert!(fault.path.starts_with("narrow"), "{}", fault);
                prop_assert!(!fault.to_string().contains('\n'), "{}", fault);
            }
        }
    }
}

/// Everything that can be asked for: what it is called in a failure, the ask, the model's answer.
fn asks(world: &World, narrows: &[&Entries]) -> Vec<(String, Ask, Reached)> {
    let mut asks = Vec::new();
    for (s, n) in (0..SERVERS.len()).flat_map(|s| (0..NAMES.len()).map(move |n| (s, n))) {
        let name = exposed_name(&server(s), NAMES[n]);
        let call = Ask::Tool { name: name.clone(), arguments: None };
        asks.push((format!("tool {name}"), call, model::tool(world, narrows, s, n)));
        let prompt = model::prompt(world, narrows, s, n);
        asks.push((format!("prompt {name}"), Ask::Prompt { name: name.clone() }, prompt));
        asks.push((format!("complete {name}"), Ask::CompletePrompt { name }, prompt));
    }
    for uri in URIS.iter().copied().chain(["a://7", "b://7", "b://x/7", "c://1"]) {
        let read = Ask::Resource { uri: uri.to_owned() };
        asks.push((format!("uri {uri}"), read, model::uri(world, narrows, uri)));
    }
    for (at, template) in TEMPLATES.iter().enumerate() {
        let complete = Ask::CompleteTemplate { template: (*template).to_owned() };
        let reached = model::template(world, narrows, at);
        asks.push((format!("template {template}"), complete, reached));
    }
    asks
}

fn reached(scope: &Scope, ask: &Ask) -> Reached {
    let at = |name: &ServerName| SERVERS.iter().position(|s| *s == name.as_str()).unwrap();
    match decide(scope, &scope.all, ask.clone(), &Usage::default()) {
        Decision::Run(permit) => Some((at(permit.target().server()), "run")),
        Decision::Park(request) => Some((at(&request.tool.server), "park")),
        Decision::Refuse(_) => None,
    }
}

/// True if the agent is shown what it asks for. A URI is shown by a list or by a template.
fn listed(scope: &Scope, ask: &Ask) -> bool {
    let view = &scope.all;
    match ask {
        // Not of a view: the policy of the agent alone says so.
        Ask::Permission { .. } => scope.agent.permission_prompt.is_some(),
        Ask::Tool { name, .. } => view.tools_json.contains(&format!("\"name\":{}", quote(name))),
        Ask::Prompt { name } | Ask::CompletePrompt { name } => {
            view.prompts_json.contains(&format!("\"name\":{}", quote(name)))
        }
        Ask::Resource { uri } => view.resources_json.contains(&format!("\"uri\":{}", quote(uri))),
        Ask::CompleteTemplate { template } => {
            view.templates_json.contains(&format!("\"uriTemplate\":{}", quote(template)))
        }
    }
}

/// Cases of each law; `PORTCULLIS_LAW_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PORTCULLIS_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}
