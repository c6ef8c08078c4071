//! What a policy author writes, and what the gateway answers.

use super::*;
use crate::definition::{Expose, Selection, Transport, Value};
use crate::name::{AgentName, ServerName};
use std::fmt::Write;
use std::time::{Duration, Instant};

mod messages;

fn file(text: &str) -> SourceFile<'_> {
    SourceFile { name: "policy.yaml".into(), text }
}

fn codes(text: &str) -> Vec<&'static str> {
    read(&[file(text)]).1.iter().map(|finding| finding.code).collect()
}

/// The one finding of a text, as it is printed.
fn said(text: &str) -> String {
    let (_, found) = read(&[file(text)]);
    let mut said = String::new();
    for finding in found {
        writeln!(said, "{finding}").unwrap();
    }
    said
}

/// An agent whose `spec` has `tools` and ends with `rest`.
fn agent(spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n{spec}"
    )
}

fn server(spec: &str) -> String {
    agent(spec).replace("Agent", "Server").replace("support", "crm")
}

const FULL: &str = r#"# A comment before everything.
apiVersion: portcullis.dev/v1
kind: Agent
metadata: {name: Customer-Service}
spec:
  description: Handles refunds.
  tools:
    - server: crm
      allow: [get_customer, "search_*", refund]
      autoApprove:
        - get_customer
        - "search_*"
      resources: ["crm://customers/*"]
      prompts: []
      secret: [password, "*.token"]
    - server: notion
      allow: "*"
      autoApprove: "*"
    - subAgent: {name: log-searcher, description: Searches logs., templateRef: {name: logs}}
  expose: search
  approval:
    approvers: [human]
    decideWithin: 2h
    useWithin: 90s
    onNoApprover: deny
    onCallerGone: settle
    hold: 50s
  limits: {callsPerMinute: 60, concurrentCalls: 8, parkedCalls: 20}
---
apiVersion: portcullis.dev/v1
kind: Agent
metadata: {name: logs}
spec:
  tools: []
---
apiVersion: portcullis.dev/v1
kind: Server
metadata: {name: CRM}
spec:
  http:
    url: https://crm.example/mcp
    headers: {Authorization: {fromEnv: CRM_TOKEN, prefix: "Bearer "}, X-Tenant: acme}
  callTimeout: 2m
  era: legacy
  pin: warn
---
apiVersion: portcullis.dev/v1
kind: Server
metadata: {name: notion}
spec:
  stdio: {command: npx, args: [-y, notion-mcp, "8080"], env: {KEY: {fromFile: key.txt}}, cwd: tools}
  enabled: false
"#;

#[test]
fn a_whole_file_is_read_with_places() {
    let (set, found) = read(&[file(FULL)]);
    assert_eq!(found, []);
    let agent = &set.agents[&AgentName::new("customer-SERVICE").unwrap()];
    assert_eq!(agent.name.as_str(), "Customer-Service");
    assert_eq!(agent.location.to_string(), "policy.yaml:4:18");
    assert_eq!((agent.expose, agent.description.as_str()), (Expose::Search, "Handles refunds."));
    assert_eq!(agent.approval.decide_within, Duration::from_secs(7_200));
    assert_eq!(agent.approval.hold, Some(Duration::from_secs(50)));
    assert_eq!(agent.limits.calls_per_minute, Some(60));
    let crm = &agent.grants[0];
    assert_eq!(crm.location.to_string(), "policy.yaml:8:7");
    let Selection::Listed(rules) = &crm.allow else { panic!("a list") };
    let places: Vec<String> = rules.iter().map(|rule| rule.location.to_string()).collect();
    assert_eq!(places, ["policy.yaml:9:15", "policy.yaml:9:29", "policy.yaml:9:41"]);
    assert_eq!(crm.resources[0].location.to_string(), "policy.yaml:13:19");
    assert_eq!(crm.secret, ["password", "*.token"]);
    assert!(matches!(&agent.grants[1].allow, Selection::Every(at) if at.line == 17));
    assert_eq!(agent.sub_agents[0].agent, AgentName::new("logs").unwrap());
    assert_eq!(agent.sub_agents[0].location.to_string(), "policy.yaml:19:24");
    assert_eq!(set.agents[&AgentName::new("logs").unwrap()].location.line, 32);
}

#[test]
fn servers_are_read() {
    let (set, _) = read(&[file(FULL)]);
    let crm = &set.servers[&ServerName::new("crm").unwrap()];
    assert_eq!((crm.name.as_str(), crm.call_timeout), ("CRM", Duration::from_secs(120)));
    let Transport::Http { headers, .. } = &crm.transport else { panic!("http") };
    let token = Value::FromEnv { variable: "CRM_TOKEN".into(), prefix: "Bearer ".into() };
    assert_eq!(headers["authorization"], token);
    let notion = &set.servers[&ServerName::new("notion").unwrap()];
    assert!(!notion.enabled);
    let Transport::Stdio { args, env, .. } = &notion.transport else { panic!("stdio") };
    assert_eq!(args, &["-y", "notion-mcp", "8080"]);
    assert_eq!(env["KEY"], Value::FromFile { path: "key.txt".into(), prefix: String::new() });
}

#[test]
fn line_ends_of_windows_change_no_place() {
    let (unix, _) = read(&[file(FULL)]);
    let text = FULL.replace('\n', "\r\n");
    let (windows, found) = read(&[file(&text)]);
    assert_eq!(found, []);
    assert_eq!(format!("{unix:?}"), format!("{windows:?}"));
}

#[test]
fn a_broken_document_hides_no_finding_in_the_next() {
    let text =
        format!("{}---\n{}--- # third\n[\n", agent("tolls: []"), agent("tools: []\nexpos: auto"));
    assert_eq!(codes(&text), ["unknown_key", "unknown_key", "syntax"]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about time")]
fn hostile_sizes_fail_fast() {
    let bomb = {
        let mut text = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (from, to) in "abcdefgh".chars().zip("bcdefghi".chars()) {
            writeln!(text, "{to}: &{to} [{}]", vec![format!("*{from}"); 9].join(",")).unwrap();
        }
        text
    };
    let texts = [
        bomb,
        "[".repeat(10_000),
        format!("{}{}", "{a: ".repeat(10_000), "}".repeat(10_000)),
        (0..10_000).fold(String::new(), |text, depth| text + &" ".repeat(depth % 900) + "a:\n"),
        "- ".repeat(10_000),
        "? ".repeat(10_000),
        "---\n".repeat(100_000),
        "x".repeat(FILE_BYTES_MAX + 1),
        format!("a: {}", "!".repeat(100_000)),
        "&a ".repeat(100_000),
        "a: {".to_owned() + &"null, ".repeat(100_000) + "}",
    ];
    // Ten times as long for a build that is not optimised.
    // Far above what it takes and far below what a blow-up would take.
    let limit = Duration::from_secs(2);
    for text in texts {
        let start = Instant::now();
        let (set, found) = read(&[file(&text)]);
        assert!(start.elapsed() < limit, "{:?}", start.elapsed());
        assert!(set.agents.is_empty() && !found.is_empty() && found.len() <= 66);
    }
}

proptest::proptest! {
    /// Whatever stands in a file, reading ends with an answer, and what is not clean is refused.
    #[test]
    fn any_text_is_answered(cut in 0..FULL.len(), put in ".{0,6}", len in 0..12_usize) {
        let (start, end) = (FULL.floor_char_boundary(cut), FULL.floor_char_boundary(cut + len));
        let (before, after) = (FULL.get(..start).unwrap(), FULL.get(end..).unwrap());
        let text = format!("{before}{put}{after}");
        let (set, found) = read(&[file(&text)]);
        let complete = set.agents.len() == 2 && set.servers.len() == 2;
        proptest::prop_assert!(complete || !found.is_empty(), "{}", text);
    }

    #[test]
    fn half_a_file_is_answered(cut in 0..FULL.len()) {
        let _ = read(&[file(FULL.get(..FULL.floor_char_boundary(cut)).unwrap())]);
    }
}

#[test]
fn a_flood_of_findings_is_cut_and_says_so() {
    let codes = codes(&format!("a: [{}]", "null, ".repeat(100)));
    assert_eq!((codes.len(), codes.last()), (65, Some(&"too_many_findings")));
}

#[test]
fn two_files_cannot_define_one_name() {
    let (a, b) = (agent("tools: []"), agent("tools: []").replace("support", "SUPPORT"));
    let files = [
        SourceFile { name: "a.yaml".into(), text: &a },
        SourceFile { name: "b.yaml".into(), text: &b },
    ];
    let (set, found) = read(&files);
    assert_eq!((set.agents.len(), found.len()), (1, 1));
    assert_eq!(
        found[0].to_string(),
        "b.yaml:3:18: error: agent `SUPPORT` is defined twice (names compare without case), \
         first at a.yaml:3:18; remove or rename one [duplicate_name]"
    );
}

#[test]
fn a_cycle_is_reported_once() {
    let one = |name: &str, child: &str| {
        let tools = format!(
            "tools:\n  - subAgent: {{name: x, description: d, templateRef: {{name: {child}}}}}"
        );
        "---\n".to_owned() + &agent(&tools).replace("support", name)
    };
    let text = one("a", "b") + &one("b", "c") + &one("c", "A") + &one("d", "a") + &one("e", "e");
    assert_eq!(codes(&text), ["agent_cycle", "agent_cycle"]);
    assert_eq!(codes(&one("a", "nobody")), ["agent_not_found"]);
}
