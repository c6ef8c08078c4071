//! Webhooks: who is told what, signed, in order, at least once, and what becomes of messages that
//! are not taken.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use portcullis_tests::agent::Speaks;
use portcullis_tests::driver::program;
use portcullis_tests::house::{Folder, House};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";

/// A receiver that answers as it is told, and keeps what it got.
#[derive(Clone, Default)]
struct Receiver {
    got: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    // Never within the time it has.
    Never,
}

impl Receiver {
    async fn open(address: &str) -> (Self, String, tokio::task::JoinHandle<()>) {
        let receiver = Self::default();
        let routes = axum::Router::new().route("/hook", post(took)).with_state(receiver.clone());
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (receiver, at, task)
    }

    fn then(&self, answers: impl IntoIterator<Item = Answer>) {
        self.answers.lock().unwrap().extend(answers);
    }

    fn got(&self) -> Vec<(HeaderMap, String)> {
        self.got.lock().unwrap().clone()
    }

    async fn when(&self, count: usize) -> Vec<(HeaderMap, String)> {
        for _ in 0..600 {
            if self.got().len() >= count {
                return self.got();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{count} messages did not come: {:?}", self.got());
    }
}

async fn took(State(receiver): State<Receiver>, headers: HeaderMap, body: String) -> StatusCode {
    receiver.got.lock().unwrap().push((headers, body));
    let answer = receiver.answers.lock().unwrap().pop_front();
    match answer {
        None => StatusCode::NO_CONTENT,
        Some(Answer::Status(status)) => StatusCode::from_u16(status).unwrap(),
        Some(Answer::Never) => std::future::pending().await,
    }
}

fn policy(upstream: &Upstream) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund, login], secret: [password]}}\n---\n{}",
        server(&upstream.url)
    )
}

fn server(url: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n"
    )
}

async fn upstream() -> Upstream {
    Upstream::start(Offer::tools(&["refund", "login"])).await
}

fn spec(at: &str, more: &str) -> String {
    format!(
        "  webhooks:\n    - {{name: ops, url: \"http://{at}/hook\", secret: \"{SECRET}\"{more}}}\n"
    )
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What the reference library of Standard Webhooks says of a message.
fn verified(headers: &HeaderMap, body: &str) -> bool {
    let program = program("python5x");
    let script = "import json, sys\nfrom standardwebhooks.webhooks import Webhook\n\
                  said = json.load(sys.stdin)\n\
                  Webhook(said['secret']).verify(said['body'], said['headers'])\n";
    let mut child = std::process::Command::new(program)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let named: Value = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .into_iter()
        .map(|name| (name.to_owned(), Value::from(header(headers, name))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let said = json!({"secret": SECRET, "body": body, "headers": named});
    child.stdin.take().unwrap().write_all(said.to_string().as_bytes()).unwrap();
    child.wait().unwrap().success()
}

fn in_background(house: &House, tool: &str, arguments: Value) -> tokio::task::JoinHandle<()> {
    let (url, token, tool) = (house.url("support"), house.token("support"), tool.to_owned());
    tokio::spawn(async move {
        let agent = portcullis_tests::agent::Agent::connect(&url, &token, Speaks::Modern).await;
        // What comes of it is not the matter here.
        let _ = agent.unwrap().call(&tool, arguments).await;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_is_told_signed_once_with_its_secrets_hidden() {
    let upstream = upstream().await;
    let (receiver, at, _task) = Receiver::open("127.0.0.1:0").await;
    let house = House::start(&policy(&upstream), &spec(&at, ", states: [parked, denied]")).await;
    let call = in_background(&house, "crm__login", json!({"user": "ann", "password": "hunter2"}));
    let card = house.parked(1).await.remove(0);
    let got = receiver.when(1).await;
    let (headers, body) = &got[0];
    let told: Value = serde_json::from_str(body).unwrap();
    assert_eq!(told["type"], "approval.parked");
    assert_eq!(told["data"]["approval"]["id"], card["id"]);
    assert_eq!(told["data"]["approval"]["argumentsView"]["password"], "••••••");
    assert_eq!(told["data"]["approval"]["argumentsView"]["user"], "ann");
    assert_eq!(told["data"]["approval"]["digest"], Value::Null, "it would tell a short secret");
    let page = format!("{}/approve/{}", house.admin, card["id"].as_str().unwrap());
    assert_eq!(told["data"]["url"], page.as_str());
    assert!(!body.contains("hunter2"));

    assert!(verified(headers, body), "{headers:?} {body}");
    assert!(!verified(headers, &body.replace("ann", "bob")), "another body");
    let mut old = headers.clone();
    old.insert("webhook-timestamp", "1614265330".parse().unwrap());
    assert!(!verified(&old, body), "an old message sent again");
    let at: u64 = header(headers, "webhook-timestamp").parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(at) < 60);

    assert_eq!(house.decide(&card, "deny", Some("no")).await.0, 200);
    let got = receiver.when(2).await;
    assert!(got[1].1.contains("approval.denied"));
    assert_ne!(header(&got[0].0, "webhook-id"), header(&got[1].0, "webhook-id"));
    call.await.unwrap();
    let (_, metrics) = house.observe("/metrics").await;
    let counted = "portcullis_webhook_messages_total{webhook=\"ops\",outcome=\"delivered\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_taken_comes_again_in_order_also_after_a_restart() {
    let upstream = upstream().await;
    let (receiver, at, task) = Receiver::open("127.0.0.1:0").await;
    receiver.then([Answer::Status(503), Answer::Status(302)]);
    let house = House::start(&policy(&upstream), &spec(&at, "")).await;
    let _one = in_background(&house, "crm__refund", json!({"n": 1}));
    house.parked(1).await;
    let _two = in_background(&house, "crm__refund", json!({"n": 2}));
    house.parked(2).await;
    // Twice not taken, then taken, and then the next one: never out of turn.
    let got = receiver.when(4).await;
    let ids: Vec<_> = got.iter().map(|(headers, _)| header(headers, "webhook-id")).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    assert!(got[..3].iter().all(|(_, body)| body.contains("\"n\":1")), "{got:?}");
    for (headers, body) in &got {
        assert!(verified(headers, body), "each try is signed for its own time");
    }

    // Nobody is there while a call parks and the gateway is stopped and started again.
    task.abort();
    let _ = task.await;
    let _three = in_background(&house, "crm__refund", json!({"n": 3}));
    house.parked(3).await;
    let folder = house.stop().await;
    let (receiver, _, _task) = Receiver::open(&at).await;
    let house = House::from(folder).await.unwrap();
    let got = receiver.when(1).await;
    assert!(got[0].1.contains("\"n\":3"), "{got:?}");
    assert!(verified(&got[0].0, &got[0].1));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(receiver.got().len(), 1, "what was taken before does not come again");
    drop(house);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_holds_up_no_call_and_no_decision() {
    let upstream = upstream().await;
    let (receiver, at, _task) = Receiver::open("127.0.0.1:0").await;
    receiver.then([Answer::Never, Answer::Never]);
    let house = House::start(&policy(&upstream), &spec(&at, "")).await;
    let call = in_background(&house, "crm__refund", json!({"n": 1}));
    let card = house.parked(1).await.remove(0);
    receiver.when(1).await;
    assert_eq!(house.decide(&card, "approve", None).await.0, 200);
    call.await.unwrap();
    let began = std::time::Instant::now();
    house.stop().await;
    assert!(began.elapsed() < Duration::from_secs(5), "nor the end of the gateway");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_refused_again_and_again_is_given_up_and_the_next_one_comes() {
    let upstream = upstream().await;
    let (receiver, at, _task) = Receiver::open("127.0.0.1:0").await;
    receiver.then([Answer::Status(400); 5]);
    let house = House::start(&policy(&upstream), &spec(&at, "")).await;
    let _one = in_background(&house, "crm__refund", json!({"n": 1}));
    house.parked(1).await;
    let _two = in_background(&house, "crm__refund", json!({"n": 2}));
    // Pauses of 2, 4, 8 and 16 seconds lie between five tries.
    for _ in 0..60 {
        if receiver.got().len() >= 6 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let got = receiver.when(6).await;
    assert!(got[..5].iter().all(|(_, body)| body.contains("\"n\":1")), "{got:?}");
    assert!(got[5].1.contains("\"n\":2"));
    let (_, metrics) = house.observe("/metrics").await;
    let given_up = "portcullis_webhook_messages_total{webhook=\"ops\",outcome=\"given_up\"} 1";
    assert!(metrics.contains(given_up), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slack_gets_blocks_of_plain_text_and_a_link() {
    let upstream = upstream().await;
    let (receiver, at, _task) = Receiver::open("127.0.0.1:0").await;
    let spec =
        format!("  webhooks:\n    - {{name: slack, url: \"http://{at}/hook\", format: slack}}\n");
    let house = House::start(&policy(&upstream), &spec).await;
    let note = "<!channel> *bold* `x` <https://evil.example|click> \u{202e}";
    let long = "y".repeat(5_000);
    let _call = in_background(&house, "crm__refund", json!({"a_note": note, "long": long}));
    let card = house.parked(1).await.remove(0);
    let (headers, body) = receiver.when(1).await.remove(0);
    assert!(!headers.contains_key("webhook-signature"), "a Slack address is its own secret");
    let message: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(message["text"], "support asks for crm · refund");
    let mut texts = Vec::new();
    collect(&message["blocks"], &mut texts);
    assert!(texts.iter().all(|text| text["type"] == "plain_text"), "nothing is markup: {body}");
    let all = message["blocks"].to_string();
    assert!(all.contains("\\\\u{202e}") && all.contains("more characters on the page"), "{all}");
    assert!(texts.iter().all(|text| text["text"].as_str().unwrap().chars().count() <= 3_000));
    let page = format!("{}/approve/{}", house.admin, card["id"].as_str().unwrap());
    assert!(all.contains(&page), "{all}");
}

fn collect<'a>(value: &'a Value, texts: &mut Vec<&'a Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => {
            if members.get("text").is_some_and(Value::is_string) {
                texts.push(value);
            }
            members.values().for_each(|member| collect(member, texts));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_webhook_is_said_with_its_place() {
    let refused = |webhook: &str| {
        let folder = Folder::new();
        folder.write("gateway.yaml", &format!("apiVersion: portcullis.dev/v1\nkind: Gateway\nspec:\n  webhooks:\n    - {webhook}\n"));
        let path = folder.path().join("gateway.yaml");
        let error = portcullis::config::Config::load(Some(&path), &Default::default()).unwrap_err();
        error.to_string().replace(&path.display().to_string(), "gateway.yaml")
    };
    for (webhook, said) in [
        (
            "{name: a, url: \"http://hooks.example/x\", secret: abcdefghijklmnopqrstuvwxyz}",
            "gateway.yaml:5:22: error: `webhooks.url` is an `https` address",
        ),
        ("{name: a, url: \"https://hooks.example/x\"}", "a webhook needs `secret`"),
        (
            "{name: a, url: \"https://hooks.example/x\", secret: short}",
            "`webhooks.secret` is `whsec_`",
        ),
        (
            "{name: a, url: {fromEnv: NOT_SET_ANYWHERE}, format: slack}",
            "`webhooks.url`: the variable `NOT_SET_ANYWHERE` is not set",
        ),
        (
            "{name: a, url: \"https://hooks.example/x\", format: slak}",
            "`slak` is none of `json`, `slack`; did you mean `slack`?",
        ),
        (
            "{name: a, url: \"https://hooks.example/x\", format: slack, states: [parkd]}",
            "`parkd` is no state of an approval; did you mean `parked`?",
        ),
    ] {
        let text = refused(webhook);
        assert!(text.contains(said), "{text}\nhas not\n{said}");
    }
}
