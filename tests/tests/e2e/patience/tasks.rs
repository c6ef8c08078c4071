//! Clients that declare tasks: a call that asks is answered at once, and they poll for its end.

use super::Case;
use super::sdks::{DEFAULTS, PYTHON2};
use super::stage::{ARGUMENTS, Stage, refund, refused, started};
use portcullis_tests::driver::inspect;
use portcullis_tests::house::Folder;
use rmcp::ClientServiceExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
    GetTaskParams, Implementation, ProtocolVersion, Task, TaskPayload,
};
use rmcp::service::{ClientLifecycleMode, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use std::time::Duration;

const POLLS: &[(&str, &str)] = &[("tasks", "poll")];
const REASON: &str = "over budget this month";

type Client = RunningService<RoleClient, ClientConfig>;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("Inspector with tasks, approved", 8, inspector_approved()),
        Case::new("Inspector with tasks, denied", 8, inspector_denied()),
        Case::new("Python 2.x with tasks", 5, python()),
        Case::new("Rust with tasks, approved after a restart", 3, rust_approved()),
        Case::new("Rust with tasks, denied", 2, rust_denied()),
        Case::new("Rust with tasks, cancelled", 2, rust_cancelled()),
    ]
}

/// Decides the one card when the client has asked for its task twice.
async fn decides(stage: &Stage, decision: &str, reason: Option<&str>) {
    stage.card().await;
    stage.asked("tasks/get", 2).await;
    stage.nothing_ran();
    stage.decide(decision, reason).await;
}

/// The tool was called once, whatever came of it.
fn called_once(stage: &Stage) {
    assert_eq!(stage.tap.calls("crm__refund"), 1);
}

async fn python() {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(PYTHON2, POLLS).await;
    let approves = decides(&stage, "approve", None);
    let (answer, ()) = tokio::join!(refund(&mut driver, DEFAULTS), approves);
    stage.ran_once(&answer).await;
    called_once(&stage);
    let denies = async {
        stage.card().await;
        stage.decide("deny", Some(REASON)).await;
    };
    let (answer, ()) = tokio::join!(refund(&mut driver, DEFAULTS), denies);
    refused(&answer, REASON);
    stage.ended_as(&["done", "denied"]).await;
}

/// The Inspector always declares tasks.
async fn inspector(stage: &Stage) -> Value {
    let home = Folder::new();
    let arguments: serde_json::Map<String, Value> = serde_json::from_str(ARGUMENTS).unwrap();
    let pairs = arguments.iter().map(|(name, value)| {
        value.as_str().map_or_else(|| format!("{name}={value}"), |text| format!("{name}={text}"))
    });
    let words = ["--protocol-era", "modern", "--format", "json", "--method", "tools/call"];
    let words = words.into_iter().chain(["--tool-name", "crm__refund", "--tool-arg"]);
    let words: Vec<String> = words.map(ToOwned::to_owned).chain(pairs).collect();
    let text = inspect(&stage.url(), &stage.house.token("support"), &home, &words).await;
    let answer: Value = serde_json::from_str(text.lines().next().unwrap_or_default())
        .unwrap_or_else(|_| panic!("no answer: {text}"));
    shown(&answer["result"])
}

/// A result as drivers tell it.
fn shown(result: &Value) -> Value {
    json!({"isError": result["isError"], "text": result["content"][0]["text"]})
}

async fn inspector_approved() {
    let stage = Stage::open("", "").await;
    let (answer, ()) = tokio::join!(inspector(&stage), decides(&stage, "approve", None));
    stage.ran_once(&answer).await;
    called_once(&stage);
}

async fn inspector_denied() {
    let stage = Stage::open("", "").await;
    let (answer, ()) = tokio::join!(inspector(&stage), decides(&stage, "deny", Some(REASON)));
    refused(&answer, REASON);
    stage.nothing_ran();
    called_once(&stage);
}

async fn rust(stage: &Stage) -> Client {
    let config = StreamableHttpClientTransportConfig::with_uri(stage.url())
        .auth_header(stage.house.token("support"));
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let tasks = ClientCapabilities::builder().enable_tasks().build();
    let client = ClientConfig::new(tasks, Implementation::from_build_env())
        .serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), lifecycle)
        .await
        .unwrap();
    started();
    client
}

/// Makes the call, which is answered with a task.
async fn task(client: &Client) -> Task {
    let mut params = CallToolRequestParams::new("crm__refund");
    params.arguments = serde_json::from_str(ARGUMENTS).ok();
    let answer = client.call_tool_once(params).await.unwrap();
    let CallToolResponse::Task(created) = answer else { panic!("no task: {answer:?}") };
    created.task
}

async fn poll(client: &Client, task: &Task) -> TaskPayload {
    client.get_task(GetTaskParams::new(&task.task_id)).await.unwrap().task.payload
}

/// Polls as often as the task says until it has ended.
async fn end(client: &Client, task: &Task) -> TaskPayload {
    let pause = Duration::from_millis(task.poll_interval_ms.unwrap());
    for _ in 0..60 {
        let payload = poll(client, task).await;
        if payload != TaskPayload::Working {
            return payload;
        }
        tokio::time::sleep(pause).await;
    }
    panic!("the task does not end");
}

fn completed(payload: TaskPayload) -> Value {
    let TaskPayload::Completed { result } = payload else { panic!("not completed: {payload:?}") };
    shown(&Value::Object(result))
}

/// The gateway is restarted while the task waits; for the client it is where it was.
async fn rust_approved() {
    let stage = Stage::open("", "").await;
    let client = rust(&stage).await;
    let task = task(&client).await;
    assert_eq!(poll(&client, &task).await, TaskPayload::Working);
    let stage = stage.restarted().await;
    assert_eq!(poll(&client, &task).await, TaskPayload::Working);
    stage.nothing_ran();
    stage.decide("approve", None).await;
    let answer = completed(end(&client, &task).await);
    stage.ran_once(&answer).await;
    called_once(&stage);
    client.cancel().await.unwrap();
}

async fn rust_denied() {
    let stage = Stage::open("", "").await;
    let client = rust(&stage).await;
    let task = task(&client).await;
    stage.decide("deny", Some(REASON)).await;
    refused(&completed(end(&client, &task).await), REASON);
    stage.nothing_ran();
    client.cancel().await.unwrap();
}

/// The card ends with its task.
async fn rust_cancelled() {
    let stage = Stage::open("", "").await;
    let client = rust(&stage).await;
    let task = task(&client).await;
    let card = stage.card().await;
    client.cancel_task(CancelTaskParams::new(&task.task_id)).await.unwrap();
    assert_eq!(end(&client, &task).await, TaskPayload::Cancelled);
    assert_eq!(stage.house.decide(&card, "approve", None).await.0, 409);
    stage.one_card("cancelled").await;
    stage.nothing_ran();
    client.cancel().await.unwrap();
}
