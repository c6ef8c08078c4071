//! Bad input at the envelope: a clear answer, nothing forwarded, the process alive.

use portcullis_tests::agent::{Agent, Answer, MODERN, Speaks};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::json;

const ERAS: [Speaks; 3] =
    [Speaks::Modern, Speaks::Legacy("2025-11-25"), Speaks::Legacy("2025-06-18")];

async fn open() -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let policy = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [get], autoApprove: [get]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    );
    (house(&policy).await, upstream)
}

/// Posts a body with the headers of a well-formed call.
async fn post(agent: &Agent, speaks: &Speaks, body: &str) -> Answer {
    let mut headers = agent.headers();
    if *speaks == Speaks::Modern {
        headers.push(("mcp-method", "tools/call".to_owned()));
        headers.push(("mcp-name", "crm__get".to_owned()));
    }
    agent.post(body, &headers).await.unwrap()
}

fn call(agent: &Agent, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}}"#,
        agent.with_meta(params)
    )
}

type Headers = Vec<(&'static str, String)>;

/// Bodies that are not one well-formed call, each with its name.
fn misshapen(agent: &Agent) -> Vec<(&'static str, String)> {
    let good = r#"{"name":"crm__get","arguments":{}}"#;
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    vec![
        ("duplicate name", call(agent, r#"{"name":"crm__get","name":"crm__refund"}"#)),
        ("escaped duplicate", call(agent, r#"{"name":"crm__get","n\u0061me":"crm__refund"}"#)),
        (
            "duplicate arguments",
            call(agent, r#"{"name":"crm__get","arguments":{},"arguments":{"a":1}}"#),
        ),
        (
            "duplicate deep in arguments",
            call(agent, r#"{"name":"crm__get","arguments":{"a":[{"b":1,"b":2}]}}"#),
        ),
        (
            "duplicate method",
            call(agent, good).replacen("\"id\":1", "\"id\":1,\"method\":\"ping\"", 1),
        ),
        ("upper-case name", call(agent, r#"{"name":"crm__get","Name":"crm__refund"}"#)),
        ("long s", call(agent, good).replacen("\"params\"", "\"param\u{17f}\":{},\"params\"", 1)),
        ("zero width", call(agent, "{\"name\":\"crm__get\",\"argu\u{200b}ments\":{}}")),
        ("no id", call(agent, good).replacen("\"id\":1,", "", 1)),
        ("id null", call(agent, good).replacen("\"id\":1", "\"id\":null", 1)),
        ("id 1.0", call(agent, good).replacen("\"id\":1", "\"id\":1.0", 1)),
        ("id object", call(agent, good).replacen("\"id\":1", "\"id\":{}", 1)),
        ("no jsonrpc", call(agent, good).replacen("\"jsonrpc\":\"2.0\",", "", 1)),
        ("method and result", call(agent, good).replacen("\"id\":1", "\"id\":1,\"result\":{}", 1)),
        ("a response", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned()),
        ("batch", format!("[{}]", call(agent, good))),
        ("empty batch", "[]".to_owned()),
        ("two objects", format!("{0}{0}", call(agent, good))),
        ("half an object", call(agent, good).chars().take(60).collect()),
        ("empty", String::new()),
        ("byte order mark", format!("\u{feff}{}", call(agent, good))),
        ("lone surrogate", call(agent, r#"{"name":"crm__get","arguments":{"a":"\ud800"}}"#)),
        ("too deep", call(agent, &format!(r#"{{"name":"crm__get","arguments":{{"a":{deep}}}}}"#))),
        (
            "long number",
            call(
                agent,
                &format!(r#"{{"name":"crm__get","arguments":{{"a":{}}}}}"#, "9".repeat(1000)),
            ),
        ),
        ("trailing comma", call(agent, r#"{"name":"crm__get",}"#)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_fully_understood_is_refused_and_not_forwarded() {
    let (house, upstream) = open().await;
    for speaks in ERAS {
        let agent = house.agent("support", speaks.clone()).await;
        for (what, body) in misshapen(&agent) {
            let answer = post(&agent, &speaks, &body).await;
            assert_eq!(answer.status, 400, "{what} ({speaks:?}): {}", answer.text);
            assert_eq!(answer.text.lines().count(), 1, "{what}: one line");
        }
        let params = [
            r#"{"name":7}"#,
            r#"{"name":"crm__get","arguments":[]}"#,
            r#"{"name":"crm__get","arguments":null}"#,
            r#"{"arguments":{}}"#,
        ];
        for params in params {
            let body = call(&agent, params);
            let answer = agent.post(&body, &modern_headers(&agent, &speaks, params)).await.unwrap();
            assert!(
                answer.code() == -32602 || answer.code() == -32020,
                "{params} {speaks:?}: {}",
                answer.text
            );
        }
        // Still alive, and the same agent goes on.
        assert_eq!(agent.call("crm__get", json!({"ok": 1})).await.unwrap().says(), r#"{"ok":1}"#);
    }
    assert_eq!(upstream.calls("get").len(), ERAS.len());
    assert!(upstream.calls("refund").is_empty());
}

fn modern_headers(agent: &Agent, speaks: &Speaks, params: &str) -> Vec<(&'static str, String)> {
    let mut headers = agent.headers();
    if *speaks == Speaks::Modern {
        headers.push(("mcp-method", "tools/call".to_owned()));
        if params.contains("crm__get") {
            headers.push(("mcp-name", "crm__get".to_owned()));
        }
    }
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_methods_are_never_forwarded() {
    let (house, upstream) = open().await;
    let before = upstream.received().len();
    for speaks in ERAS {
        let agent = house.agent("support", speaks.clone()).await;
        for method in [
            "x/exec",
            "tools/Call",
            "TOOLS/LIST",
            "tasks/list",
            "tasks/result",
            "resources/subscribe",
            "sampling/createMessage",
        ] {
            let answer = agent.raw("7", method, "{}").await.unwrap();
            assert_eq!(answer.code(), -32601, "{method} {speaks:?}: {}", answer.text);
            assert_eq!(answer.json()["id"], 7);
            assert_eq!(answer.status, if speaks == Speaks::Modern { 404 } else { 200 });
        }
        let body = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        assert_eq!(agent.post(body, &[]).await.unwrap().status, 202);
    }
    let fresh: Vec<_> = upstream.received().split_off(before);
    assert!(
        fresh.iter().all(|r| r.method != "x/exec" && !r.method.starts_with("notifications/x")),
        "{fresh:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_are_capped_before_anything_is_understood() {
    let (house, upstream) = open().await;
    let agent = house.agent("support", Speaks::Modern).await;
    let big = "x".repeat(5 * 1024 * 1024);
    let body = call(&agent, &format!(r#"{{"name":"crm__get","arguments":{{"a":"{big}"}}}}"#));
    let answer = post(&agent, &Speaks::Modern, &body).await;
    assert_eq!(answer.status, 413);
    assert!(answer.text.contains("limits.requestBytes"), "{}", answer.text);
    let many = (0..300_000).map(|i| format!("\"k{i}\":1")).collect::<Vec<_>>().join(",");
    let body = call(&agent, &format!(r#"{{"name":"crm__get","arguments":{{{many}}}}}"#));
    assert_eq!(post(&agent, &Speaks::Modern, &body).await.status, 400);
    assert!(upstream.calls("get").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_era_is_told_by_the_request_and_headers_must_agree() {
    let (house, upstream) = open().await;
    let agent = house.agent("support", Speaks::Modern).await;
    let body = call(&agent, r#"{"name":"crm__get","arguments":{}}"#);
    let version = ("mcp-protocol-version", MODERN.to_owned());
    let method = ("mcp-method", "tools/call".to_owned());
    let name = ("mcp-name", "crm__get".to_owned());
    let cases: Vec<(&str, Headers, i64)> = vec![
        ("no version header", vec![("x-none", String::new())], -32020),
        ("no method header", vec![version.clone(), name.clone()], -32020),
        ("no name header", vec![version.clone(), method.clone()], -32020),
        (
            "other name",
            vec![version.clone(), method.clone(), ("mcp-name", "read_file".to_owned())],
            -32020,
        ),
        (
            "other method",
            vec![version.clone(), name.clone(), ("mcp-method", "tools/list".to_owned())],
            -32020,
        ),
        (
            "method in other case",
            vec![version.clone(), name.clone(), ("mcp-method", "Tools/Call".to_owned())],
            -32020,
        ),
        (
            "repeated version",
            vec![version.clone(), version.clone(), method.clone(), name.clone()],
            -32020,
        ),
        (
            "other version",
            vec![("mcp-protocol-version", "2025-11-25".to_owned()), method.clone(), name.clone()],
            -32020,
        ),
    ];
    for (what, headers, code) in cases {
        let answer = agent.post(&body, &headers).await.unwrap();
        assert_eq!((answer.status, answer.code()), (400, code), "{what}: {}", answer.text);
    }
    let future = body.replace(MODERN, "2031-01-01");
    let headers = [("mcp-protocol-version", "2031-01-01".to_owned()), method.clone(), name.clone()];
    let answer = agent.post(&future, &headers).await.unwrap();
    assert_eq!((answer.status, answer.code()), (400, -32022));
    assert_eq!(answer.json()["error"]["data"]["requested"], "2031-01-01");
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let answer = agent
        .post(bare, &[version.clone(), ("mcp-method", "tools/list".to_owned())])
        .await
        .unwrap();
    assert_eq!((answer.status, answer.code()), (400, -32602), "{}", answer.text);
    // The name may travel encoded.
    let encoded = ("mcp-name", "=?base64?Y3JtX19nZXQ=?=".to_owned());
    let answer = agent.post(&body, &[version, method, encoded]).await.unwrap();
    assert_eq!(answer.says(), "{}", "{}", answer.text);
    assert_eq!(upstream.calls("get").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_revision_refuses_alike() {
    let (house, upstream) = open().await;
    let mut texts = Vec::new();
    for speaks in [
        Speaks::Modern,
        Speaks::Legacy("2025-11-25"),
        Speaks::Legacy("2025-06-18"),
        Speaks::Legacy("2025-03-26"),
        Speaks::Legacy("2024-11-05"),
    ] {
        let agent = house.agent("support", speaks).await;
        let hidden = agent.call("crm__refund", json!({})).await.unwrap();
        let unknown = agent.call("crm__nothing", json!({})).await.unwrap();
        assert!(hidden.is_error() && unknown.is_error());
        assert_eq!(
            hidden.text.replace("crm__refund", "X"),
            unknown.text.replace("crm__nothing", "X")
        );
        texts.push(hidden.says());
    }
    texts.dedup();
    insta::assert_snapshot!(texts.join("\n"), @"`crm__refund` is not available to agent `support`, and nothing was sent. Servers it may use: crm. Tools: crm__get. Do not repeat this call.");
    assert!(upstream.calls("refund").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_belong_to_the_credential_that_opened_them() {
    let (house, _upstream) = open().await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let session = agent.session().unwrap().to_owned();
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let none = agent.post(list, &[("x-none", String::new())]).await.unwrap();
    assert_eq!(none.status, 400, "{}", none.text);
    let forged = agent.post(list, &[("mcp-session-id", "ses_forged".to_owned())]).await.unwrap();
    assert_eq!(forged.status, 404);
    let wrong =
        [("mcp-session-id", session.clone()), ("mcp-protocol-version", "1999-01-01".to_owned())];
    assert_eq!(agent.post(list, &wrong).await.unwrap().status, 400);
    let http = reqwest::Client::new();
    let request = |method: reqwest::Method| {
        http.request(method, house.url("support"))
            .bearer_auth(house.token("support"))
            .header("mcp-session-id", &session)
    };
    assert_eq!(request(reqwest::Method::DELETE).send().await.unwrap().status(), 204);
    assert_eq!(agent.post(list, &[]).await.unwrap().status, 404);
    assert_eq!(request(reqwest::Method::GET).send().await.unwrap().status(), 404);
    assert_eq!(request(reqwest::Method::PUT).send().await.unwrap().status(), 405);
}
