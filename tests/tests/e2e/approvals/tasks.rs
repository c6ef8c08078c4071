//! Parked calls as tasks (`io.modelcontextprotocol/tasks`).

use super::*;

const TASKS: &str = "io.modelcontextprotocol/tasks";

fn capabilities() -> Value {
    json!({"extensions": {TASKS: {}}})
}

async fn polling(house: &House, name: &str) -> Agent {
    let client = ("raw", capabilities());
    Agent::connect_as(&house.url(name), &token(name), Speaks::Modern, client).await.unwrap()
}

async fn ask(agent: &Agent, method: &str, id: &Value) -> Answer {
    agent.request(method, json!({"taskId": id})).await.unwrap()
}

async fn ends(agent: &Agent, id: &Value) -> Value {
    for _ in 0..200 {
        let task = ask(agent, "tasks/get", id).await.result();
        if task["status"] != "working" {
            return task;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the task does not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_call_is_a_task_that_runs_once_without_a_caller_that_waits() {
    let (house, upstream) = open("").await;
    let agent = polling(&house, "support").await;
    assert_eq!(agent.hello["capabilities"]["extensions"], json!({TASKS: {}}));
    let task = refund(&agent, 7).await.unwrap().result();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    for member in ["task", "result", "error", "inputRequests", "requestState"] {
        assert!(task.get(member).is_none(), "{member}: {task}");
    }
    let envelope = &task["_meta"]["io.modelcontextprotocol/authorization"];
    assert_eq!(envelope["remediation"], "available", "{task}");
    assert!(task["ttlMs"].as_u64().unwrap() > 1_200_000 && task["pollIntervalMs"].is_u64());
    let id = &task["taskId"];
    let waits = ask(&agent, "tasks/get", id).await.result();
    assert_eq!((&waits["resultType"], &waits["status"]), (&json!("complete"), &json!("working")));
    assert!(waits["statusMessage"].as_str().unwrap().starts_with("waiting for approval"));
    // The same call again is the same task.
    assert_eq!(refund(&agent, 7).await.unwrap().result()["taskId"], *id);
    let card = house.parked(1).await.remove(0);
    assert_eq!(
        (&card["id"], &card["task"], &card["unattended"]),
        (id, &json!(true), &json!(false))
    );
    house.decide(&card, "approve", None).await;
    // It runs now, whoever asks for it when.
    until(&house, id, "done").await;
    assert_eq!(upstream.calls("refund"), [r#"{"amount":7}"#]);
    for _ in 0..2 {
        let done = ask(&agent, "tasks/get", id).await.result();
        assert_eq!(done["status"], "completed", "{done}");
        assert_eq!(done["result"]["content"][0]["text"], r#"{"amount":7}"#);
        assert_eq!(done["result"]["resultType"], "complete");
        assert!(done["_meta"].get("io.modelcontextprotocol/authorization").is_none());
    }
    // What the task handed out is not handed out again to a repeat: that asks anew.
    let next = refund(&agent, 7).await.unwrap().result();
    assert_eq!(next["resultType"], "task");
    assert_ne!(next["taskId"], *id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_completes_the_task_and_a_cancelled_one_takes_its_card_along() {
    let (house, upstream) = open("").await;
    let agent = polling(&house, "support").await;
    let task = refund(&agent, 1).await.unwrap().result()["taskId"].clone();
    let card = house.parked(1).await.remove(0);
    house.decide(&card, "deny", Some("not today")).await;
    let denied = ends(&agent, &task).await;
    assert_eq!(
        (&denied["status"], &denied["result"]["isError"]),
        (&json!("completed"), &json!(true))
    );
    let text = denied["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("not today") && text.contains("did not run"), "{text}");

    let task = refund(&agent, 2).await.unwrap().result()["taskId"].clone();
    let card = house.parked(1).await.remove(0);
    for _ in 0..2 {
        let done = ask(&agent, "tasks/cancel", &task).await.result();
        assert_eq!(done["resultType"], "complete");
        assert!(done.get("status").is_none() && done.get("taskId").is_none(), "{done}");
    }
    let cancelled = ask(&agent, "tasks/get", &task).await.result();
    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled.get("result").is_none() && cancelled.get("error").is_none());
    assert_eq!(house.decide(&card, "approve", None).await.0, 409);
    assert!(upstream.calls("refund").is_empty());
    // What it brings is not looked at, and an unknown task is no task.
    let update = json!({"taskId": task, "inputResponses": {"x": {"action": "accept"}}});
    let done = agent.request("tasks/update", update).await.unwrap().result();
    assert_eq!(done["resultType"], "complete");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = ask(&agent, method, &json!("apr_aaaaaaaaaaaaaaaaaaaaaaaaaa")).await;
        assert_eq!(answer.code(), -32602, "{method}: {}", answer.text);
    }
    let alone: Vec<_> =
        house.audit().into_iter().filter(|line| line["kind"] == "outcome").collect();
    for ended in ["denied", "cancelled"] {
        let told = alone.iter().filter(|line| line["outcome"] == ended).count();
        assert_eq!(told, 1, "{ended}: the end of a task is on record once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_answers_to_its_run_and_to_those_who_declare_the_extension() {
    let (house, _upstream) = open("").await;
    let agent = polling(&house, "support").await;
    let task = refund(&agent, 1).await.unwrap().result()["taskId"].clone();
    let (foreign, plain) =
        (polling(&house, "other").await, house.agent("support", Speaks::Modern).await);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let there = ask(&foreign, method, &task).await;
        let nowhere = ask(&foreign, method, &json!("apr_aaaaaaaaaaaaaaaaaaaaaaaaaa")).await;
        assert_eq!((there.code(), &there.text), (-32602, &nowhere.text), "{method}");
        let undeclared = ask(&plain, method, &task).await;
        assert_eq!((undeclared.status, undeclared.code()), (400, -32021), "{}", undeclared.text);
        let required = &undeclared.json()["error"]["data"]["requiredCapabilities"];
        assert_eq!(required["extensions"], json!({TASKS: {}}));
    }
    house.parked(1).await;
    let legacy = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    assert_eq!(ask(&legacy, "tasks/get", &task).await.code(), -32601);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_survives_restarts_whatever_it_waits_for() {
    let (house, upstream) = open("").await;
    let agent = polling(&house, "support").await;
    let waits = refund(&agent, 1).await.unwrap().result()["taskId"].clone();
    let house = House::from(house.stop().await).await.unwrap();
    let agent = polling(&house, "support").await;
    assert_eq!(ask(&agent, "tasks/get", &waits).await.result()["status"], "working");
    let card = house.parked(1).await.remove(0);
    assert_eq!(card["unattended"], false, "nobody has to stay for a task");
    house.decide(&card, "approve", None).await;
    until(&house, &waits, "done").await;
    let house = House::from(house.stop().await).await.unwrap();
    let agent = polling(&house, "support").await;
    let done = ask(&agent, "tasks/get", &waits).await.result();
    assert_eq!(done["result"]["content"][0]["text"], r#"{"amount":1}"#, "{done}");
    assert_eq!(upstream.calls("refund").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_is_told_of_its_tasks_as_they_change() {
    let (house, _upstream) = open("").await;
    let agent = polling(&house, "support").await;
    let first = refund(&agent, 1).await.unwrap().result()["taskId"].clone();
    let foreign = polling(&house, "other").await;
    let foreign = refund(&foreign, 2).await.unwrap().result()["taskId"].clone();
    let listen = json!({"notifications": {"taskIds": [first, foreign]}}).to_string();
    let mut extra = agent.headers();
    extra.push(("mcp-method", "subscriptions/listen".to_owned()));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{}}}"#,
        agent.with_meta(&listen)
    );
    let mut stream = agent.send(&body, &extra).await.unwrap();
    let cards = house.parked(2).await;
    house.decide(&cards[0], "approve", None).await;
    let mut text = String::new();
    while !text.contains("\"completed\"") {
        let chunk = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await;
        let chunk = chunk.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let messages: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).unwrap())
        .collect();
    let acknowledged = &messages[0]["params"]["notifications"];
    assert_eq!(*acknowledged, json!({"taskIds": [first]}), "nobody else's");
    let last = messages.last().unwrap();
    assert_eq!(last["method"], "notifications/tasks");
    let task = &last["params"];
    assert_eq!((&task["taskId"], &task["status"]), (&first, &json!("completed")));
    assert_eq!(task["result"]["content"][0]["text"], r#"{"amount":1}"#);
    assert_eq!(task["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
    assert!(!text.contains(foreign.as_str().unwrap()));
    let wrong = r#"{"notifications":{"taskIds":"one"}}"#;
    let refused = agent.raw("1", "subscriptions/listen", wrong).await.unwrap();
    assert_eq!(refused.code(), -32602, "{}", refused.text);
    let plain = house.agent("support", Speaks::Modern).await;
    let refused = plain.raw("1", "subscriptions/listen", &listen).await.unwrap();
    assert_eq!((refused.status, refused.code()), (400, -32021));
}
