//! The SDKs of TypeScript, Python and Rust with their default options, and with those that let
//! progress reset their timers.

use super::Case;
use super::stage::{ARGUMENTS, Library, PAST_A_MINUTE, Stage, refund, started, told};
use serde_json::{Value, json};

pub(super) const TS1: Library = Library::new("ts1", "portcullis-interop-ts1", "node");
pub(super) const TS2: Library = Library::new("ts2", "portcullis-interop-ts2", "node");
const TS2_LEGACY: Library = Library::new("ts2-legacy", "portcullis-interop-ts2", "node");
pub(super) const PYTHON1: Library = Library::new("py1", "mcp", "python-httpx");
pub(super) const PYTHON2: Library = Library::new("py2", "mcp", "python-httpx2");
const FASTMCP: Library = Library::new("fastmcp", "fastmcp", "python-httpx2");
const RUST: Library = Library::new("rmcp", "rmcp", "");

/// Step options: none, a progress token, and one whose progress restarts the timer.
pub(super) const DEFAULTS: &str = "{}";
pub(super) const PROGRESS: &str = r#"{"progress": true}"#;
const RESETS: &str = r#"{"progress": true, "reset_on_progress": true}"#;

/// Lines of a policy: none, and one that holds for whatever client.
const SILENT: &str = "";
const HOLDS: &str = "  approval: {hold: 10m}\n";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("TypeScript 1.x", 50, told_and_repeats(TS1)),
        Case::new("Python 1.x", 50, told_and_repeats(PYTHON1)),
        Case::new("TypeScript 2.x", 50, told_and_asks(TS2_LEGACY)),
        Case::new("TypeScript 1.x that resets", 62, held_by_the_operator()),
        Case::new("TypeScript 2.x that resets", 62, held(TS2_LEGACY, RESETS, HOLDS)),
        Case::new("modern TypeScript 2.x that resets", 62, held(TS2, RESETS, HOLDS)),
        Case::new("Python 1.x held by policy", 62, held(PYTHON1, DEFAULTS, HOLDS)),
        Case::new("Python 1.x with progress", 62, held(PYTHON1, PROGRESS, SILENT)),
        Case::new("Python 2.x held by policy", 62, held(PYTHON2, DEFAULTS, HOLDS)),
        Case::new("Python 2.x with progress", 62, held(PYTHON2, PROGRESS, SILENT)),
        Case::new("FastMCP with progress", 62, held(FASTMCP, PROGRESS, SILENT)),
        Case::new("Rust", 62, rust()),
    ]
}

/// One call, held past a minute: it gets the tool's own result and is not repeated.
pub(super) async fn held(library: Library, more: &str, policy: &str) {
    held_on(Stage::open(policy, "").await, library, more).await;
}

/// The same at a gateway whose configuration says more.
pub(super) async fn held_on(stage: Stage, library: Library, more: &str) {
    let mut driver = stage.driver(library, &[]).await;
    let (answer, ()) = tokio::join!(refund(&mut driver, more), stage.approve_after(PAST_A_MINUTE));
    stage.ran_once(&answer).await;
    assert_eq!(stage.tap.calls("crm__refund"), 1, "{library:?} repeats by itself");
    let token = more.contains("progress");
    if token {
        let told = answer["progress"].as_array().unwrap();
        let waits = |told: &&Value| {
            told["message"].as_str().is_some_and(|text| text.contains("waiting for approval `apr_"))
        };
        assert!(told.iter().filter(waits).count() >= 5, "{answer}");
    }
    stage.met(library, token);
}

/// Its name is not known to the gateway, but to its operator; case does not matter.
async fn held_by_the_operator() {
    let spec = "  approval: {hold: {clients: {Portcullis-Interop-TS1: 10m}}}\n";
    held_on(Stage::open("", spec).await, TS1, RESETS).await;
}

/// A client that the gateway does not know is told before a timer of a minute ends, and the
/// repeat collects.
async fn told_and_repeats(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    told(&refund(&mut driver, DEFAULTS).await);
    stage.nothing_ran();
    stage.decide("approve", None).await;
    let answer = refund(&mut driver, DEFAULTS).await;
    stage.ran_once(&answer).await;
    stage.met(library, false);
}

/// The same, and the id that it was told collects.
async fn told_and_asks(library: Library) {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(library, &[]).await;
    let first = refund(&mut driver, DEFAULTS).await;
    told(&first);
    let card = stage.card().await;
    let id = card["id"].as_str().unwrap();
    assert!(first["text"].as_str().unwrap().contains(id), "{first}");
    stage.met(library, false);
    stage.decide("approve", None).await;
    stage.nothing_ran();
    let answer = driver.call("approval_status", json!({"id": id})).await;
    stage.ran_once(&answer).await;
}

async fn rust() {
    use rmcp::ServiceExt as _;
    use rmcp::model::CallToolRequestParams;
    use rmcp::transport::StreamableHttpClientTransport;
    use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
    let stage = Stage::open("", "").await;
    let config = StreamableHttpClientTransportConfig::with_uri(stage.url())
        .auth_header(stage.house.token("support"));
    let client = ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
    started();
    let mut params = CallToolRequestParams::new("crm__refund");
    params.arguments = serde_json::from_str(ARGUMENTS).ok();
    let (result, ()) = tokio::join!(client.call_tool(params), stage.approve_after(PAST_A_MINUTE));
    let result = serde_json::to_value(result.unwrap()).unwrap();
    let answer = json!({"isError": result["isError"], "text": result["content"][0]["text"]});
    stage.ran_once(&answer).await;
    stage.met(RUST, true);
    client.cancel().await.unwrap();
}
