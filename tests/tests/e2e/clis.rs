//! Claude Code, Codex and opencode, unmodified, on a scripted model, through the gateway.

use crate::patience::tap::{Tap, Who};
use portcullis_tests::driver::{program, repository};
use portcullis_tests::house::{Folder, House};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What they say about themselves: `clientInfo.name` and the product in `User-Agent`.
const NAMES: [(&str, &str); 3] = [
    ("claude-code", "claude-code"),
    ("codex-mcp-client", "codex-mcp-client"),
    ("opencode", "opencode"),
];

pub(crate) async fn quickstart() -> House {
    quickstart_with("").await
}

async fn quickstart_with(spec: &str) -> House {
    let agents = include_str!("../../../config/quickstart/policy/agents.yaml");
    let servers = include_str!("../../../config/quickstart/policy/servers.yaml");
    let house = House::start(&format!("{agents}\n---\n{servers}"), spec).await;
    for _ in 0..300 {
        let view = house.api("GET", "/v1/agents/support", None).await.1;
        if view["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
            return house;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "the demo servers did not come up: {}",
        house.api("GET", "/v1/diagnostics", None).await.1
    );
}

fn bin() -> PathBuf {
    program("claude").parent().unwrap().to_path_buf()
}

/// Runs one command line on one script; returns its verdict.
pub(crate) async fn run(client: &str, script: &str, arguments: &[String]) -> Value {
    let out = Folder::new();
    let clis = repository().join("tests/clis");
    let output = Command::new("python3")
        .arg(clis.join("run"))
        .arg(client)
        .arg("--script")
        .arg(clis.join("scripts").join(script))
        .args(arguments)
        .arg("--bin")
        .arg(bin())
        .arg("--out")
        .arg(out.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let verdict: Value = serde_json::from_str(last).unwrap_or(Value::Null);
    assert_eq!(
        verdict["ok"],
        Value::Bool(true),
        "{client} {script}: {last}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    verdict
}

fn to(house: &House, agent: &str) -> Vec<String> {
    vec!["--url".into(), house.url(agent), "--token".into(), house.token(agent)]
}

async fn parked(house: &House) -> Value {
    // A command line takes seconds to start before it calls anything.
    for _ in 0..1200 {
        let (_, list) = house.api("GET", "/v1/approvals?state=parked", None).await;
        if let Some(card) = list["items"].as_array().and_then(|items| items.first()) {
            return card.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the call was never parked");
}

async fn decide(house: &House, decision: &str, reason: Option<&str>) {
    assert_eq!(house.decide(&parked(house).await, decision, reason).await.0, 200);
}

/// Holds a call of `client` past a minute; returns how long it waited, and what the client said
/// about itself.
async fn held(client: &str, wait: Duration) -> (f64, Who) {
    let tap = Tap::open().await;
    let house = quickstart_with(&tap.spec()).await;
    tap.lead_to(&house.agents);
    let mut arguments = vec!["--url".into(), tap.url(&house.url("support"))];
    arguments.extend(["--token".into(), house.token("support"), "--limit".into(), "300".into()]);
    let approves = async {
        let card = parked(&house).await;
        tokio::time::sleep(wait).await;
        assert_eq!(parked(&house).await["id"], card["id"], "{client} made another card");
        assert_eq!(house.decide(&card, "approve", None).await.0, 200);
    };
    let (verdict, ()) =
        tokio::join!(run(client, "parked_then_approved.json", &arguments), approves);
    assert_eq!(tap.calls("crm__refund"), 1, "{client} repeats the call");
    let intents = house.audit();
    let ran =
        intents.iter().filter(|line| line["kind"] == "intent" && line["tool"] == "refund").count();
    assert_eq!(ran, 1, "{client}");
    (verdict["waits"][0]["seconds"].as_f64().unwrap(), tap.who())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_wait_longer_than_a_minute_and_get_the_answer_itself() {
    let wait = Duration::from_secs(65);
    let waits = tokio::join!(held("claude", wait), held("codex", wait), held("opencode", wait));
    for ((seconds, who), name) in [waits.0, waits.1, waits.2].into_iter().zip(NAMES) {
        assert!(seconds > 65.0, "{name:?} got its answer after {seconds} s");
        assert_eq!(who, Who::new(name.0, name.1, true));
    }
}

async fn all_of(client: &str) {
    let house = quickstart().await;
    run(client, "scoped_list_and_call.json", &to(&house, "support")).await;
    let arguments = to(&house, "support");
    tokio::join!(
        run(client, "parked_then_approved.json", &arguments),
        decide(&house, "approve", None)
    );
    tokio::join!(
        run(client, "parked_then_denied.json", &arguments),
        decide(&house, "deny", Some("over budget this month"))
    );
    let refunds = house.audit();
    let ran =
        refunds.iter().filter(|line| line["kind"] == "intent" && line["tool"] == "refund").count();
    assert_eq!(ran, 1, "one refund was approved and one denied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_works() {
    all_of("claude").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_works() {
    all_of("codex").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_works() {
    all_of("opencode").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claude_code_subagent_has_its_own_tools_and_not_its_parents() {
    let house = quickstart().await;
    let mut arguments = to(&house, "assistant");
    let agents = repository().join("tests/clis/scripts/support.agents.json");
    arguments.extend([
        "--agents".to_owned(),
        agents.display().to_string(),
        "--sub-url".to_owned(),
        house.url("support"),
        "--sub-token".to_owned(),
        house.token("support"),
    ]);
    run("claude", "subagent.json", &arguments).await;
    tokio::join!(
        run("claude", "subagent_parked.json", &arguments),
        decide(&house, "approve", None)
    );
}
