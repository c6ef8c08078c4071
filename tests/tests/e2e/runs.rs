//! Runs: started, narrowed, entered, ended with all below them; parents that decide below
//! themselves and nowhere else.

mod ends;
mod parents;

use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Behave, Offer, Upstream};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const ERAS: [Speaks; 2] = [Speaks::Modern, Speaks::Legacy("2025-11-25")];

/// `support` binds `a1`, and `other` binds `a2`; all may do the same.
async fn open_with(upstream: Offer, approval: &str) -> (House, Upstream) {
    let upstream = Upstream::start(upstream).await;
    (house(&policy(&upstream.url, approval)).await, upstream)
}

async fn open() -> (House, Upstream) {
    open_with(Offer::tools(&["get", "refund"]), "").await
}

fn policy(url: &str, approval: &str) -> String {
    let agent = |name: &str, child: &str| {
        let bound = if child.is_empty() {
            String::new()
        } else {
            format!(
                "    - subAgent: {{name: helper, description: Helps out., templateRef: {{name: {child}}}}}\n"
            )
        };
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n    - {{server: crm, allow: [get, refund], autoApprove: [get]}}\n{bound}{approval}---\n"
        )
    };
    format!(
        "{}{}{}{}apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n",
        agent("support", "a1"),
        agent("other", "a2"),
        agent("a1", ""),
        agent("a2", ""),
    )
}

struct Started {
    run: String,
    url: String,
    token: String,
    answer: Value,
}

async fn start(house: &House, body: Value) -> Started {
    let (status, answer) = house.api("POST", "/v1/runs", Some(body)).await;
    assert_eq!(status, 201, "{answer}");
    let member = |name: &str| answer[name].as_str().unwrap().to_owned();
    Started { run: member("run"), url: member("url"), token: member("token"), answer }
}

async fn connect(started: &Started, speaks: Speaks) -> Agent {
    Agent::connect(&started.url, &started.token, speaks).await.unwrap()
}

fn refund(agent: &Agent, amount: u32) -> JoinHandle<Result<Answer, String>> {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call("crm__refund", json!({"amount": amount})).await })
}

fn call(agent: &Agent, name: &'static str, arguments: Value) -> JoinHandle<Result<Answer, String>> {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call(name, arguments).await })
}

async fn status_at(url: &str, token: &str) -> (u16, String) {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
    let request = reqwest::Client::new()
        .post(url)
        .bearer_auth(token)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_has_a_url_a_token_and_less_than_its_agent() {
    let (house, upstream) = open().await;
    let narrow = json!({"tools": [{"server": "CRM", "allow": ["GET"]}]});
    let run = start(&house, json!({"agent": "support", "ttl": "10m", "narrow": narrow})).await;
    assert_eq!(run.url, format!("{}/a/support/r/{}/mcp", house.agents, run.run));
    assert!(run.token.starts_with("pcl_run_") && run.run.starts_with("run_"), "{}", run.answer);
    assert_eq!(run.answer["tools"].as_array().unwrap().len(), 1, "{}", run.answer);
    assert_eq!(run.answer["tools"][0]["name"], "crm__get");
    for speaks in ERAS {
        let agent = connect(&run, speaks).await;
        let tools = agent.tools().await.unwrap();
        assert!(tools.contains(&"crm__get".to_owned()), "{tools:?}");
        assert!(!tools.contains(&"crm__refund".to_owned()), "{tools:?}");
        assert_eq!(agent.call("crm__get", json!({"a": 1})).await.unwrap().says(), r#"{"a":1}"#);
        // What the agent has and the run has not is answered like what does not exist.
        let hidden = agent.call("crm__refund", json!({})).await.unwrap();
        let absent = agent.call("crm__nothing", json!({})).await.unwrap();
        assert!(hidden.is_error() && hidden.says().contains("is not available"), "{}", hidden.text);
        assert_eq!(
            hidden.says().replace("crm__refund", "X"),
            absent.says().replace("crm__nothing", "X")
        );
        assert!(!agent.hello["instructions"].to_string().contains("refund"), "{}", agent.hello);
    }
    assert!(upstream.calls("refund").is_empty());
    // The agent itself has all of it, and may enter the run with its own credential.
    let whole = house.agent("support", Speaks::Modern).await;
    assert!(whole.tools().await.unwrap().contains(&"crm__refund".to_owned()));
    let inside = Agent::connect(&run.url, &house.token("support"), Speaks::Modern).await.unwrap();
    assert!(!inside.tools().await.unwrap().contains(&"crm__refund".to_owned()));
    // A narrowed run starts nobody, unless the narrow leaves it that.
    let inside = connect(&run, Speaks::Modern).await;
    assert!(!inside.tools().await.unwrap().contains(&"run_start".to_owned()));
    let narrow = json!({"tools": [], "subAgents": ["helper"]});
    let starter = start(&house, json!({"agent": "support", "narrow": narrow})).await;
    let starter = connect(&starter, Speaks::Modern).await.tools().await.unwrap();
    assert!(starter.contains(&"run_start".to_owned()), "{starter:?}");
    // What the narrow names and the agent does not have is a finding and no grant.
    let narrow = json!({"tools": [{"server": "billing", "allow": "*"}]});
    let odd = start(&house, json!({"agent": "support", "narrow": narrow})).await;
    assert_eq!(odd.answer["tools"], json!([]));
    assert!(odd.answer["diagnostics"].to_string().contains("billing"), "{}", odd.answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_token_opens_its_own_run_and_nothing_else() {
    let (house, _upstream) = open().await;
    let one = start(&house, json!({"agent": "support"})).await;
    let two = start(&house, json!({"agent": "support"})).await;
    let foreign = start(&house, json!({"agent": "other"})).await;
    let base = &house.agents;
    for path in ["/mcp".to_owned(), "/a/support/mcp".to_owned(), "/a/SUPPORT/s/crm/mcp".to_owned()]
    {
        assert_eq!(status_at(&format!("{base}{path}"), &one.token).await.0, 200, "{path}");
    }
    assert_eq!(status_at(&one.url.replace("/mcp", "/s/crm/mcp"), &one.token).await.0, 200);
    assert_eq!(status_at(&two.url, &one.token).await.0, 404);
    assert_eq!(status_at(&foreign.url, &one.token).await.0, 403);
    assert_eq!(status_at(&format!("{base}/a/other/mcp"), &one.token).await.0, 403);
    // A run of the same name under another agent, one that ended and one that never was.
    let nowhere = format!("{base}/a/support/r/run_aaaaaaaaaaaaaaaaaaaaaaaaaa/mcp");
    let moved = one.url.replace(&one.run, &foreign.run);
    assert_eq!(house.api("DELETE", &format!("/v1/runs/{}", two.run), None).await.0, 200);
    let answers = [
        status_at(&nowhere, &house.token("support")).await,
        status_at(&moved, &house.token("support")).await,
        status_at(&two.url, &house.token("support")).await,
    ];
    assert_eq!(answers[0].0, 404);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(status_at(&two.url, &two.token).await.0, 401);
    for (method, path) in [("GET", "/v1/runs"), ("POST", "/v1/runs"), ("GET", "/v1/approvals")] {
        let body = (method == "POST").then(|| json!({"agent": "support"}));
        assert_eq!(house.api_as(&one.token, method, path, body).await.0, 401, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_narrowed_run_hears_of_its_own_tools_alone() {
    let (house, upstream) = open().await;
    let narrow = json!({"tools": [{"server": "crm", "allow": ["get"]}]});
    let narrowed = start(&house, json!({"agent": "support", "narrow": narrow})).await;
    let whole = start(&house, json!({"agent": "support"})).await;
    let mut streams = Vec::new();
    for run in [&narrowed, &whole] {
        let agent = connect(run, Speaks::Modern).await;
        let params = agent.with_meta(r#"{"notifications":{"toolsListChanged":true}}"#);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{params}}}"#
        );
        let mut headers = agent.headers();
        headers.push(("mcp-method", "subscriptions/listen".to_owned()));
        let mut response = agent.send(&body, &headers).await.unwrap();
        // The acknowledgement is the first event.
        assert!(response.chunk().await.unwrap().is_some());
        streams.push(response);
    }
    // A tool outside the narrow changes.
    let offer = Offer::tools(&["get", "refund"]);
    let tools = offer.tools.replace("Does refund.", "Pays money back.");
    upstream.set(|now| *now = Offer { tools, behave: Behave::Changed, ..offer });
    let other = house.agent("support", Speaks::Modern).await;
    other.call("crm__get", json!({})).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(5), streams[1].chunk()).await;
    let heard = heard.expect("the agent's own run hears nothing").unwrap().unwrap();
    assert!(String::from_utf8_lossy(&heard).contains("tools/list_changed"));
    let silent = tokio::time::timeout(Duration::from_secs(1), streams[0].chunk()).await;
    assert!(silent.is_err(), "{silent:?}");
}
