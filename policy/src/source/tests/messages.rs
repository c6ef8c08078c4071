//! Every message that a policy author can meet, in one snapshot.

use super::{agent, said, server};
use std::fmt::Write;

fn page(cases: &[(&str, String)]) -> String {
    let mut page = String::new();
    for (title, text) in cases {
        writeln!(page, "# {title}\n{}", said(text)).unwrap();
    }
    page
}

fn tools(entry: &str) -> String {
    agent(&format!(
        "tools:\n- server: crm\n{}",
        entry.lines().fold(String::new(), |all, line| { all + "  " + line + "\n" })
    ))
}

#[test]
fn yaml() {
    let cases = [
        ("empty file", String::new()),
        ("only a comment", "# nothing\n".to_owned()),
        ("empty document", format!("{}---\n", agent("tools: []"))),
        ("list at the root", "- a\n- b\n".to_owned()),
        ("a text at the root", "hello\n".to_owned()),
        ("half written flow", "apiVersion: portcullis.dev/v1\nspec: {a: [b,\n".to_owned()),
        ("half written block", "apiVersion: portcullis.dev/v1\nkind: Agent\n".to_owned()),
        ("half written key", "apiVersion: portcullis.dev/v1\nkin".to_owned()),
        ("half written quote", "apiVersion: \"portcullis".to_owned()),
        ("byte order mark", "\u{feff}kind: Agent\n".to_owned()),
        ("byte order mark inside", "kind: Agent\n\u{feff}spec: {}\n".to_owned()),
        ("tab", "spec:\n\ttools: []\n".to_owned()),
        ("anchor and alias", "a: &x [1]\nb: *x\n".to_owned()),
        ("unquoted star", tools("allow: *")),
        ("unquoted pattern", tools("allow: [*_item]")),
        ("merge key", "a: {<<: {b: c}}\n".to_owned()),
        ("tag", "a: !!str b\n".to_owned()),
        ("directive", "%YAML 1.2\na: b\n".to_owned()),
        ("key twice", "a: 1\nb: 2\na: 3\n".to_owned()),
        ("null", "a:\nb: ~\nc: [x, null]\n".to_owned()),
        ("null key", ": a\n".to_owned()),
        ("list as key", "[a]: b\n".to_owned()),
        ("deep", format!("a: {}", "[".repeat(40))),
        ("document end and another", agent("tools: []") + "...\n" + &agent("tools: []")),
    ];
    insta::assert_snapshot!(page(&cases));
}

#[test]
fn documents() {
    let cases = [
        ("foreign apiVersion", agent("tools: []").replace("portcullis.dev/v1", "kagent.dev/v1")),
        ("kind in lower case", agent("tools: []").replace("Agent", "agent")),
        ("unknown kind", agent("tools: []").replace("Agent", "Role")),
        ("no apiVersion", "kind: Agent\nmetadata: {name: a}\nspec: {tools: []}\n".to_owned()),
        ("misspelt top key", agent("tools: []").replace("metadata", "metdata")),
        ("misspelt metadata", agent("tools: []").replace("name:", "nam:")),
        ("labels", agent("tools: []").replace("{name", "{labels: {a: b}, name")),
        ("bad name", agent("tools: []").replace("support", "a b")),
        ("reserved server", server("stdio: {command: x}").replace("crm", "Portcullis")),
        ("tools missing", agent("description: x")),
        ("tools is text", agent("tools: \"*\"")),
        ("tools is a mapping", agent("tools: {server: crm}")),
        ("spec is a list", agent("- tools")),
        ("name is a number", agent("tools: []").replace("support", "7")),
        ("name is a list", agent("tools: []").replace("support", "[a]")),
    ];
    insta::assert_snapshot!(page(&cases));
}

#[test]
fn grants() {
    let cases = [
        ("misspelt key", tools("allow: []\nautoAprove: []")),
        ("key of another system", tools("allow: []\nrequireApproval: true")),
        ("allow missing", tools("autoApprove: []")),
        ("allow is one name", tools("allow: refund")),
        ("allow is a number", tools("allow: 5")),
        ("allow is a mapping", tools("allow: {tool: a}")),
        ("star in a list", tools("allow: [\"*\", a]")),
        ("a number in a list", tools("allow: [1]")),
        ("empty pattern", tools("allow: [\"\"]")),
        ("a pattern that can match nothing", tools("allow: [\"crm refund\"]")),
        ("pattern twice", tools("allow: [refund, Refund]")),
        ("too many", tools(&format!("allow: [{}]", "a, ".repeat(1_001)))),
        ("condition", tools("allow: [a]\nautoApprove: [{tool: a, when: args.x < 5}]")),
        ("condition without when", tools("allow: [a]\nautoApprove: [{tool: a}]")),
        ("condition misspelt", tools("allow: [a]\nautoApprove: [{tool: a, wen: x}]")),
        ("autoApprove outside allow", tools("allow: [get_*]\nautoApprove: [refund, get_one]")),
        ("deny", tools("allow: \"*\"\ndeny: [delete_all]")),
        ("deny outside allow", tools("allow: [a]\ndeny: [b]")),
        ("deny all", tools("allow: \"*\"\ndeny: \"*\"")),
        ("resources as text", tools("allow: []\nresources: \"*\"")),
        ("resource with a space", tools("allow: []\nresources: [\"crm://a b\"]")),
        ("secret", tools("allow: []\nsecret: [\"\"]")),
        ("neither server nor subAgent", agent("tools:\n- allow: []")),
        ("server twice", agent("tools:\n- {server: crm, allow: []}\n- {server: CRM, allow: []}")),
        (
            "server misspelt",
            tools("allow: []") + "---\n" + &server("stdio: {command: x}").replace("crm", "crn"),
        ),
        (
            "subAgent without description",
            agent("tools:\n- subAgent: {name: a, templateRef: {name: b}}"),
        ),
        (
            "subAgent with allow",
            agent(
                "tools:\n- subAgent: {name: a, description: d, templateRef: {name: support}}\n  allow: []",
            ),
        ),
        (
            "subAgent with an empty description",
            agent("tools:\n- subAgent: {name: a, description: \"\", templateRef: {name: support}}"),
        ),
        (
            "cycle",
            agent("tools:\n- subAgent: {name: a, description: d, templateRef: {name: support}}"),
        ),
        (
            "no such agent",
            agent("tools:\n- subAgent: {name: a, description: d, templateRef: {name: suport}}"),
        ),
        (
            "subAgent twice",
            agent(
                "tools:\n- subAgent: {name: a, description: d, templateRef: {name: b}}\n- subAgent: {name: a, description: d, templateRef: {name: c}}",
            ),
        ),
    ];
    insta::assert_snapshot!(page(&cases));
}

#[test]
fn values() {
    let with = |rest: &str| agent(&format!("tools: []\n{rest}"));
    let cases = [
        ("expose", with("expose: drect")),
        ("expose yes", with("expose: yes")),
        ("no unit", with("approval: {decideWithin: 30}")),
        ("unknown unit", with("approval: {decideWithin: 30min}")),
        ("no number", with("approval: {decideWithin: soon}")),
        ("fraction", with("approval: {decideWithin: 1.5h}")),
        ("too short", with("approval: {decideWithin: 10ms}")),
        ("too long", with("approval: {hold: 2h}")),
        ("a timeout that approves", with("approval: {onTimeout: approve}")),
        ("nobody approves", with("approval: {approvers: []}")),
        ("unknown approver", with("approval: {approvers: [humans]}")),
        ("approver twice", with("approval: {approvers: [human, human]}")),
        ("approvers as text", with("approval: {approvers: human}")),
        ("onNoApprover", with("approval: {onNoApprover: approve}")),
        ("limit of zero", with("limits: {callsPerMinute: 0}")),
        ("octal", with("limits: {callsPerMinute: 010}")),
        ("text as limit", with("limits: {parkedCalls: many}")),
        ("limits not built", with("limits: {callsPerDay: 5}")),
        ("permissionPrompt", with("permissionPrompt: maybe")),
        ("long description", with(&format!("description: {}", "x".repeat(5_000)))),
    ];
    insta::assert_snapshot!(page(&cases));
}

#[test]
fn servers() {
    let http = |url: &str| server(&format!("http: {{url: \"{url}\"}}"));
    let header =
        |header: &str| server(&format!("http:\n  url: https://a/\n  headers:\n    {header}"));
    let stdio = |rest: &str| server(&format!("stdio: {{command: x, {rest}}}"));
    let cases = [
        ("no transport", server("enabled: true")),
        ("two transports", server("http: {url: https://a/}\nstdio: {command: x}")),
        ("sse", server("sse: {url: https://a/}")),
        ("enabled: yes", server("stdio: {command: x}\nenabled: yes")),
        ("era", server("stdio: {command: x}\nera: modem")),
        ("timeout", server("stdio: {command: x}\ncallTimeout: 500ms")),
        ("timeout without unit", server("stdio: {command: x}\ncallTimeout: 30")),
        ("pin", server("stdio: {command: x}\npin: block")),
        ("pin unknown", server("stdio: {command: x}\npin: wran")),
        ("no scheme", http("crm.example")),
        ("no host", http("https:///mcp")),
        ("user in the URL", http("https://me:secret@crm.example")),
        ("fragment", http("https://a/#b")),
        ("placeholder", http("https://${HOST}/")),
        ("port", http("https://a:70000/")),
        ("space", http("https://a/b c")),
        ("header of the gateway", header("Host: a")),
        ("header twice", header("X-A: a\n    x-a: b")),
        ("header name", header("\"a b\": c")),
        ("header value", header("X-A: \"a\\nb\"")),
        ("header number", header("X-A: 5")),
        ("token in the file", header("Authorization: Bearer abc")),
        ("both sources", header("X-A: {fromEnv: A, fromFile: b}")),
        ("no source", header("X-A: {prefix: b}")),
        ("misspelt source", header("X-A: {fromEnvironment: b}")),
        ("variable", header("X-A: {fromEnv: 1-A}")),
        ("command line", server("stdio: {command: npx -y thing}")),
        ("empty command", server("stdio: {command: \"\"}")),
        ("args as text", stdio("args: -y")),
        ("env name", stdio("env: {A-B: c}")),
        ("env as list", stdio("env: [A=b]")),
        ("nul", stdio("args: [\"a\\0b\"]")),
    ];
    insta::assert_snapshot!(page(&cases));
}
