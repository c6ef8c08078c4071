mod desk;

use desk::{Desk, desk};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_card_is_listed_shown_and_approved_on_record() {
    let desk = desk("approve").await;
    let id = desk.park(r#"{"b":1,"a":"x\u202ey"}"#).await;
    let (status, list) = desk.get("operator", "/v1/approvals?state=parked").await;
    assert_eq!(status, 200);
    let card = &list["items"][0];
    assert_eq!(card["id"], id);
    assert_eq!(card["agent"], "support");
    assert_eq!((&card["server"], &card["tool"]), (&json!("crm"), &json!("refund")));
    assert_eq!(card["title"], "Refund an order");
    assert_eq!(card["arguments"], "{\"a\":\"x\u{202e}y\",\"b\":1}");
    assert_eq!(card["argumentsView"]["b"], 1);
    assert_eq!(card["rule"], "policy.yaml:7:3");
    assert!(card["deadline"].as_str().unwrap() > card["created"].as_str().unwrap());
    let short: String = id.chars().take(12).collect();
    assert_eq!(desk.get("viewer", &format!("/v1/approvals/{short}")).await.1["id"], id);
    let body = json!({"decision": "approve", "digest": card["digest"]});
    let (status, decided) = desk.decide("dana", &id, &body).await;
    assert_eq!(status, 200, "{decided}");
    assert_eq!(decided["state"], "approved");
    assert_eq!(decided["decision"]["by"], "dana");
    let records = desk.records();
    let record = records.iter().find(|record| record["kind"] == "decision").unwrap();
    assert_eq!((&record["card"], &record["by"]), (&json!(id), &json!("dana")));
    assert_eq!(record["arguments"], card["digest"]);
    // The same decision again gets the same answer, another one learns what was decided.
    assert_eq!(desk.decide("dana", &id, &body).await.0, 200);
    let (status, settled) = desk.decide("operator", &id, &json!({"decision": "deny"})).await;
    assert_eq!((status, &settled["state"]), (409, &json!("approved")));
    assert_eq!(desk.records().iter().filter(|record| record["kind"] == "decision").count(), 1);
    assert!(desk.metrics().contains(
        "portcullis_decisions_total{agent=\"support\",server=\"crm\",tool=\"refund\",verdict=\"approve\"} 1"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_carries_its_reason() {
    let desk = desk("deny").await;
    let id = desk.park("{}").await;
    let body = json!({"decision": "deny", "reason": "too much"});
    let (status, card) = desk.decide("operator", &id, &body).await;
    assert_eq!((status, &card["state"]), (200, &json!("denied")));
    assert_eq!(card["decision"]["reason"], "too much");
    let (status, _) = desk.decide("operator", &id, &json!({"decision": "deny"})).await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_exactly_a_decision_decides_nothing() {
    let desk = desk("strict").await;
    let id = desk.park("{}").await;
    let digest = portcullis_policy::canonical::Digest::of(b"{}").to_string();
    let other = portcullis_policy::canonical::Digest::of(b"[]").to_string();
    for body in [
        "{}".to_owned(),
        "nonsense".to_owned(),
        r#"{"decision":"yes"}"#.to_owned(),
        r#"{"decision":"approve"}"#.to_owned(),
        format!(r#"{{"decision":"approve","digest":"{other}"}}"#),
        format!(r#"{{"decision":"approve","digest":"{}"}}"#, digest.to_uppercase()),
        format!(r#"{{"decision":"approve","digest":"{digest}","for":"ever"}}"#),
        format!(r#"{{"decision":"deny","decision":"approve","digest":"{digest}"}}"#),
        format!(r#"{{"decision":"approve","digest":"{digest}","reason":"fine"}}"#),
        format!(r#"{{"decision":"deny","reason":"{}"}}"#, "x".repeat(2_001)),
        format!(r#"{{"decision":"deny","digest":"{other}"}}"#),
        format!(r#"{{"decision":"approve","digest":"{digest}"}} {{}}"#),
    ] {
        let (status, answer) = desk.post("operator", &id, &body).await;
        assert_eq!(status, 400, "{body} {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    }
    let large =
        format!(r#"{{"decision":"deny","reason":"{}"}}"#, "x".repeat(super::BODY_BYTES_MAX));
    assert_eq!(desk.post("operator", &id, &large).await.0, 413);
    assert_eq!(desk.decide("operator", "apr_nothing", &json!({"decision": "deny"})).await.0, 404);
    let parked = desk.get("operator", "/v1/approvals?state=parked").await.1;
    assert_eq!(parked["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_may_what_they_may() {
    let desk = desk("roles").await;
    let id = desk.park("{}").await;
    for role in ["viewer", "harness", "stranger"] {
        let (status, _) = desk.decide(role, &id, &json!({"decision": "deny"})).await;
        assert_eq!(status, 403, "{role}");
    }
    assert_eq!(desk.get("harness", &format!("/v1/approvals/{id}")).await.0, 200);
    let (status, unseen) = desk.get("stranger", &format!("/v1/approvals/{id}")).await;
    assert_eq!((status, unseen), desk.get("stranger", "/v1/approvals/apr_nothing").await);
    assert_eq!(status, 404);
    assert_eq!(desk.get("stranger", "/v1/approvals").await.1["items"], json!([]));
    assert_eq!(desk.get("stranger", "/v1/agents").await.1["items"], json!([]));
    assert_eq!(desk.get("stranger", "/v1/agents/support").await.0, 404);
    assert_eq!(desk.get("harness", "/v1/diagnostics").await.0, 403);
    assert_eq!(desk.get("viewer", "/v1/agents").await.1["items"][0]["agent"], "support");
    assert_eq!(desk.get("viewer", "/v1/agents/Support").await.1["agent"], "support");
    let found = desk.get("viewer", "/v1/diagnostics").await.1;
    assert_eq!(found["items"][0]["code"], "server_not_configured");
    assert_eq!(found["items"][0]["line"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_arguments_are_for_those_who_decide() {
    let desk = desk("secret").await;
    desk.park_secret(r#"{"password":"hunter2"}"#).await;
    let (_, list) = desk.get("viewer", "/v1/approvals").await;
    assert!(!list.to_string().contains("hunter2"));
    assert_eq!(list["items"][0]["masked"], true);
    assert!(desk.get("dana", "/v1/approvals").await.1.to_string().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_a_credential_learns_anything() {
    let desk = desk("nobody").await;
    let id = desk.park("{}").await;
    let agent = format!("Bearer pcl_agent_{}", "a".repeat(43));
    for path in ["/v1/approvals", "/v1/agents", "/nothing", &format!("/v1/approvals/{id}")] {
        for header in [None, Some(agent.as_str()), Some("Bearer pcl_admin_x"), Some("Basic eA==")] {
            let request = desk.http.get(format!("{}{path}", desk.url));
            let request = match header {
                Some(header) => request.header("authorization", header),
                None => request,
            };
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{path} {header:?}");
            assert!(response.headers().contains_key("www-authenticate"));
            strict(&response);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_strict_and_foreign_pages_are_refused() {
    let desk = desk("strict-headers").await;
    for (path, status) in [
        ("/v1/approvals", 200),
        ("/v1/nothing", 404),
        ("/v1/approvals?x=1", 400),
        ("/v1/approvals?state=open", 400),
        ("/v1/approvals?cursor=x", 400),
    ] {
        let response = desk.request("operator", "GET", path).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        strict(&response);
    }
    let response = desk.request("operator", "DELETE", "/v1/approvals").send().await.unwrap();
    assert_eq!(response.status(), 405);
    strict(&response);
    for (name, value) in
        [("origin", "http://evil.example"), ("origin", "null"), ("host", "evil.example")]
    {
        let request = desk.request("operator", "GET", "/v1/approvals").header(name, value);
        assert_eq!(request.send().await.unwrap().status(), 403, "{name}: {value}");
    }
    let id = desk.park("{}").await;
    let path = format!("/v1/approvals/{id}/decision");
    let form = desk.request("operator", "POST", &path).body(r#"{"decision":"deny"}"#);
    let form = form.header("content-type", "text/plain").send().await.unwrap();
    assert_eq!(form.status(), 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn guessing_is_told_to_wait() {
    let desk = desk("guess").await;
    let mut statuses = Vec::new();
    let ask = || desk.http.get(format!("{}/v1/agents", desk.url));
    for number in 0..40 {
        let guess = format!("pcl_admin_{number:043}");
        statuses.push(ask().bearer_auth(guess).send().await.unwrap().status().as_u16());
    }
    // Who sends nothing guesses nothing.
    assert_eq!(ask().send().await.unwrap().status(), 401);
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 30);
    assert_eq!(statuses.last(), Some(&429));
    assert_eq!(desk.get("operator", "/v1/agents").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_waits_for_a_change() {
    let desk = desk("wait").await;
    let (_, empty) = desk.get("operator", "/v1/approvals").await;
    let path = format!("/v1/approvals?wait=30&since={}", empty["revision"].as_str().unwrap());
    let waiting = desk.get("operator", &path);
    let parking = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        desk.park("{}").await
    };
    let ((_, list), id) = tokio::join!(waiting, parking);
    assert_eq!(list["items"][0]["id"], id);
    // What changed before the wait began is told at once.
    let (_, again) = desk.get("operator", &path).await;
    assert_eq!(again["items"][0]["id"], id);
    let path = "/v1/approvals?wait=30&since=another-process.1";
    assert_eq!(desk.get("operator", path).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_gateway_answers_who_waits() {
    let desk = desk("stopping").await;
    let waiting = desk.get("operator", "/v1/approvals?wait=60");
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        desk.stop.send_replace(true);
    };
    let ((status, _), ()) = tokio::join!(waiting, stopping);
    assert_eq!(status, 200);
}

fn strict(response: &reqwest::Response) {
    let headers = response.headers();
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["content-security-policy"], "default-src 'none'; frame-ancestors 'none'");
    assert!(!headers.contains_key("access-control-allow-origin"));
}

impl Desk {
    async fn get(&self, role: &str, path: &str) -> (u16, Value) {
        answer(self.request(role, "GET", path)).await
    }

    async fn decide(&self, role: &str, id: &str, body: &Value) -> (u16, Value) {
        self.post(role, id, &body.to_string()).await
    }

    async fn post(&self, role: &str, id: &str, body: &str) -> (u16, Value) {
        let request = self.request(role, "POST", &format!("/v1/approvals/{id}/decision"));
        let request = request.header("content-type", "application/json").body(body.to_owned());
        answer(request).await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
