//! Sessions of the legacy era: whose they are, how long they last, what ends them.

use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Offer, Upstream};
use reqwest::Response;
use std::time::{Duration, SystemTime};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

async fn open() -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get"])).await;
    let agent = |name: &str| {
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n    - {{server: crm, allow: [get], autoApprove: [get]}}\n---\n"
        )
    };
    let policy = format!(
        "{}{}apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        agent("support"),
        agent("other"),
        upstream.url
    );
    (house(&policy).await, upstream)
}

async fn send(
    house: &House,
    (agent, path): (&str, &str),
    id: Option<&str>,
    body: &str,
) -> Response {
    let mut request = reqwest::Client::new()
        .post(format!("{}{path}", house.agents))
        .bearer_auth(house.token(agent))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.to_owned());
    if let Some(id) = id {
        request = request.header("mcp-session-id", id);
    }
    request.send().await.unwrap()
}

async fn session(house: &House, agent: &str) -> String {
    let answer = send(house, (agent, "/mcp"), None, INITIALIZE).await;
    answer.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

/// Status and body of a list asked for in a session of `/mcp`.
async fn list(house: &House, agent: &str, id: &str) -> (u16, String) {
    let answer = send(house, (agent, "/mcp"), Some(id), LIST).await;
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn end(house: &House, agent: &str, id: &str) -> u16 {
    let request = reqwest::Client::new()
        .delete(format!("{}/mcp", house.agents))
        .bearer_auth(house.token(agent))
        .header("mcp-session-id", id);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_survives_a_restart_of_the_gateway() {
    let (house, _upstream) = open().await;
    let (used, unused) = (session(&house, "support").await, session(&house, "support").await);
    assert_eq!(list(&house, "support", &used).await.0, 200);
    let house = House::from(house.stop().await).await.unwrap();
    for id in [used, unused] {
        let (status, body) = list(&house, "support", &id).await;
        assert!(status == 200 && body.contains("crm__get"), "{status} {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_session_answers_as_one_that_never_was() {
    let (house, _upstream) = open().await;
    let own = session(&house, "support").await;
    let ended = session(&house, "other").await;
    assert_eq!(end(&house, "other", &ended).await, 204);
    let never = list(&house, "other", "ses_00000000000000000000000000000000").await;
    assert_eq!(never.0, 404);
    let mut changed = own.clone();
    changed.replace_range(40..41, if own.get(40..41) == Some("A") { "B" } else { "A" });
    for id in [own.as_str(), &ended, &changed, "x", &"A".repeat(5_000)] {
        assert_eq!(list(&house, "other", id).await, never, "{id}");
    }
    assert_eq!(end(&house, "other", &own).await, 404, "nor can it be ended");
    let elsewhere = send(&house, ("support", "/a/support/mcp"), Some(&own), LIST).await;
    assert_eq!((elsewhere.status().as_u16(), elsewhere.text().await.unwrap()), never);
    assert_eq!(list(&house, "support", &own).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_stays_ended() {
    let (house, _upstream) = open().await;
    let id = session(&house, "support").await;
    let never = list(&house, "support", "x").await;
    assert_eq!(end(&house, "support", &id).await, 204);
    assert_eq!(list(&house, "support", &id).await, never);
    assert_eq!(end(&house, "support", &id).await, 404);
    let house = House::from(house.stop().await).await.unwrap();
    assert_eq!(list(&house, "support", &id).await, never, "also after a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_change_while_the_gateway_runs() {
    let (house, _upstream) = open().await;
    let file = house.folder.path().join("state/keys/seal.json");
    let first = session(&house, "support").await;
    assert_eq!(list(&house, "support", &first).await.0, 200);
    portcullis::seal::rotate(&file, SystemTime::now()).unwrap();
    // A new key is in force when a new session no longer begins with the id of the old one.
    let key = |id: &str| id.get(..6).unwrap().to_owned();
    let second = eventually(async || {
        let id = session(&house, "support").await;
        (key(&id) != key(&first)).then_some(id)
    })
    .await;
    assert_eq!(list(&house, "support", &first).await.0, 200, "the former key still opens");
    assert_eq!(list(&house, "support", &second).await.0, 200);
    portcullis::seal::rotate(&file, SystemTime::now()).unwrap();
    let never = eventually(async || {
        let answer = list(&house, "support", &first).await;
        (answer.0 != 200).then_some(answer)
    })
    .await;
    assert_eq!(never, list(&house, "support", "x").await);
    assert_eq!(list(&house, "support", &second).await.0, 200);
}

/// What `look` finds at last, within ten seconds.
async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen")
}
