//! The corners of applying a narrow.

mod text;

use super::*;
use crate::catalogue::{Catalogue, EntryOffer, Offer, Status, ToolOffer};
use crate::decide::{Ask, Decision, Usage, decide};
use crate::definition::{Agent, Definition};
use crate::diagnostic::{Diagnostic, Severity};
use crate::json::{JsonLimits, quote};
use crate::name::AgentName;
use crate::scope::{Scope, exposed_name};
use crate::source::{SourceFile, read};
use std::sync::Arc;

struct House {
    agent: Agent,
    definition: Definition,
    catalogue: Catalogue,
}

impl House {
    /// An agent `support` with these entries, and two servers, `crm` and `notes`.
    fn new(tools: &str) -> Self {
        let text = format!(
            r#"{{"apiVersion": "portcullis.dev/v1", "kind": "Agent", "metadata": {{"name": "support"}}, "spec": {{"tools": {tools}}}}}
---
{{"apiVersion": "portcullis.dev/v1", "kind": "Server", "metadata": {{"name": "crm"}}, "spec": {{"http": {{"url": "http://127.0.0.1:1/mcp"}}}}}}
---
{{"apiVersion": "portcullis.dev/v1", "kind": "Server", "metadata": {{"name": "notes"}}, "spec": {{"http": {{"url": "http://127.0.0.1:1/mcp"}}}}}}
"#
        );
        let file = SourceFile { name: "house.yaml".into(), text: &text };
        let (definition, found) = read(&[file]);
        assert!(found.iter().all(|f| f.severity == Severity::Note), "{found:?}");
        let agent = definition.agents[&AgentName::new("support").unwrap()].clone();
        Self { agent, definition, catalogue: Catalogue::default() }
    }

    fn offers(mut self, server: &str, tools: &[&str], uris: &[&str], templates: &[&str]) -> Self {
        let limits = JsonLimits::default();
        let tool = |name: &&str| {
            let json = format!(r#"{{"name":{},"inputSchema":{{}}}}"#, quote(name));
            Arc::new(ToolOffer::parse(&json, limits).unwrap())
        };
        let entry = |key: &'static str| {
            move |value: &&str| {
                let json = format!("{{{}:{}}}", quote(key), quote(value));
                Arc::new(EntryOffer::parse(&json, key, limits).unwrap())
            }
        };
        let offer = Offer {
            status: Status::Ready,
            tools: tools.iter().map(tool).collect(),
            resources: uris.iter().map(entry("uri")).collect(),
            templates: templates.iter().map(entry("uriTemplate")).collect(),
            completes: true,
            ..Offer::default()
        };
        self.catalogue.servers.insert(ServerName::new(server).unwrap(), Arc::new(offer));
        self
    }

    fn narrowed(&self, narrow: &str) -> (Scope, Vec<Diagnostic>) {
        let narrow = Narrow::read(narrow).unwrap();
        let (agent, found) = self.agent.narrowed(&narrow);
        let (scope, more) = Scope::resolve(&agent, &self.definition, &self.catalogue, 1);
        (scope, found.into_iter().chain(more).collect())
    }

    fn whole(&self) -> Scope {
        Scope::resolve(&self.agent, &self.definition, &self.catalogue, 1).0
    }
}

fn names(scope: &Scope) -> Vec<&str> {
    scope.all.tools().map(|(name, _)| name).collect()
}

fn owner<'a>(scope: &'a Scope, uri: &str) -> Option<&'a str> {
    scope.all.resource_owner(uri).map(ServerName::as_str)
}

fn said(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn what_the_agent_does_not_have_is_a_warning_and_no_grant() {
    let house = House::new(
        r#"[{"server": "crm", "allow": ["get_*", "refund"], "deny": ["get_secret"], "autoApprove": ["get_*"], "resources": ["crm://customers/*"], "prompts": ["reply"]}]"#,
    );
    let house = house.offers("crm", &["get_customer", "get_secret", "refund", "wipe"], &[], &[]);
    let (scope, found) = house.narrowed(
        r#"{"tools": [
            {"server": "notes", "allow": "*"},
            {"server": "cmr", "allow": []},
            {"server": "CRM", "allow": ["Refund", "wipe", "get_secret", "g?t_c*", "set_*"],
             "resources": ["crm://customers/1", "CRM://customers/1", "notes://*"], "prompts": ["reply", "other"]}]}"#,
    );
    assert_eq!(names(&scope), ["crm__get_customer", "crm__refund"]);
    assert_eq!(
        said(&found),
        [
            "narrow.tools[0]: warning: agent `support` has no grant for server `notes`, so the run gets nothing of it; remove the entry [narrow_not_granted]",
            "narrow.tools[1]: warning: agent `support` has no grant for server `cmr`, so the run gets nothing of it; remove the entry; did you mean `crm`? [narrow_not_granted]",
            "narrow.tools[2].allow[1]: warning: `wipe` covers no tool that agent `support` is granted on server `crm`, so it gives the run nothing; remove it [narrow_not_granted]",
            "narrow.tools[2].allow[2]: warning: `get_secret` covers no tool that agent `support` is granted on server `crm`, so it gives the run nothing; remove it [narrow_not_granted]",
            "narrow.tools[2].allow[4]: warning: `set_*` covers no tool that agent `support` is granted on server `crm`, so it gives the run nothing; remove it [narrow_not_granted]",
            "narrow.tools[2].resources[1]: warning: `CRM://customers/1` covers no resource that agent `support` is granted on server `crm`, so it gives the run nothing; remove it [narrow_not_granted]",
            "narrow.tools[2].resources[2]: warning: `notes://*` covers no resource that agent `support` is granted on server `crm`, so it gives the run nothing; remove it [narrow_not_granted]",
            "narrow.tools[2].prompts[1]: warning: `other` covers no prompt that agent `support` is granted on server `crm`, so it gives the run nothing; remove it [narrow_not_granted]",
        ]
    );
}

#[test]
fn a_second_narrow_is_warned_of_what_the_first_took_away() {
    let house =
        House::new(r#"[{"server": "crm", "allow": "*"}, {"server": "notes", "allow": "*"}]"#);
    let first = Narrow::read(r#"{"tools":[{"server":"crm","allow":["get_*"]}]}"#).unwrap();
    let (run, found) = house.agent.narrowed(&first);
    assert!(found.is_empty(), "{found:?}");
    let second =
        r#"{"tools":[{"server":"crm","allow":["refund","get_a"]},{"server":"notes","allow":"*"}]}"#;
    let (_, found) = run.narrowed(&Narrow::read(second).unwrap());
    let at: Vec<String> =
        found.iter().filter_map(|f| Some(f.location.as_ref()?.to_string())).collect();
    assert_eq!(at, ["narrow.tools[0].allow[0]", "narrow.tools[1]"]);
    assert!(found.iter().all(|f| f.code == "narrow_not_granted"), "{found:?}");
}

#[test]
fn one_resource_of_a_template_is_read_and_its_siblings_are_not() {
    let house =
        House::new(r#"[{"server": "crm", "allow": [], "resources": ["crm://customers/*"]}]"#);
    let template = "crm://customers/{id}";
    let house = house.offers("crm", &[], &["crm://customers/2"], &[template]);
    let narrow = r#"{"tools":[{"server":"crm","allow":[],"resources":["crm://customers/1"]}]}"#;
    let (scope, _) = house.narrowed(narrow);
    assert_eq!(owner(&scope, "crm://customers/1"), Some("crm"));
    for uri in ["crm://customers/2", "crm://customers/3", "crm://other/1"] {
        assert_eq!(owner(&scope, uri), None, "{uri}");
    }
    assert!(scope.all.template_owner(template).is_none());
    assert_eq!((&*scope.all.resources_json, &*scope.all.templates_json), ("", ""));
    let none = house.narrowed(r#"{"tools":[{"server":"crm","allow":"*"}]}"#).0;
    assert!(!none.all.has_resources() && !none.all.completes());
    assert!(house.whole().all.has_resources() && house.whole().all.completes());
}

#[test]
fn what_belongs_to_another_server_or_to_none_does_not_change_hands() {
    let house = House::new(
        r#"[{"server": "crm", "allow": "*", "resources": ["x://*"]}, {"server": "notes", "allow": "*", "resources": ["x://*"]}]"#,
    );
    let house = house.offers("crm", &[], &["x://both"], &["x://{id}", "x://deep/{id}"]).offers(
        "notes",
        &[],
        &["x://both", "x://mine"],
        &["x://deep/{id}"],
    );
    let whole = house.whole();
    let (scope, _) =
        house.narrowed(r#"{"tools":[{"server":"crm","allow":"*","resources":["*"]}]}"#);
    for (uri, before, after) in [
        ("x://both", None, None),
        ("x://mine", Some("notes"), None),
        ("x://deep/1", None, None),
        ("x://any", Some("crm"), Some("crm")),
    ] {
        assert_eq!((owner(&whole, uri), owner(&scope, uri)), (before, after), "{uri}");
    }
    assert!(scope.all.template_owner("x://deep/{id}").is_none());
    assert!(!scope.all.instructions.contains("notes"), "{}", scope.all.instructions);
}

#[test]
fn two_tools_of_one_exposed_name_stay_hidden_when_one_is_taken_away() {
    // Two names that the gateway renames to one text: their digests begin alike.
    let (one, other) = ("read............///.///.", "read....///././///.////.");
    let crm = ServerName::new("crm").unwrap();
    assert_eq!(exposed_name(&crm, one), exposed_name(&crm, other));
    let house = House::new(r#"[{"server": "crm", "allow": "*"}]"#);
    let house = house.offers("crm", &[one, other, "get"], &[], &[]);
    assert_eq!(names(&house.whole()), ["crm__get"]);
    let narrow = format!(r#"{{"tools":[{{"server":"crm","allow":[{},"get"]}}]}}"#, quote(one));
    let (scope, found) = house.narrowed(&narrow);
    assert_eq!(names(&scope), ["crm__get"]);
    assert_eq!(found.iter().map(|f| f.code).collect::<Vec<_>>(), ["name_collision"]);
    let (_, found) = house.narrowed(r#"{"tools":[{"server":"crm","allow":["get"]}]}"#);
    assert!(found.is_empty(), "{:?}", said(&found));
}

#[test]
fn tools_that_differ_only_in_case_are_spelt_in_a_list_and_covered_by_all() {
    let house = House::new(r#"[{"server": "crm", "allow": ["get"]}]"#);
    let house = House { agent: twins(&house.agent), ..house };
    let house = house.offers("crm", &["get", "GET", "Get"], &[], &[]);
    assert_eq!(names(&house.whole()), ["crm__GET", "crm__get"]);
    let narrow = |allow: &str| {
        house.narrowed(&format!(r#"{{"tools":[{{"server":"crm","allow":{allow}}}]}}"#))
    };
    assert_eq!(names(&narrow(r#""*""#).0), ["crm__GET", "crm__get"]);
    assert_eq!(names(&narrow(r#"["GET"]"#).0), ["crm__GET"]);
    let (scope, found) = narrow(r#"["g*"]"#);
    assert!(names(&scope).is_empty());
    let held = "house.yaml:1:106: warning: tool `get` of server `crm` is held back: another tool differs only in case; spell it exactly in the run's narrow [tool_held_back]";
    assert!(said(&found).iter().any(|text| text == held), "{:?}", said(&found));
}

// A policy file cannot list two spellings of one name, but a definition can.
fn twins(agent: &Agent) -> Agent {
    let mut agent = agent.clone();
    let rule = |text: &str| Rule {
        pattern: crate::pattern::Pattern::new(text),
        location: agent.location.clone(),
    };
    let both = Selection::Listed(vec![rule("get"), rule("GET")]);
    agent.grants[0].allow = both;
    agent
}

#[test]
fn the_rules_of_a_call_stay_those_of_the_agent() {
    let house = House::new(
        r#"[{"server": "crm", "allow": "*", "autoApprove": ["get"], "secret": ["password"]}]"#,
    );
    let house = house.offers("crm", &["get", "refund"], &[], &[]);
    let verdict = |scope: &Scope, name: &str| {
        let ask = Ask::Tool { name: name.to_owned(), arguments: None };
        match decide(scope, &scope.all, ask, &Usage::default()) {
            Decision::Run(_) => "run",
            Decision::Park(_) => "park",
            Decision::Refuse(_) => "refuse",
        }
    };
    let (scope, _) = house.narrowed(r#"{"tools":[{"server":"crm","allow":["refund"]}]}"#);
    assert_eq!((verdict(&scope, "crm__refund"), verdict(&scope, "crm__get")), ("park", "refuse"));
    assert!(scope.all.may_park());
    assert_eq!(scope.all.tool("crm__refund").unwrap().secret, ["password"]);
    assert_eq!((&scope.approval, scope.limits), (&house.agent.approval, house.agent.limits));
    let (quiet, _) = house.narrowed(r#"{"tools":[{"server":"crm","allow":["GET"]}]}"#);
    assert_eq!(verdict(&quiet, "crm__get"), "run");
    assert!(!quiet.all.may_park(), "nothing that is left asks");
}

#[test]
fn what_is_missing_is_named_only_where_it_is_left() {
    let house = House::new(
        r#"[{"server": "crm", "allow": ["get", "refund"]}, {"server": "notes", "allow": ["list"]}]"#,
    );
    let house = house.offers("crm", &["get"], &[], &[]);
    let (scope, found) = house.narrowed(r#"{"tools":[{"server":"crm","allow":["g*"]}]}"#);
    assert!(scope.all.missing.is_empty(), "{:?}", scope.all.missing);
    assert!(found.is_empty(), "{:?}", said(&found));
    assert!(scope.view(Some(&ServerName::new("notes").unwrap())).is_none());
    let (scope, found) = house
        .narrowed(r#"{"tools":[{"server":"crm","allow":["re*"]},{"server":"notes","allow":[]}]}"#);
    let missing: Vec<_> =
        scope.all.missing.iter().map(|m| (m.server.as_str(), m.tool.as_deref())).collect();
    assert_eq!(missing, [("crm", Some("refund")), ("notes", None)]);
    let codes: Vec<_> = found.iter().map(|f| f.code).collect();
    assert_eq!(codes, ["tool_not_offered", "server_missing"]);
}
