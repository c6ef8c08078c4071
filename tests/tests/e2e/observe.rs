//! What is seen from outside: health, metrics, audit, and change notifications.

use portcullis_tests::agent::{Speaks, read};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Behave, Offer, Upstream};
use serde_json::{Value, json};
use std::time::Duration;

async fn open() -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let policy = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [\"*et*\", refund], autoApprove: [\"*et*\"]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    );
    (house(&policy).await, upstream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_metrics() {
    let (house, _upstream) = open().await;
    assert_eq!(house.observe("/healthz").await.0, 200);
    assert_eq!(house.observe("/readyz").await.0, 200);
    let agent = house.agent("support", Speaks::Modern).await;
    for n in 0..3 {
        agent.call("crm__get", json!({"n": n})).await.unwrap();
    }
    for evil in ["crm__evil", "x\"} 1\nfake_metric 1", "crm__get\u{0}", "../../etc"] {
        agent.call(evil, json!({})).await.unwrap();
    }
    let held = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.call("crm__refund", json!({})).await })
    };
    house.parked(1).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (status, text) = house.observe("/metrics").await;
    assert_eq!(status, 200);
    let has = |line: &str| assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
    has(r#"portcullis_calls_total{agent="support",server="crm",tool="get",outcome="ok"} 3"#);
    has("portcullis_parked_calls 1");
    has(r#"portcullis_upstream_up{server="crm"} 1"#);
    has(r#"portcullis_refused_total{agent="support",reason="unknown"} 4"#);
    assert!(text.contains("mcp_server_operation_duration_seconds_bucket"), "{text}");
    assert!(
        !text.contains("evil") && !text.contains("fake_metric") && !text.contains("etc"),
        "{text}"
    );
    held.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_has_a_line_for_each_intent_and_each_outcome() {
    let (house, upstream) = open().await;
    let agent = house.agent("support", Speaks::Modern).await;
    agent.call("crm__get", json!({"secret": "value-of-argument"})).await.unwrap();
    agent.call("crm__evil\n{\"seq\":1}", json!({})).await.unwrap();
    upstream.set(|offer| offer.behave = Behave::Close);
    agent.call("crm__get", json!({})).await.unwrap();
    let lines = house.audit();
    let seqs: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    let of = |kind: &str| {
        lines.iter().filter(|line| line["kind"] == kind).cloned().collect::<Vec<Value>>()
    };
    let (intents, outcomes) = (of("intent"), of("outcome"));
    assert_eq!(intents.len(), 2, "a refusal has no intent: {lines:?}");
    let ended: Vec<&str> = outcomes.iter().filter_map(|line| line["outcome"].as_str()).collect();
    assert_eq!(ended, ["ok", "refused", "unknown"]);
    for line in intents.iter().chain(&outcomes) {
        assert_eq!(line["agent"], "support");
        assert!(line["run"].as_str().is_some_and(|run| run.starts_with("run_")), "{line}");
        assert!(line["generation"].as_u64().is_some(), "{line}");
    }
    assert!(intents[0]["arguments"].as_str().is_some_and(|digest| digest.starts_with("sha256:")));
    assert!(!format!("{lines:?}").contains("value-of-argument"), "digests, never values");
    assert_eq!(intents[0]["request"], outcomes[0]["request"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_hear_of_changes_of_their_own_view_alone() {
    let (house, upstream) = open().await;
    let agent = house.agent("support", Speaks::Modern).await;
    let params = agent.with_meta(r#"{"notifications":{"toolsListChanged":true}}"#);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"l-1","method":"subscriptions/listen","params":{params}}}"#
    );
    let mut headers = agent.headers();
    headers.push(("mcp-method", "subscriptions/listen".to_owned()));
    let mut stream = agent.send(&body, &headers).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l-1");
    // A tool that the policy does not cover appears: nothing to hear.
    upstream.set(|offer| {
        offer.behave = Behave::Changed;
        offer.tools = Offer::tools(&["get", "refund", "zzz"]).tools;
    });
    agent.call("crm__get", json!({})).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // One that it covers appears.
    upstream.set(|offer| offer.tools = Offer::tools(&["get", "refund", "zzz", "reset"]).tools);
    agent.call("crm__get", json!({})).await.unwrap();
    let heard = next(&mut stream).await;
    assert_eq!(heard["method"], "notifications/tools/list_changed", "{heard}");
    assert_eq!(heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l-1");
    assert!(agent.tools().await.unwrap().contains(&"crm__reset".to_owned()));
    drop(stream);
    let legacy = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let http = reqwest::Client::new();
    let get = http
        .get(house.url("support"))
        .bearer_auth(house.token("support"))
        .header("accept", "text/event-stream")
        .header("mcp-session-id", legacy.session().unwrap());
    let mut stream = get.send().await.unwrap();
    assert_eq!(stream.status(), 200);
    upstream.set(|offer| offer.tools = Offer::tools(&["get", "refund"]).tools);
    legacy.call("crm__get", json!({})).await.unwrap();
    assert_eq!(next(&mut stream).await["method"], "notifications/tools/list_changed");
    // Stopping ends the streams.
    let ended = tokio::spawn(async move { read(stream).await });
    house.stop().await;
    assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok());
}

/// The next message of an event stream.
async fn next(stream: &mut reqwest::Response) -> Value {
    let mut text = String::new();
    loop {
        let chunk = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await;
        let chunk = chunk.expect("nothing came").unwrap().expect("the stream ended");
        text.push_str(&String::from_utf8_lossy(&chunk));
        if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
            return serde_json::from_str(data).unwrap();
        }
    }
}
