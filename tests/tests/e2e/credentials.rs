//! Who may do what, cell for cell; and credentials that come and go while the gateway runs.

mod cells;
mod command;
mod file;

use portcullis_policy::canonical::Digest;
use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::house::{House, token};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

async fn open_with(spec: &str) -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    (House::start(&policy(&upstream.url), spec).await, upstream)
}

fn policy(url: &str) -> String {
    let agent = |name: &str| {
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n    - {{server: crm, allow: [get, refund], autoApprove: [get]}}\n---\n"
        )
    };
    format!(
        "{}{}apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n",
        agent("support"),
        agent("other")
    )
}

fn refund(agent: &Agent, amount: u32) -> JoinHandle<Result<Answer, String>> {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call("crm__refund", json!({"amount": amount})).await })
}

async fn make(house: &House, body: Value) -> (String, String) {
    let (status, made) = house.api("POST", "/v1/tokens", Some(body)).await;
    assert_eq!(status, 201, "{made}");
    (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

/// Opens a stream that stays open until the gateway closes it.
async fn stream(agent: &Agent, house: &House, token: &str) -> JoinHandle<()> {
    let http = reqwest::Client::new();
    let request = match agent.session() {
        Some(_) => {
            let mut request = http.get(house.url("support")).header("accept", "text/event-stream");
            for (name, value) in agent.headers() {
                request = request.header(name, value);
            }
            request
        }
        None => {
            let params = agent.with_meta(r#"{"notifications":{"toolsListChanged":true}}"#);
            http.post(house.url("support"))
                .header("accept", "application/json, text/event-stream")
                .header("content-type", "application/json")
                .header("mcp-protocol-version", portcullis_tests::agent::MODERN)
                .header("mcp-method", "subscriptions/listen")
                .body(format!(
                    r#"{{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{params}}}"#
                ))
        }
    };
    let response = request.bearer_auth(token).send().await.unwrap();
    assert_eq!(response.status(), 200);
    tokio::spawn(async move {
        response.text().await.unwrap();
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_closes_what_is_open_on_it() {
    for speaks in [Speaks::Modern, Speaks::Legacy("2025-11-25")] {
        let (house, upstream) = open_with("").await;
        let (id, secret) = make(&house, json!({"agent": "support", "note": "for a test"})).await;
        let agent = Agent::connect(&house.url("support"), &secret, speaks.clone()).await.unwrap();
        let open = stream(&agent, &house, &secret).await;
        let held = refund(&agent, 3);
        let cards = house.parked(1).await;
        assert!(!open.is_finished());
        let (status, gone) = house.api("DELETE", &format!("/v1/tokens/{id}"), None).await;
        assert_eq!((status, &gone["state"]), (200, &json!("revoked")));
        // Within a second, and in fact before the answer to the revocation.
        tokio::time::timeout(Duration::from_secs(1), open).await.expect("still open").unwrap();
        let told = tokio::time::timeout(Duration::from_secs(1), held).await.expect("still held");
        let told = told.unwrap().unwrap();
        assert!(told.says().contains("its credential was revoked"), "{}", told.text);
        let path = format!("/v1/approvals/{}", cards[0]["id"].as_str().unwrap());
        assert_eq!(house.api("GET", &path, None).await.1["state"], "stopped");
        assert_eq!(house.decide(&cards[0], "approve", None).await.0, 409);
        assert_eq!(agent.request("tools/list", json!({})).await.unwrap().status, 401);
        assert!(upstream.calls("refund").is_empty());
        // The agent's other token is not touched.
        house.agent("support", speaks).await;
        let (_, list) = house.api("GET", "/v1/tokens", None).await;
        assert!(list.to_string().contains("for a test") && !list.to_string().contains(&secret));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_closes_what_is_open_on_it() {
    let (house, _upstream) = open_with("").await;
    let (_, secret) = make(&house, json!({"agent": "support", "expires": "2s"})).await;
    let agent = Agent::connect(&house.url("support"), &secret, Speaks::Modern).await.unwrap();
    let open = stream(&agent, &house, &secret).await;
    let held = refund(&agent, 3);
    tokio::time::timeout(Duration::from_secs(5), open).await.expect("still open").unwrap();
    let told = tokio::time::timeout(Duration::from_secs(1), held).await.expect("still held");
    assert!(told.unwrap().unwrap().says().contains("its credential expired"));
    assert_eq!(agent.request("tools/list", json!({})).await.unwrap().status, 401);
    for expires in ["yesterday", "0s", "2020-01-01T00:00:00Z"] {
        let body = json!({"agent": "support", "expires": expires});
        assert_eq!(house.api("POST", "/v1/tokens", Some(body)).await.0, 400, "{expires}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_replaced_without_losing_what_waits() {
    let (house, upstream) = open_with("  approval: {hold: {default: 200ms}}\n").await;
    let (old, secret) = make(&house, json!({"agent": "support"})).await;
    let agent = Agent::connect(&house.url("support"), &secret, Speaks::Modern).await.unwrap();
    assert!(refund(&agent, 6).await.unwrap().unwrap().says().contains("did NOT run"));
    let cards = house.parked(1).await;
    let body = json!({"agent": "support", "replaces": old, "overlap": "2s"});
    let (_, fresh) = make(&house, body).await;
    let new = Agent::connect(&house.url("support"), &fresh, Speaks::Modern).await.unwrap();
    // Both count for a while, and both are the same run: the repeat is the same call.
    assert_eq!(agent.request("tools/list", json!({})).await.unwrap().status, 200);
    assert!(refund(&new, 6).await.unwrap().unwrap().says().contains("did NOT run"));
    assert_eq!(house.parked(1).await[0]["id"], cards[0]["id"]);
    let mut status = 200;
    for _ in 0..100 {
        status = agent.request("tools/list", json!({})).await.unwrap().status;
        if status == 401 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status, 401, "the old token still counts after its overlap");
    house.parked(1).await;
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    assert_eq!(refund(&new, 6).await.unwrap().unwrap().says(), r#"{"amount":6}"#);
    assert_eq!(upstream.calls("refund").len(), 1);
    for (body, status) in [
        (json!({"agent": "other", "replaces": old}), 409),
        (json!({"agent": "support", "replaces": "tok_nothing"}), 404),
        (json!({"agent": "support", "overlap": "1h"}), 400),
        (json!({"agent": "nobody"}), 404),
        (json!({"admin": "zoe", "role": "king"}), 400),
        (json!({"admin": "operator", "role": "viewer"}), 409),
        (json!({"admin": "zoe", "role": "harness"}), 400),
        (json!({"agent": "support", "admin": "zoe"}), 400),
    ] {
        assert_eq!(house.api("POST", "/v1/tokens", Some(body.clone())).await.0, status, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_survive_a_restart_and_none_is_kept_in_the_clear() {
    let (house, _upstream) = open_with("").await;
    let (_, live) = make(&house, json!({"agent": "support"})).await;
    let (id, gone) = make(&house, json!({"agent": "support"})).await;
    let (_, admin) = make(&house, json!({"admin": "zoe", "role": "approver"})).await;
    let run = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
    let run = run["token"].as_str().unwrap().to_owned();
    assert_eq!(house.api("DELETE", &format!("/v1/tokens/{id}"), None).await.0, 200);
    let house = House::from(house.stop().await).await.unwrap();
    let url = house.url("support");
    assert!(Agent::connect(&url, &live, Speaks::Modern).await.is_ok());
    assert!(Agent::connect(&url, &gone, Speaks::Modern).await.is_err());
    assert!(Agent::connect(&url, &run, Speaks::Modern).await.is_ok());
    assert_eq!(house.api_as(&admin, "GET", "/v1/approvals", None).await.0, 200);
    let state = house.folder.path().join("state");
    for (file, bytes) in files(&state) {
        for secret in [&live, &gone, &admin, &run] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} holds a token", file.display());
        }
    }
}

fn files(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_never_lengthens_and_a_name_is_free_again() {
    let (house, _upstream) = open_with("").await;
    let (old, secret) = make(&house, json!({"agent": "support", "expires": "2s"})).await;
    make(&house, json!({"agent": "support", "replaces": old, "overlap": "1h"})).await;
    let agent = Agent::connect(&house.url("support"), &secret, Speaks::Modern).await.unwrap();
    make(&house, json!({"admin": "zoe", "role": "viewer", "expires": "1s"})).await;
    let again = json!({"admin": "zoe", "role": "approver"});
    assert_eq!(house.api("POST", "/v1/tokens", Some(again.clone())).await.0, 409);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(agent.request("tools/list", json!({})).await.unwrap().status, 401);
    make(&house, again).await;
}
