//! An agent that speaks raw JSON-RPC over HTTP, in either era.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The newest revision.
pub const MODERN: &str = "2026-07-28";

/// How a client speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaks {
    /// 2026-07-28.
    Modern,
    /// A revision with a handshake.
    Legacy(&'static str),
}

/// A connected agent.
#[derive(Debug, Clone)]
pub struct Agent {
    http: reqwest::Client,
    url: String,
    token: String,
    speaks: Speaks,
    // What its client can do, and how it calls itself.
    capabilities: Value,
    client: String,
    session: Option<String>,
    /// What `initialize` or `server/discover` answered.
    pub hello: Value,
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers worth knowing.
    pub content_type: String,
    /// The raw text of the JSON-RPC message, or the body as it is.
    pub text: String,
    /// Notifications that came before it on a stream.
    pub notifications: Vec<Value>,
}

impl Answer {
    /// The message as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// `result` of the message.
    #[must_use]
    pub fn result(&self) -> Value {
        self.json().get("result").cloned().unwrap_or(Value::Null)
    }

    /// Code of the `error`; 0 if there is none.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.json().pointer("/error/code").and_then(Value::as_i64).unwrap_or_default()
    }

    /// The text blocks of a tool result.
    #[must_use]
    pub fn says(&self) -> String {
        let result = self.result();
        let blocks = result.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
        let texts = blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str));
        texts.collect::<Vec<_>>().join("\n")
    }

    /// True if a tool result says `isError`.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.result().get("isError") == Some(&Value::Bool(true))
    }
}

impl Agent {
    /// Connects: handshake or discovery.
    ///
    /// # Errors
    /// A text if the gateway does not answer as it should.
    pub async fn connect(url: &str, token: &str, speaks: Speaks) -> Result<Self, String> {
        Self::connect_as(url, token, speaks, ("raw", json!({}))).await
    }

    /// The same as a client of that name with those capabilities.
    ///
    /// # Errors
    /// A text if the gateway does not answer as it should.
    pub async fn connect_as(
        url: &str,
        token: &str,
        speaks: Speaks,
        (client, capabilities): (&str, Value),
    ) -> Result<Self, String> {
        let http = reqwest::Client::builder().build().map_err(|e| e.to_string())?;
        let mut agent = Self {
            http,
            url: url.to_owned(),
            token: token.to_owned(),
            speaks: speaks.clone(),
            capabilities,
            client: client.to_owned(),
            session: None,
            hello: Value::Null,
        };
        match speaks {
            Speaks::Modern => {
                agent.hello = agent.request("server/discover", json!({})).await?.result()
            }
            Speaks::Legacy(version) => agent.handshake(version).await?,
        }
        if agent.hello.is_null() {
            return Err("the handshake had no result".to_owned());
        }
        Ok(agent)
    }

    async fn handshake(&mut self, version: &str) -> Result<(), String> {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": self.capabilities,
            "clientInfo": {"name": self.client, "version": "1"}}});
        let response = self.send(&body.to_string(), &[]).await?;
        self.session = response
            .headers()
            .get("mcp-session-id")
            .and_then(|value| Some(value.to_str().ok()?.to_owned()));
        self.hello = read(response).await?.result();
        self.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &[]).await?;
        Ok(())
    }

    /// The session id, in the legacy era.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Headers that every request of this agent carries.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        match (&self.speaks, &self.session) {
            (Speaks::Modern, _) => headers.push(("mcp-protocol-version", MODERN.to_owned())),
            (Speaks::Legacy(version), Some(session)) => {
                headers.push(("mcp-session-id", session.clone()));
                headers.push(("mcp-protocol-version", (*version).to_owned()));
            }
            (Speaks::Legacy(_), None) => {}
        }
        headers
    }

    /// Sends a request whose `params` are the raw text `params`.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn raw(&self, id: &str, method: &str, params: &str) -> Result<Answer, String> {
        let mut extra = self.headers();
        if self.speaks == Speaks::Modern {
            extra.push(("mcp-method", method.to_owned()));
            let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(params).ok();
            let name = members.and_then(|members| {
                let raw = ["taskId", "name", "uri"].iter().find_map(|name| members.get(*name))?;
                serde_json::from_str::<String>(raw.get()).ok()
            });
            extra.extend(name.map(|name| ("mcp-name", header_value(&name))));
        }
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{}}}"#,
            self.with_meta(params)
        );
        self.post(&body, &extra).await
    }

    /// Adds the metadata of the modern era to raw params.
    #[must_use]
    pub fn with_meta(&self, params: &str) -> String {
        if self.speaks != Speaks::Modern || params.contains("\"_meta\"") {
            return params.to_owned();
        }
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": self.client, "version": "1"},
        });
        let meta = format!("\"_meta\":{meta}");
        let rest = params.trim_start().trim_start_matches('{');
        let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
        format!("{{{meta}{comma}{rest}")
    }

    /// Sends a request.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn request(&self, method: &str, params: Value) -> Result<Answer, String> {
        self.raw("1", method, &params.to_string()).await
    }

    /// Names in `tools/list`.
    ///
    /// # Errors
    /// A text if no list came.
    pub async fn tools(&self) -> Result<Vec<String>, String> {
        let result = self.request("tools/list", json!({})).await?.result();
        let tools = result.get("tools").and_then(Value::as_array).ok_or("no list")?;
        let names = tools.iter().filter_map(|tool| Some(tool.get("name")?.as_str()?.to_owned()));
        Ok(names.collect())
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn call(&self, name: &str, arguments: Value) -> Result<Answer, String> {
        self.request("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// Posts raw bytes with more headers.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn post(&self, body: &str, headers: &[(&str, String)]) -> Result<Answer, String> {
        let own = if headers.is_empty() { self.headers() } else { Vec::new() };
        let own: Vec<(&str, String)> = own.into_iter().chain(headers.iter().cloned()).collect();
        let response = self.send(body, &own).await?;
        read(response).await
    }

    /// Posts raw bytes and returns the response as it is.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn send(
        &self,
        body: &str,
        headers: &[(&str, String)],
    ) -> Result<reqwest::Response, String> {
        let mut request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned());
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        request.send().await.map_err(|e| causes(&e))
    }
}

/// MCP 2026-07-28, streamable HTTP: what is not plain ASCII travels encoded.
fn header_value(name: &str) -> String {
    if name.bytes().all(|b| b.is_ascii_graphic()) {
        return name.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(name))
}

/// Reads an answer, plain or streamed.
///
/// # Errors
/// A text if it breaks off.
pub async fn read(response: reqwest::Response) -> Result<Answer, String> {
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type");
    let content_type = kind.and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let body = response.text().await.map_err(|e| causes(&e))?;
    if !content_type.starts_with("text/event-stream") {
        return Ok(Answer { status, content_type, text: body, notifications: Vec::new() });
    }
    let mut text = String::new();
    let mut notifications = Vec::new();
    for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let message: Value = serde_json::from_str(data).map_err(|e| e.to_string())?;
        if message.get("id").is_some() && message.get("method").is_none() {
            text = data.to_owned();
        } else {
            notifications.push(message);
        }
    }
    Ok(Answer { status, content_type, text, notifications })
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
