//! The policy cases, straight into the policy and over the wire: they must agree.

use portcullis_policy::catalogue::{Catalogue, Offer, Status, ToolOffer};
use portcullis_policy::decide::{Ask, Decision, Reason, Usage, decide};
use portcullis_policy::diagnostic::Severity;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::name::{AgentName, ServerName};
use portcullis_policy::scope::Scope;
use portcullis_policy::source::{SourceFile, read};
use portcullis_tests::agent::Speaks;
use portcullis_tests::corpus::{Case, cases};
use portcullis_tests::house::House;
use portcullis_tests::upstream::{self, Upstream};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn the_corpus_holds_in_the_policy() {
    let all = cases();
    assert!(all.len() >= 10, "the corpus is gone");
    for case in all {
        pure(&case);
    }
}

fn pure(case: &Case) {
    let text = case.policy_with(|_| "http://127.0.0.1:1/mcp".to_owned());
    let file = SourceFile { name: "case.yaml".into(), text: &text };
    let (definition, findings) = read(&[file]);
    let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{}: {errors:?}", case.name);
    let mut catalogue = Catalogue::default();
    for (name, offered) in &case.servers {
        let tools = offered.tools.iter().map(|tool| {
            Arc::new(ToolOffer::parse(&upstream::tool(tool), JsonLimits::default()).unwrap())
        });
        let offer = if offered.up {
            Offer { status: Status::Ready, tools: tools.collect(), ..Offer::default() }
        } else {
            let status = Status::Unreachable { since_ms: 0, reason: "down".to_owned() };
            Offer { status, ..Offer::default() }
        };
        catalogue.servers.insert(ServerName::new(name).unwrap(), Arc::new(offer));
    }
    let agent = &definition.agents[&AgentName::new(&case.agent).unwrap()];
    let (scope, diagnostics) = Scope::resolve(agent, &definition, &catalogue, 1);
    for (name, expected) in &case.calls {
        if ["approval_status", "search"].contains(&name.as_str()) {
            continue;
        }
        let ask = Ask::Tool { name: name.clone(), arguments: None };
        let verdict = match decide(&scope, &scope.all, ask, &Usage::default()) {
            Decision::Run(_) => "run".to_owned(),
            Decision::Park(_) => "park".to_owned(),
            Decision::Refuse(refusal) => format!("refuse {}", refusal.reason.as_str()),
        };
        assert_eq!(&verdict, expected, "{}: {name}", case.name);
    }
    let mut codes: Vec<_> = diagnostics.iter().map(|d| d.code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes, case.diagnostics, "{}: {diagnostics:?}", case.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_corpus_holds_over_the_wire_in_both_eras() {
    for case in cases() {
        over_the_wire(&case).await;
    }
}

async fn over_the_wire(case: &Case) {
    let mut upstreams = BTreeMap::new();
    for (name, offered) in &case.servers {
        if offered.up {
            let tools: Vec<&str> = offered.tools.iter().map(String::as_str).collect();
            upstreams.insert(name.clone(), Upstream::start(upstream::Offer::tools(&tools)).await);
        }
    }
    let url = |name: &str| {
        upstreams.get(name).map_or("http://127.0.0.1:9/mcp".to_owned(), |u| u.url.clone())
    };
    let spec = "  approval: {hold: {default: 0s}}\n";
    let house = House::start(&case.policy_with(url), spec).await;
    for speaks in [Speaks::Modern, Speaks::Legacy("2025-11-25"), Speaks::Legacy("2025-03-26")] {
        let agent = house.agent(&case.agent, speaks.clone()).await;
        let at = format!("{} ({speaks:?})", case.name);
        if let Some(sees) = &case.sees {
            assert_eq!(&agent.tools().await.unwrap(), sees, "{at}");
        }
        for (name, expected) in &case.calls {
            let answer = agent.call(name, json!({"speaks": format!("{speaks:?}")})).await.unwrap();
            let said = answer.says();
            assert_eq!(answer.status, 200, "{at} {name}");
            let verdict = match said.as_str() {
                text if text.contains("did NOT run") => "park",
                text if text.contains("is not available to agent") => "refuse",
                text if text.contains("is granted to you but not there") => "refuse missing",
                _ if answer.is_error() => "error",
                _ => "run",
            };
            assert!(
                expected.starts_with(verdict),
                "{at} {name}: expected {expected}, got {}",
                answer.text
            );
        }
    }
    audit_tells_hidden_from_unknown(case, &house);
}

// The agent gets the same bytes; only the audit knows which it was.
fn audit_tells_hidden_from_unknown(case: &Case, house: &House) {
    let lines = house.audit();
    for (name, expected) in &case.calls {
        let Some(reason) = expected.strip_prefix("refuse ") else { continue };
        let found = lines.iter().any(|line| {
            line["asked"] == json!(name)
                && line["outcome"] == "refused"
                && line["reason"] == json!(reason)
        });
        assert!(found, "{}: no audit line says that {name} was refused as {reason}", case.name);
    }
    assert!([Reason::Hidden, Reason::Unknown].iter().all(|r| !r.as_str().is_empty()));
}
