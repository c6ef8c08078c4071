//! A TCP tap in front of a gateway: bytes pass as they are, ends of connections too, and what
//! the client sends is read along.

use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a client says about itself, as far as it goes into how long it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    /// `clientInfo.name`.
    pub(crate) name: String,
    /// The product in `User-Agent`, without its version.
    pub(crate) product: String,
    /// True if its calls carry a progress token.
    pub(crate) token: bool,
}

impl Who {
    /// A client that says this.
    pub(crate) fn new(name: &str, product: &str, token: bool) -> Self {
        Self { name: name.to_owned(), product: product.to_owned(), token }
    }
}

#[derive(Debug, Clone)]
struct Seen {
    product: String,
    message: Value,
}

/// A tap before one gateway.
#[derive(Debug)]
pub(crate) struct Tap {
    base: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    target: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tap {
    /// Listens before a gateway that is not there yet.
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let target: Arc<Mutex<Option<String>>> = Arc::default();
        let (all, gateway) = (Arc::clone(&seen), Arc::clone(&target));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Some(target) = gateway.lock().unwrap().clone() else { continue };
                tokio::spawn(forward(client, target, Arc::clone(&all)));
            }
        });
        Self { base, seen, target, task }
    }

    /// Part of a gateway's `spec`: it goes by the name of the tap.
    pub(crate) fn spec(&self) -> String {
        format!("  publicUrl: {{agents: \"{}\"}}\n", self.base)
    }

    /// Passes on to the gateway with that base URL from now on.
    pub(crate) fn lead_to(&self, gateway: &str) {
        *self.target.lock().unwrap() = Some(gateway.trim_start_matches("http://").to_owned());
    }

    /// `url` of the gateway, by way of the tap.
    pub(crate) fn url(&self, url: &str) -> String {
        let path = url.trim_start_matches("http://").split_once('/').unwrap().1;
        format!("{}/{path}", self.base)
    }

    fn messages(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.message["method"] == method).cloned().collect()
    }

    /// How often the client asked for `method`.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.messages(method).len()
    }

    /// The client's requests for `method`, in order.
    pub(crate) fn requests(&self, method: &str) -> Vec<Value> {
        self.messages(method).into_iter().map(|seen| seen.message).collect()
    }

    /// How often the client called `tool`.
    pub(crate) fn calls(&self, tool: &str) -> usize {
        let calls = self.messages("tools/call");
        calls.iter().filter(|call| call.message["params"]["name"] == tool).count()
    }

    /// What the client said about itself by its last call.
    pub(crate) fn who(&self) -> Who {
        let call = self.messages("tools/call").pop().expect("no call came through the tap");
        let meta = &call.message["params"]["_meta"];
        let modern = &meta["io.modelcontextprotocol/clientInfo"]["name"];
        let shake = self.messages("initialize").pop();
        let legacy = shake.map(|shake| shake.message["params"]["clientInfo"]["name"].clone());
        let name = modern.as_str().map(ToOwned::to_owned);
        Who {
            name: name
                .or(legacy.and_then(|name| Some(name.as_str()?.to_owned())))
                .unwrap_or_default(),
            product: call.product,
            token: !meta["progressToken"].is_null(),
        }
    }
}

async fn forward(client: TcpStream, target: String, seen: Arc<Mutex<Vec<Seen>>>) {
    let Ok(gateway) = TcpStream::connect(target).await else { return };
    let (client_reads, client_writes) = client.into_split();
    let (gateway_reads, gateway_writes) = gateway.into_split();
    // Either end of the connection ends the other; nothing is left half open.
    tokio::select! {
        () = up(client_reads, gateway_writes, &seen) => {}
        () = down(gateway_reads, client_writes) => {}
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, seen: &Mutex<Vec<Seen>>) {
    let mut pending = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        pending.extend_from_slice(&buffer[..count]);
        while let Some((request, rest)) = request(&pending) {
            seen.lock().unwrap().extend(request);
            pending.drain(..rest);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn down(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    // The connection is over either way.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// The first whole request in `bytes`, if its body is JSON, and where the next one starts.
fn request(bytes: &[u8]) -> Option<(Option<Seen>, usize)> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let header = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    assert!(header("transfer-encoding").is_none(), "the tap reads no chunks: {text}");
    let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
    let end = head + length;
    let body = bytes.get(head..end)?;
    let agent = header("user-agent").unwrap_or_default();
    let product = agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
    let message = serde_json::from_slice(body).ok();
    Some((message.map(|message| Seen { product, message }), end))
}
