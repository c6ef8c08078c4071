//! An upstream that records what it receives, and misbehaves on demand.

mod streams;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::post;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streams::{flood, stream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the upstream does with a `tools/call`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behave {
    /// Returns the arguments, byte for byte, as text.
    Echo,
    /// Never answers.
    Hang,
    /// Answers under another id.
    WrongId,
    /// Answers with something that is no JSON.
    Junk,
    /// Closes the connection without an answer.
    Close,
    /// Sends an endless event stream of comments.
    Flood,
    /// Answers with a result and an error at once.
    Both,
    /// Answers with HTTP 500.
    Broken,
    /// Redirects to another address.
    Redirect,
    /// Sends progress and then the answer, as an event stream.
    Progress,
    /// Says that its tools changed and then answers, as an event stream.
    Changed,
}

/// What an upstream offers.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Source text of the `tools` array.
    pub tools: String,
    /// Source text of the `resources` array.
    pub resources: String,
    /// Source text of the `resourceTemplates` array.
    pub templates: String,
    /// Source text of the `prompts` array.
    pub prompts: String,
    /// True if it speaks 2026-07-28; else the handshake of 2025-11-25.
    pub modern: bool,
    /// How it treats calls.
    pub behave: Behave,
    /// How long `tools/list` takes.
    pub list_delay: Duration,
    /// How long `tools/call` takes, from when it is on record to its answer.
    pub call_delay: Duration,
}

impl Offer {
    /// Tools of these names, without anything else.
    #[must_use]
    pub fn tools(names: &[&str]) -> Self {
        let tools: Vec<String> = names.iter().map(|name| tool(name)).collect();
        Self {
            tools: format!("[{}]", tools.join(",")),
            resources: "[]".to_owned(),
            templates: "[]".to_owned(),
            prompts: "[]".to_owned(),
            modern: false,
            behave: Behave::Echo,
            list_delay: Duration::ZERO,
            call_delay: Duration::ZERO,
        }
    }

    /// The same in revision 2026-07-28.
    #[must_use]
    pub fn modern(mut self) -> Self {
        self.modern = true;
        self
    }

    /// The same with another behaviour.
    #[must_use]
    pub fn behave(mut self, behave: Behave) -> Self {
        self.behave = behave;
        self
    }
}

/// A tool definition as this upstream lists it.
#[must_use]
pub fn tool(name: &str) -> String {
    format!(
        r#"{{"name":{},"description":"Does {}.","inputSchema":{{"type":"object"}},"x-vendor":{{"kept":1.0}}}}"#,
        Value::from(name),
        name.replace(['"', '\\'], " ")
    )
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its headers, lower-case names.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
    /// `method`, decoded.
    pub method: String,
}

#[derive(Debug)]
struct Inner {
    offer: Mutex<Offer>,
    received: Mutex<Vec<Received>>,
}

/// A running upstream on loopback.
#[derive(Debug)]
pub struct Upstream {
    inner: Arc<Inner>,
    /// Its endpoint.
    pub url: String,
    task: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    /// Starts on a free port.
    ///
    /// # Panics
    /// If no port can be had.
    pub async fn start(offer: Offer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap_or_else(|e| fail(&e));
        let address = listener.local_addr().unwrap_or_else(|e| fail(&e));
        let inner = Arc::new(Inner { offer: Mutex::new(offer), received: Mutex::default() });
        let app = Router::new()
            .route("/mcp", post(answer).get(|| async { StatusCode::METHOD_NOT_ALLOWED }))
            .with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                fail(&error)
            }
        });
        Self { inner, url: format!("http://{address}/mcp"), task }
    }

    /// All requests so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.inner.received.lock().map(|r| r.clone()).unwrap_or_default()
    }

    /// The source text of `arguments` of each call of `tool`; `""` if it had none.
    #[must_use]
    pub fn calls(&self, tool: &str) -> Vec<String> {
        let received = self.received();
        let calls = received.iter().filter(|r| r.method == "tools/call");
        calls
            .filter_map(|r| {
                let call: Frame<'_> = serde_json::from_str(&r.body).ok()?;
                let params: BTreeMap<String, &RawValue> =
                    serde_json::from_str(call.params?.get()).ok()?;
                let name: String = serde_json::from_str(params.get("name")?.get()).ok()?;
                let arguments = params.get("arguments").map(|raw| raw.get().to_owned());
                (name == tool).then(|| arguments.unwrap_or_default())
            })
            .collect()
    }

    /// Changes what is offered from now on.
    pub fn set(&self, change: impl FnOnce(&mut Offer)) {
        if let Ok(mut offer) = self.inner.offer.lock() {
            change(&mut offer);
        }
    }
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    // The tests cannot go on without their upstream.
    std::panic::panic_any(format!("the test upstream failed: {error}"))
}

#[derive(serde::Deserialize)]
struct Frame<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

async fn answer(
    State(inner): State<Arc<Inner>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let text = String::from_utf8_lossy(&body).into_owned();
    let Ok(frame) = serde_json::from_str::<Frame<'_>>(&text) else {
        return plain(StatusCode::ACCEPTED, String::new());
    };
    let names = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let received =
        Received { headers: names.collect(), body: text.clone(), method: frame.method.clone() };
    if let Ok(mut all) = inner.received.lock() {
        all.push(received);
    }
    let Some(id) = frame.id else { return plain(StatusCode::ACCEPTED, String::new()) };
    let offer = inner.offer.lock().map(|offer| offer.clone()).unwrap_or_else(|_| Offer::tools(&[]));
    let modern = text.contains("io.modelcontextprotocol/protocolVersion");
    if modern != offer.modern && frame.method != "ping" {
        return unsupported(id.get(), offer.modern);
    }
    match frame.method.as_str() {
        "tools/call" => {
            tokio::time::sleep(offer.call_delay).await;
            call(&offer, id.get(), &text).await
        }
        "tools/list" => {
            tokio::time::sleep(offer.list_delay).await;
            result(id.get(), &format!(r#"{{"tools":{}}}"#, offer.tools))
        }
        method => other(&offer, id.get(), method, &text),
    }
}

fn other(offer: &Offer, id: &str, method: &str, text: &str) -> Response<Body> {
    let capabilities =
        r#"{"tools":{"listChanged":true},"resources":{},"prompts":{},"completions":{}}"#;
    let body = match method {
        "initialize" => format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"serverInfo":{{"name":"recorder","version":"1"}}}}"#
        ),
        "server/discover" => format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{capabilities},"ttlMs":0,"cacheScope":"public"}}"#
        ),
        "resources/list" => format!(r#"{{"resources":{}}}"#, offer.resources),
        "resources/templates/list" => format!(r#"{{"resourceTemplates":{}}}"#, offer.templates),
        "prompts/list" => format!(r#"{{"prompts":{}}}"#, offer.prompts),
        "resources/read" => {
            let uri = member(text, "uri");
            format!(r#"{{"contents":[{{"uri":{uri},"text":"contents of it","x":1.0}}]}}"#)
        }
        "prompts/get" => {
            let name = member(text, "name");
            format!(
                r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":{name}}}}}]}}"#
            )
        }
        "completion/complete" => {
            r#"{"completion":{"values":["one"],"total":1,"hasMore":false}}"#.to_owned()
        }
        "ping" => "{}".to_owned(),
        _ => {
            return json(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#
            ));
        }
    };
    result(id, &body)
}

async fn call(offer: &Offer, id: &str, text: &str) -> Response<Body> {
    let arguments = Value::from(member(text, "arguments"));
    let echo = format!(r#"{{"content":[{{"type":"text","text":{arguments}}}],"x-kept":1.0}}"#);
    match offer.behave {
        Behave::Echo => result(id, &echo),
        Behave::Hang => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            result(id, &echo)
        }
        Behave::WrongId => result("424242424242", &echo),
        Behave::Junk => json("{\"jsonrpc\":\"2.0\",".to_owned()),
        Behave::Both => json(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{echo},"error":{{"code":1,"message":"x"}}}}"#
        )),
        Behave::Broken => plain(StatusCode::INTERNAL_SERVER_ERROR, "broken".to_owned()),
        Behave::Close => stream(Box::pin(std::future::ready(Err(std::io::Error::other("closed"))))),
        Behave::Flood => flood(),
        Behave::Redirect => {
            let mut response = plain(StatusCode::TEMPORARY_REDIRECT, String::new());
            if let Ok(location) = "http://127.0.0.1:1/elsewhere".parse() {
                response.headers_mut().insert("location", location);
            }
            response
        }
        Behave::Progress => progress(id, text, &echo),
        Behave::Changed => changed(id, &echo),
    }
}

fn progress(id: &str, text: &str, echo: &str) -> Response<Body> {
    let params = member(text, "_meta");
    let token = serde_json::from_str::<BTreeMap<String, &RawValue>>(&params)
        .ok()
        .and_then(|meta| meta.get("progressToken").map(|raw| raw.get().to_owned()));
    let mut events = String::new();
    for step in token.iter().flat_map(|token| (1..=3).map(move |step| (step, token))) {
        let (step, token) = step;
        events.push_str(&format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":{step},\"total\":3,\"x\":1.0}}}}\n\n"
        ));
    }
    events.push_str(&format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{echo}}}\n\n"));
    stream(Box::pin(std::future::ready(Ok(Bytes::from(events)))))
}

fn changed(id: &str, echo: &str) -> Response<Body> {
    let events = format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{echo}}}\n\n"
    );
    stream(Box::pin(std::future::ready(Ok(Bytes::from(events)))))
}

/// The source text of a member of `params`; `""` if it is not there.
fn member(text: &str, name: &str) -> String {
    let frame: Option<Frame<'_>> = serde_json::from_str(text).ok();
    let params = frame.and_then(|frame| frame.params.map(RawValue::get));
    let members: Option<BTreeMap<String, &RawValue>> =
        params.and_then(|params| serde_json::from_str(params).ok());
    members
        .and_then(|members| members.get(name).map(|raw| raw.get().to_owned()))
        .unwrap_or_default()
}

fn unsupported(id: &str, modern: bool) -> Response<Body> {
    let (status, code) = if modern { (400, -32022) } else { (400, -32000) };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no","data":{{"supported":["2026-07-28"],"requested":"?"}}}}}}"#
    );
    let mut response = json(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    response
}

fn result(id: &str, result: &str) -> Response<Body> {
    json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn json(body: String) -> Response<Body> {
    let mut response = plain(StatusCode::OK, body);
    if let Ok(kind) = "application/json".parse() {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

fn plain(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}
