//! Parks many calls in a gateway of its own, each with a caller that waits, and measures what
//! they cost: memory, the list, the end.

use portcullis_tests::approver::Approver;
use portcullis_tests::house::{AGENTS, House};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Calls, if nothing is said.
const CALLS: usize = 10_000;
/// Runs that the calls are made in, all of them below one.
const RUNS: usize = 50;
/// Calls that are made before memory is read for the first time.
const WARM: usize = 200;
/// Calls that are made side by side.
const AT_ONCE: usize = 64;
/// Files that are open beside the connections of the calls.
const OTHER_FILES: usize = 500;
const WITHIN: Duration = Duration::from_secs(600);

/// `parked [N]`.
pub(super) fn parked(arguments: &[&str]) -> Result<String, String> {
    let calls = match arguments {
        [] => CALLS,
        [calls] => calls.parse().map_err(|_| format!("`{calls}` is no number"))?,
        _ => return Err("portcullis-bench parked [N]".to_owned()),
    };
    let files = files_max()?;
    let needed = calls + WARM + OTHER_FILES;
    if files < needed {
        return Err(format!(
            "{calls} calls need {needed} open files, {files} are allowed; run `ulimit -n {needed}` first"
        ));
    }
    let runtime = Runtime::new().map_err(|e| e.to_string())?;
    let measured = async { timeout(WITHIN, measure(calls)).await };
    runtime.block_on(measured).map_err(|_| "it took too long".to_owned())?
}

/// How many files a process may have open.
fn files_max() -> Result<usize, String> {
    let limits = std::fs::read_to_string("/proc/self/limits").map_err(|e| e.to_string())?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft {
        Some("unlimited") => Ok(usize::MAX),
        soft => soft
            .and_then(|soft| soft.parse().ok())
            .ok_or_else(|| "no limit of open files".to_owned()),
    }
}

/// A run that calls are made in.
#[derive(Debug, Clone)]
struct Place {
    host: String,
    path: String,
    token: String,
    run: String,
}

async fn measure(calls: usize) -> Result<String, String> {
    let upstream = Upstream::start(Offer::tools(&["refund"])).await;
    let spec = format!(
        "  approval: {{hold: {{default: 1h}}}}\n  limits: {{connections: {}}}\n",
        calls + WARM + OTHER_FILES
    );
    let house = House::process(House::folder(&policy(&upstream.url), &spec)).await;
    let operator = Approver::of(&house);
    let (top, places) = places(&operator).await?;
    let mut held = park(&places, 0..WARM).await?;
    let before = memory(&house)?;
    let began = Instant::now();
    held.extend(park(&places, WARM..WARM + calls).await?);
    let parking = began.elapsed();
    let each = memory(&house)?.saturating_sub(before) / calls;

    let began = Instant::now();
    let page = operator.ask("GET", "/v1/approvals?state=parked", None).await?.1;
    let first = (began.elapsed(), page.get("items").and_then(Value::as_array).map_or(0, Vec::len));
    let began = Instant::now();
    let all = operator.cards("state=parked").await?.len();
    let listing = began.elapsed();
    if all != calls + WARM {
        return Err(format!("{all} cards are listed for {} calls", calls + WARM));
    }

    let one = places.first().map(|place| place.run.clone()).unwrap_or_default();
    let (of_one, one_took) = stop(&operator, &one).await?;
    let (of_all, all_took) = stop(&operator, &top).await?;
    let began = Instant::now();
    for call in held {
        told(call).await?;
    }
    let telling = began.elapsed();
    let ran = upstream.calls("refund").len();
    if of_one + of_all != calls + WARM || ran != 0 {
        return Err(format!("{of_one} and {of_all} calls were stopped, and {ran} ran"));
    }
    Ok(format!(
        "{calls} calls parked in {parking:.1?}, each with a caller that waits, in {RUNS} runs of {} agents\n\
         memory per parked call: {each} bytes\n\
         list: {} cards in {:.1?}, all {all} in {listing:.1?}\n\
         stop: a run with {of_one} of them in {one_took:.1?}, one with {of_all} below it in {all_took:.1?}\n\
         every caller was told within {telling:.1?}, none of the calls ran",
        AGENTS.len(),
        first.1,
        first.0,
    ))
}

fn policy(url: &str) -> String {
    let agents = AGENTS.iter().map(|agent| {
        format!(
            "---\napiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {agent}}}\nspec:\n  tools: [{{server: crm, allow: [refund]}}]\n  approval: {{decideWithin: 1d, hold: 1h}}\n  limits: {{concurrentCalls: 1000000, parkedCalls: 1000000}}\n"
        )
    });
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n{}",
        agents.collect::<String>()
    )
}

/// The run at the top and those below it.
async fn places(operator: &Approver) -> Result<(String, Vec<Place>), String> {
    let top = start(operator, json!({"agent": "support"})).await?.run;
    let mut places = Vec::new();
    for agent in AGENTS.iter().cycle().take(RUNS) {
        places.push(start(operator, json!({"agent": agent, "parent": top})).await?);
    }
    Ok((top, places))
}

async fn start(operator: &Approver, body: Value) -> Result<Place, String> {
    let (status, run) = operator.ask("POST", "/v1/runs", Some(body)).await?;
    let member = |name: &str| run.get(name).and_then(Value::as_str).map(str::to_owned);
    let place = || {
        let url = member("url")?;
        let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
        Some(Place {
            host: host.to_owned(),
            path: format!("/{path}"),
            token: member("token")?,
            run: member("run")?,
        })
    };
    place().ok_or_else(|| format!("no run: {status} {run}"))
}

/// Makes the calls of these numbers; returns their connections once all of them are parked.
async fn park(places: &[Place], numbers: std::ops::Range<usize>) -> Result<Vec<TcpStream>, String> {
    let (room, mut calling) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for (number, place) in numbers.zip(places.iter().cycle()) {
        let (room, place) = (Arc::clone(&room), place.clone());
        calling.spawn(async move {
            let _seat = room.acquire().await.map_err(|e| e.to_string())?;
            call(&place, number).await
        });
    }
    calling.join_all().await.into_iter().collect()
}

// The head of the answer says that the call is parked and its caller has a seat.
async fn call(place: &Place, number: usize) -> Result<TcpStream, String> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"crm__refund","arguments":{{"number":{number},"note":"as long as a note may be that goes with a refund"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let message = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: crm__refund\r\ncontent-length: {}\r\n\r\n{body}",
        place.path,
        place.host,
        place.token,
        body.len()
    );
    let mut stream = TcpStream::connect(&place.host).await.map_err(|e| e.to_string())?;
    stream.write_all(message.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.map_err(|e| e.to_string())?);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    if !head.starts_with("http/1.1 200") || !head.contains("text/event-stream") {
        return Err(format!("call {number} does not wait: {head}"));
    }
    Ok(stream)
}

/// Waits for the answer of a call whose run was stopped.
async fn told(mut stream: TcpStream) -> Result<(), String> {
    let (mut said, mut part) = (Vec::new(), [0; 2048]);
    loop {
        let read = stream.read(&mut part).await.map_err(|e| e.to_string())?;
        said.extend_from_slice(part.get(..read).unwrap_or_default());
        let text = String::from_utf8_lossy(&said);
        if text.contains("It did not run.") {
            return Ok(());
        }
        if read == 0 {
            return Err(format!("a caller was told nothing: {text}"));
        }
    }
}

/// Ends a run; returns how many calls ended with it, and how long that took.
async fn stop(operator: &Approver, run: &str) -> Result<(usize, Duration), String> {
    let began = Instant::now();
    let (status, ended) = operator.stop(run, "enough").await?;
    let settled = ended.get("settled").and_then(Value::as_array).map(Vec::len);
    settled.map(|settled| (settled, began.elapsed())).ok_or_else(|| format!("{status}: {ended}"))
}

/// What the gateway has in memory, in bytes.
fn memory(house: &House) -> Result<usize, String> {
    let pid = house.pid().ok_or("the gateway is gone")?;
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| "no VmRSS".to_owned())
}
