//! What passes through, passes byte for byte.

use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Behave, Offer, Upstream};
use serde_json::json;

const ERAS: [Speaks; 2] = [Speaks::Modern, Speaks::Legacy("2025-11-25")];

fn policy(url: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - server: crm\n      allow: [get]\n      autoApprove: [get]\n      resources: [\"crm://customers/*\"]\n      prompts: [reply]\n---\napiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: other}}\nspec:\n  tools:\n    - {{server: crm, allow: [get], autoApprove: [get]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n"
    )
}

fn offer(upstream_is_modern: bool) -> Offer {
    let mut offer = Offer::tools(&["get", "refund"]);
    offer.modern = upstream_is_modern;
    offer.resources = r#"[{"uri":"crm://customers/1","name":"one","x":1.0},{"uri":"crm://secrets/1","name":"hidden"}]"#.to_owned();
    offer.templates = r#"[{"uriTemplate":"crm://customers/{id}","name":"customer"},{"uriTemplate":"crm://payroll/{id}","name":"hidden"}]"#.to_owned();
    offer.prompts =
        r#"[{"name":"reply","description":"Writes a reply"},{"name":"hidden"}]"#.to_owned();
    offer
}

async fn open(upstream_is_modern: bool) -> (House, Upstream) {
    let upstream = Upstream::start(offer(upstream_is_modern)).await;
    (house(&policy(&upstream.url)).await, upstream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_results_and_definitions_keep_their_bytes_in_all_four_cells() {
    let odd = [
        r#"{"n":100000000000000000001,"f":1.0,"e":1e400,"z":-0,"s":"\u0041\/\ud83d\ude00","o":{"b":1,"a":[ 1 , 2 ]}}"#,
        r#"{ "spaces" :  true }"#,
        r#"{}"#,
        r#"{"__proto__":{"name":"x"},"name":"refund","arguments":null,"":0}"#,
    ];
    for upstream_is_modern in [false, true] {
        let (house, upstream) = open(upstream_is_modern).await;
        for speaks in ERAS {
            let agent = house.agent("support", speaks.clone()).await;
            for arguments in odd {
                let params = format!(r#"{{"name":"crm__get","arguments":{arguments}}}"#);
                let answer = agent.raw("\"\\u0069d\"", "tools/call", &params).await.unwrap();
                assert_eq!(answer.says(), arguments, "{speaks:?} {}", answer.text);
                assert!(
                    answer.text.contains(r#""id":"\u0069d""#),
                    "the id keeps its spelling: {}",
                    answer.text
                );
                assert!(answer.text.contains(r#""x-kept":1.0"#), "{}", answer.text);
                assert_eq!(upstream.calls("get").last().map(String::as_str), Some(arguments));
                if speaks == Speaks::Modern {
                    assert_eq!(answer.result()["resultType"], "complete");
                }
            }
            let list = agent.raw("1", "tools/list", "{}").await.unwrap();
            assert!(list.text.contains(r#""x-vendor":{"kept":1.0}"#), "{}", list.text);
        }
        let absent = house
            .agent("support", Speaks::Modern)
            .await
            .raw("1", "tools/call", r#"{"name":"crm__get"}"#)
            .await
            .unwrap();
        assert!(!absent.is_error(), "{}", absent.text);
        assert_eq!(
            upstream.calls("get").last().map(String::as_str),
            Some(""),
            "absent stays absent"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vendor_metadata_passes_and_what_belongs_to_the_hop_does_not() {
    let (house, upstream) = open(true).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let params = r#"{"name":"crm__get","arguments":{},"vendorParam":{"a":1.0},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"secret-client","version":"1"},"com.example/x":1.0,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}"#;
    agent.raw("1", "tools/call", params).await.unwrap();
    let sent = upstream.received().into_iter().rfind(|r| r.method == "tools/call").unwrap();
    assert!(sent.body.contains(r#""vendorParam":{"a":1.0}"#), "{}", sent.body);
    assert!(sent.body.contains(r#""com.example/x":1.0"#), "{}", sent.body);
    assert!(
        sent.body.contains("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        "{}",
        sent.body
    );
    assert!(
        !sent.body.contains("sampling") && !sent.body.contains("secret-client"),
        "{}",
        sent.body
    );
    assert_eq!(sent.headers.get("mcp-name").map(String::as_str), Some("get"));
    assert_eq!(sent.headers.get("mcp-method").map(String::as_str), Some("tools/call"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_prompts_and_completion_are_reached_when_granted() {
    for upstream_is_modern in [false, true] {
        let (house, upstream) = open(upstream_is_modern).await;
        for speaks in ERAS {
            let agent = house.agent("support", speaks).await;
            lists(&agent).await;
            reads(&agent).await;
            let complete = json!({"ref": {"type": "ref/prompt", "name": "crm__reply"}, "argument": {"name": "a", "value": "o"}});
            let completed = agent.request("completion/complete", complete).await.unwrap();
            assert_eq!(completed.result()["completion"]["values"][0], "one", "{}", completed.text);
            let received = upstream.received();
            let sent = received.iter().rfind(|r| r.method == "completion/complete").unwrap();
            assert!(
                sent.body.contains(r#""name":"reply""#),
                "the native name goes upstream: {}",
                sent.body
            );
        }
    }
}

async fn lists(agent: &Agent) {
    let list =
        |method: &'static str| async move { agent.request(method, json!({})).await.unwrap().text };
    let resources = list("resources/list").await;
    assert!(
        resources.contains(r#"{"uri":"crm://customers/1","name":"one","x":1.0}"#),
        "{resources}"
    );
    assert!(!resources.contains("secrets"));
    let templates = list("resources/templates/list").await;
    assert!(
        templates.contains("crm://customers/{id}") && !templates.contains("payroll"),
        "{templates}"
    );
    let prompts = list("prompts/list").await;
    assert!(prompts.contains("crm__reply") && !prompts.contains("hidden"), "{prompts}");
}

async fn reads(agent: &Agent) {
    let read = |uri: &'static str| async move {
        agent.request("resources/read", json!({"uri": uri})).await.unwrap().text
    };
    assert!(read("crm://customers/1").await.contains(r#""x":1.0"#));
    assert!(read("crm://customers/77").await.contains("contents of it"), "a template covers it");
    let ask = json!({"name": "crm__reply", "arguments": {"a": "b"}});
    let prompt = agent.request("prompts/get", ask).await.unwrap();
    assert_eq!(prompt.result()["messages"][0]["content"]["text"], "reply", "{}", prompt.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_prompts_and_completion_are_refused_otherwise() {
    let template = |uri: &str| json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "id", "value": ""}});
    let uri = |uri: &str| json!({"uri": uri});
    let prompt = json!({"ref": {"type": "ref/prompt", "name": "crm__reply"}, "argument": {"name": "a", "value": ""}});
    let for_stranger = [
        ("resources/read", uri("crm://customers/1")),
        ("prompts/get", json!({"name": "crm__reply"})),
        ("completion/complete", prompt),
        ("completion/complete", template("crm://customers/{id}")),
    ];
    let for_all = [
        ("resources/read", uri("crm://secrets/1")),
        ("resources/read", uri("crm://nothing")),
        ("resources/read", uri("crm://payroll/7")),
        ("resources/read", uri("crm://customers/../payroll/7")),
        ("resources/read", uri("crm://customers/7/orders")),
        ("prompts/get", json!({"name": "crm__hidden"})),
        ("prompts/get", json!({"name": "crm__nothing"})),
        ("completion/complete", template("crm://payroll/{id}")),
    ];
    for upstream_is_modern in [false, true] {
        let (house, upstream) = open(upstream_is_modern).await;
        for speaks in ERAS {
            let agent = house.agent("support", speaks.clone()).await;
            let stranger = house.agent("other", speaks).await;
            let before = upstream.received().len();
            let asked = for_stranger.iter().chain(&for_all).map(|ask| (&stranger, ask));
            for (who, (method, params)) in asked.chain(for_all.iter().map(|ask| (&agent, ask))) {
                let answer = who.request(method, params.clone()).await.unwrap();
                assert_eq!(
                    (answer.status, answer.code()),
                    (200, -32602),
                    "{method} {}",
                    answer.text
                );
            }
            assert_eq!(upstream.received().len(), before, "nothing of it went upstream");
            for method in ["resources/list", "resources/templates/list", "prompts/list"] {
                assert!(!stranger.request(method, json!({})).await.unwrap().text.contains("crm"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_passes_under_the_agents_own_token() {
    for upstream_is_modern in [false, true] {
        let (house, upstream) = open(upstream_is_modern).await;
        upstream.set(|offer| offer.behave = Behave::Progress);
        for speaks in ERAS {
            let agent = house.agent("support", speaks.clone()).await;
            let meta = match speaks {
                Speaks::Modern => {
                    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"mine"}"#
                }
                Speaks::Legacy(_) => r#"{"progressToken":"mine"}"#,
            };
            let params = format!(r#"{{"name":"crm__get","arguments":{{}},"_meta":{meta}}}"#);
            let answer = agent.raw("5", "tools/call", &params).await.unwrap();
            assert_eq!(answer.says(), "{}", "{}", answer.text);
            assert_eq!(answer.notifications.len(), 3, "{:?}", answer.notifications);
            for (step, note) in answer.notifications.iter().enumerate() {
                assert_eq!(note["params"]["progressToken"], "mine");
                assert_eq!(note["params"]["progress"], step + 1);
                assert_eq!(note["params"]["x"], 1.0);
            }
            let sent = upstream.received().into_iter().rfind(|r| r.method == "tools/call").unwrap();
            assert!(
                !sent.body.contains("mine"),
                "the upstream sees a token of the gateway's: {}",
                sent.body
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellation_passes() {
    let upstream = Upstream::start(offer(false).behave(Behave::Hang)).await;
    let house = house(&policy(&upstream.url)).await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let call = {
        let agent = agent.clone();
        tokio::spawn(async move {
            agent.raw("\"c-1\"", "tools/call", r#"{"name":"crm__get","arguments":{}}"#).await
        })
    };
    wait_for(|| upstream.calls("get").len() == 1).await;
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c-1"}}"#;
    assert_eq!(agent.post(cancel, &[]).await.unwrap().status, 202);
    let _ = call.await;
    wait_for(|| upstream.received().iter().any(|r| r.method == "notifications/cancelled")).await;
    // A late cancel of a finished call is harmless.
    upstream.set(|offer| offer.behave = Behave::Echo);
    assert!(!agent.call("crm__get", json!({})).await.unwrap().is_error());
    let late = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(agent.post(late, &[]).await.unwrap().status, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_ids_in_flight_never_cross() {
    let (house, _upstream) = open(false).await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let calls: Vec<_> = (0..64)
        .map(|n| {
            let agent = agent.clone();
            tokio::spawn(async move { (n, agent.call("crm__get", json!({"n": n})).await.unwrap()) })
        })
        .collect();
    for call in calls {
        let (n, answer) = call.await.unwrap();
        assert_eq!(answer.says(), format!("{{\"n\":{n}}}"));
        assert_eq!(answer.json()["id"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_is_shown_does_not_change_by_itself() {
    let upstream = Upstream::start(offer(false)).await;
    let house = house(&policy(&upstream.url)).await;
    let shown = |house: &House| {
        let (url, token) = (house.url("support"), house.token("support"));
        async move {
            let agent = portcullis_tests::agent::Agent::connect(&url, &token, Speaks::Modern)
                .await
                .unwrap();
            let list = agent.raw("1", "tools/list", "{}").await.unwrap().text;
            (agent.hello.to_string(), list)
        }
    };
    let first = shown(&house).await;
    assert_eq!(shown(&house).await, first);
    // What other agents may use leaves no trace, and neither does a restart.
    upstream.set(|offer| offer.tools = Offer::tools(&["zzz", "get", "refund", "more"]).tools);
    let house = House::from(house.stop().await).await.unwrap();
    assert_eq!(shown(&house).await, first);
}

async fn wait_for(done: impl Fn() -> bool) {
    for _ in 0..200 {
        if done() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("what was waited for did not happen");
}
