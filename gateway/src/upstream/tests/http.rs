//! Servers over HTTP, well behaved and not: written by hand down to the bytes, so that they can
//! break off anywhere.

mod limits;

use super::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// One request as the server read it.
#[derive(Debug, Clone)]
struct Asked {
    head: String,
    body: Value,
}

impl Asked {
    fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What the server does with a request.
enum Act {
    Send(String),
    SendAndClose(String),
    Close,
    Hold,
}

struct Peer {
    url: String,
    seen: Arc<Mutex<Vec<Asked>>>,
    // Connections the gateway closed while a request was held.
    closed: Arc<Mutex<usize>>,
    connections: Arc<Mutex<usize>>,
}

impl Peer {
    async fn start(behave: impl Fn(&Asked) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let peer =
            Self { url, seen: Arc::default(), closed: Arc::default(), connections: Arc::default() };
        let (seen, closed, behave) = (peer.seen.clone(), peer.closed.clone(), Arc::new(behave));
        let connections = peer.connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *connections.lock() += 1;
                let (seen, closed, behave) = (seen.clone(), closed.clone(), behave.clone());
                tokio::spawn(serve(stream, (seen, closed), behave));
            }
        });
        peer
    }

    fn count(&self, method: &str) -> usize {
        self.seen.lock().iter().filter(|asked| asked.method() == method).count()
    }

    fn last(&self, method: &str) -> Asked {
        let seen = self.seen.lock();
        seen.iter().rev().find(|asked| asked.method() == method).unwrap().clone()
    }

    fn server(&self, era: EraPin) -> Server {
        let headers = BTreeMap::new();
        server(Transport::Http { url: self.url.clone(), headers }, era)
    }
}

async fn serve(
    mut stream: TcpStream,
    (seen, closed): (Arc<Mutex<Vec<Asked>>>, Arc<Mutex<usize>>),
    behave: Arc<impl Fn(&Asked) -> Act + Send + Sync>,
) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let asked = Asked { head, body: Value::Null };
        let length = asked.header("content-length").map_or(0, |n| n.parse().unwrap());
        while buffer.len() < length {
            stream.read_buf(&mut buffer).await.unwrap();
        }
        let body: Vec<u8> = buffer.drain(..length).collect();
        let asked = Asked { body: serde_json::from_slice(&body).unwrap_or(Value::Null), ..asked };
        seen.lock().push(asked.clone());
        match behave(&asked) {
            Act::Send(text) => stream.write_all(text.as_bytes()).await.unwrap_or_default(),
            Act::SendAndClose(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return;
            }
            Act::Close => return,
            Act::Hold => {
                let _ = stream.read(&mut [0]).await;
                *closed.lock() += 1;
                return;
            }
        }
    }
}

fn http(status: u16, extra: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{extra}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn result(asked: &Asked, result: &Value) -> String {
    http(200, "", &json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).to_string())
}

fn sse(events: &[Value]) -> String {
    let mut out =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
    for event in events {
        let text = format!(": keep\n\ndata: {event}\n\n");
        out += &format!("{:x}\r\n{text}\r\n", text.len());
    }
    out + "0\r\n\r\n"
}

const HEADERED: &str = r#"{"name":"region","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}"#;

// The part all servers here agree on; `None` is left to the test.
fn usual(asked: &Asked, legacy: bool) -> Option<Act> {
    let text = match asked.method() {
        "server/discover" if legacy => {
            let error = json!({"code": -32000, "message": "Server not initialized"});
            http(400, "", &json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string())
        }
        "server/discover" => result(
            asked,
            &json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        ),
        "initialize" => {
            let answer = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}});
            let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": answer});
            http(200, "mcp-session-id: abc\r\n", &body.to_string())
        }
        "tools/list" => {
            let plain = json!({"name": "echo", "inputSchema": {"type": "object"}});
            let mirrored: Value = serde_json::from_str(HEADERED).unwrap();
            result(asked, &json!({"tools": [plain, mirrored]}))
        }
        "" | "notifications/initialized" | "notifications/cancelled" => {
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
        }
        _ => return None,
    };
    Some(Act::Send(text))
}

async fn eventually(mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), wait).await.unwrap();
}

fn echo(asked: &Asked) -> Act {
    Act::Send(result(asked, &json!({"content": []})))
}

#[tokio::test]
async fn a_legacy_server_gets_its_session_and_no_modern_members() {
    let peer = Peer::start(|asked| usual(asked, true).unwrap_or_else(|| echo(asked))).await;
    let upstreams = started(peer.server(EraPin::Auto)).await;
    assert_eq!(upstreams.states()[0].up, Some(Era::Legacy));
    call(&upstreams, tool("echo", "{\"a\":1}")).await.unwrap();
    let asked = peer.last("tools/call");
    assert_eq!(asked.header("mcp-session-id"), Some("abc"));
    assert_eq!(asked.header("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(asked.header("mcp-method"), None);
    assert_eq!(asked.body["params"], json!({"name": "echo", "arguments": {"a": 1}}));
    assert_eq!(peer.last("initialize").header("mcp-protocol-version"), None);
    upstreams.shutdown().await;
    assert!(peer.seen.lock().last().unwrap().head.starts_with("DELETE /mcp "));
}

#[tokio::test]
async fn a_modern_server_gets_what_mirrors_the_body() {
    let peer = Peer::start(|asked| usual(asked, false).unwrap_or_else(|| echo(asked))).await;
    let upstreams = started(peer.server(EraPin::Auto)).await;
    call(&upstreams, tool("region", r#"{"r":"größe"}"#)).await.unwrap();
    let asked = peer.last("tools/call");
    assert_eq!(asked.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(asked.header("mcp-method"), Some("tools/call"));
    assert_eq!(asked.header("mcp-name"), Some("region"));
    assert_eq!(asked.header("mcp-param-region"), Some("=?base64?Z3LDtsOfZQ==?="));
    assert_eq!(asked.header("accept-encoding"), Some("identity"));
    assert_eq!(asked.header("mcp-session-id"), None);
    let meta = &asked.body["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    upstreams.shutdown().await;
}

#[tokio::test]
async fn an_ended_session_is_opened_again_once_for_all() {
    let dead = Arc::new(Mutex::new(false));
    let died = Arc::clone(&dead);
    let peer = Peer::start(move |asked| {
        match asked.method() {
            "initialize" => *died.lock() = false,
            "tools/call" if *died.lock() => return Act::Send(http(404, "", "{}")),
            _ => {}
        }
        usual(asked, true).unwrap_or_else(|| echo(asked))
    })
    .await;
    let upstreams = started(peer.server(EraPin::Legacy)).await;
    *dead.lock() = true;
    let (a, b) =
        tokio::join!(call(&upstreams, tool("echo", "{}")), call(&upstreams, tool("echo", "{}")));
    assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
    assert_eq!(peer.count("initialize"), 2);
    upstreams.shutdown().await;
}

#[tokio::test]
async fn a_call_that_left_is_never_sent_again() {
    let broken =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"json";
    for cut in ["before the head", "in the body", "in the stream"] {
        let peer = Peer::start(move |asked| {
            usual(asked, false).unwrap_or_else(|| match cut {
                "before the head" => Act::Close,
                "in the body" => Act::SendAndClose(broken.to_owned()),
                _ => Act::SendAndClose(sse(&[])),
            })
        })
        .await;
        let upstreams = started(peer.server(EraPin::Modern)).await;
        let failure = call(&upstreams, tool("echo", "{}")).await.unwrap_err();
        assert!(matches!(failure, Failure::Unknown(_)), "{cut}: {failure}");
        assert_eq!(peer.count("tools/call"), 1, "{cut}");
        upstreams.shutdown().await;
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_no_call() {
    let peer = Peer::start(|asked| match usual(asked, false) {
        Some(Act::Send(text)) => Act::SendAndClose(text),
        other => other.unwrap_or_else(|| Act::SendAndClose(result(asked, &json!({"content": []})))),
    })
    .await;
    let upstreams = started(peer.server(EraPin::Modern)).await;
    for _ in 0..20 {
        call(&upstreams, tool("echo", "{}")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(peer.count("tools/call"), 20);
    upstreams.shutdown().await;
}

#[tokio::test]
async fn connections_are_used_again_after_bodies_and_after_streams() {
    for stream in [false, true] {
        let peer = Peer::start(move |asked| {
            let answer = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": {}});
            let other = || usual(asked, false);
            other().unwrap_or_else(|| either(stream, asked, answer))
        })
        .await;
        let upstreams = started(peer.server(EraPin::Modern)).await;
        for _ in 0..10 {
            call(&upstreams, tool("echo", "{}")).await.unwrap();
        }
        assert_eq!(*peer.connections.lock(), 1, "stream: {stream}");
        upstreams.shutdown().await;
    }
}

fn progress(token: &Value) -> Value {
    let params = json!({"progressToken": token, "progress": 1});
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
}

#[tokio::test]
async fn a_stream_carries_progress_and_questions_before_the_answer() {
    let peer = Peer::start(|asked| {
        usual(asked, true).unwrap_or_else(|| {
            let id = asked.body["id"].clone();
            Act::Send(sse(&[
                progress(&asked.body["params"]["_meta"]["progressToken"]),
                progress(&json!("foreign")),
                json!({"jsonrpc": "2.0", "id": 99, "method": "roots/list"}),
                json!({"jsonrpc": "2.0", "id": 4711, "result": {"not": "ours"}}),
                json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}),
            ]))
        })
    })
    .await;
    let upstreams = started(peer.server(EraPin::Legacy)).await;
    for _ in 0..3 {
        let (progress, mut seen) = mpsc::channel(4);
        let permit = permit(&upstreams, tool("echo", "{}")).unwrap();
        let forward = Forward { progress: Some(progress), ..Forward::default() };
        let reply = upstreams.call(permit, forward).await.unwrap();
        assert_eq!(text(reply), r#"{"content":[]}"#);
        assert!(seen.recv().await.is_some());
        assert!(seen.recv().await.is_none());
    }
    assert_eq!(peer.last("").body["error"]["code"], -32601);
    assert_eq!(upstreams.states()[0].dropped_frames, 3);
    upstreams.shutdown().await;
}

#[tokio::test]
async fn walls_redirects_and_foreign_answers_are_told_apart() {
    for (status, extra, runs) in [
        (401, "", false),
        (403, "", false),
        (302, "location: http://169.254.169.254/\r\n", false),
        (429, "", false),
        (500, "", true),
        (204, "", true),
    ] {
        let peer = Peer::start(move |asked| {
            usual(asked, false).unwrap_or_else(|| Act::Send(http(status, extra, "")))
        })
        .await;
        let upstreams = started(peer.server(EraPin::Modern)).await;
        let failure = call(&upstreams, tool("echo", "{}")).await.unwrap_err();
        assert_eq!(failure.may_have_run(), runs, "{status}: {failure}");
        assert_eq!(peer.count("tools/call"), 1);
        upstreams.shutdown().await;
    }
    let peer = Peer::start(|asked| match asked.method() {
        "server/discover" => Act::Send(http(401, "", "secret")),
        _ => usual(asked, false).unwrap(),
    })
    .await;
    let upstreams = started(peer.server(EraPin::Auto)).await;
    let Status::Unreachable { reason, .. } = &offer(&upstreams).status else { panic!("reached") };
    assert_eq!(reason, "`server/discover`: turned away: HTTP 401");
    assert_eq!(peer.count("initialize"), 0, "an auth wall says nothing about the era");
    upstreams.shutdown().await;
}

#[tokio::test]
async fn a_caller_that_leaves_cancels_in_the_way_of_the_era() {
    for legacy in [true, false] {
        let peer = Peer::start(move |asked| usual(asked, legacy).unwrap_or(Act::Hold)).await;
        let upstreams = started(peer.server(EraPin::Auto)).await;
        let waiting = call(&upstreams, tool("echo", "{}"));
        assert!(timeout(Duration::from_millis(300), waiting).await.is_err());
        eventually(|| *peer.closed.lock() == 1).await;
        if legacy {
            eventually(|| peer.count("notifications/cancelled") == 1).await;
            let id = peer.last("tools/call").body["id"].clone();
            assert_eq!(peer.last("notifications/cancelled").body["params"]["requestId"], id);
        } else {
            assert_eq!(peer.count("notifications/cancelled"), 0);
        }
        upstreams.shutdown().await;
    }
}

fn either(stream: bool, asked: &Asked, answer: Value) -> Act {
    if stream { Act::Send(sse(&[answer])) } else { echo(asked) }
}

fn sent_as(kind: &str, message: &Value) -> Act {
    Act::Send(match kind {
        "json" => http(200, "", &message.to_string()),
        _ => sse(std::slice::from_ref(message)),
    })
}
