//! The API document: what it says is what the admin listener does.

use portcullis_tests::agent::Speaks;
use portcullis_tests::driver::program;
use portcullis_tests::house::{Folder, House};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::process::Command;

const POLICY: &str = "
apiVersion: portcullis.dev/v1
kind: Agent
metadata: {name: support}
spec:
  tools: [{server: crm, allow: [refund]}]
---
apiVersion: portcullis.dev/v1
kind: Server
metadata: {name: crm}
spec: {stdio: {command: portcullis, args: [demo-server, crm]}}
";

/// Random and edge requests from the document, sound ones and broken ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fuzzer_finds_no_answer_that_the_document_does_not_say() {
    let house = House::start(POLICY, "").await;
    let scratch = Folder::new();
    let agent = house.agent("support", Speaks::Modern).await;
    let _call =
        tokio::spawn(async move { agent.call("crm__refund", json!({"order": "o-1"})).await });
    let card = house.parked(1).await.remove(0);
    // Something that is there, so that more than "not found" is looked at.
    let there = format!(
        "[[operations]]\ninclude-path-regex = \"^/v1/approvals/\"\nparameters = {{ \"path.id\" = {} }}\n",
        card["id"]
    );
    scratch.write("schemathesis.toml", &there);
    let (status, document) = house.api("GET", "/v1/openapi.json", None).await;
    assert_eq!((status, &document["openapi"]), (200, &Value::from("3.1.0")));
    scratch.write("openapi.json", &document.to_string());
    let token = std::fs::read_to_string(house.folder.path().join("state/admin.token")).unwrap();
    let output = Command::new(program("schemathesis"))
        .args(["run", "openapi.json", "--url", &house.admin, "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {}", token.trim())])
        // Credentials have a test of their own: here they would be told to wait.
        .args(["--checks", "all", "--exclude-checks", "positive_data_acceptance,ignored_auth"])
        // A stream of events has no end.
        .args(["--exclude-path", "/v1/events", "--max-examples", "25", "--seed", "1"])
        .args(["--suppress-health-check", "all", "--workers", "1"])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("passed") && !text.contains("failed"), "{text}");
    // It went on serving, whatever it was sent.
    assert_eq!(house.api("GET", "/v1/agents", None).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_in_it_is_open_to_anybody() {
    let house = House::start(POLICY, "").await;
    let document = house.api("GET", "/v1/openapi.json", None).await.1;
    let (http, mut seen) = (reqwest::Client::new(), 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let path = path.replace("{id}", "apr_x").replace("{agent}", "support");
            let method = method.to_uppercase();
            let request = http.request(method.parse().unwrap(), format!("{}{path}", house.admin));
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{method} {path}");
            let body: Value = response.json().await.unwrap();
            assert!(body["error"]["message"].is_string(), "{method} {path}: {body}");
            // After many wrong ones, one is told to wait.
            let (status, body) = house.api_as(&house.token("support"), &method, &path, None).await;
            assert!([401, 429].contains(&status), "{method} {path}: {status} {body}");
            seen += 1;
        }
    }
    assert!(seen >= 20, "{seen}");
}
