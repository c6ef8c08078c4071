//! Who may come in at all: Host, Origin, route, token.

use portcullis_tests::agent::Speaks;
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::json;

async fn open() -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get", "whoami"])).await;
    let agent = |name: &str, tool: &str| {
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n    - {{server: crm, allow: [{tool}], autoApprove: [{tool}]}}\n---\n"
        )
    };
    let policy = format!(
        "{}{}apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\", headers: {{Authorization: \"Bearer upstream-secret\"}}}}}}\n",
        agent("support", "get"),
        agent("other", "whoami"),
        upstream.url
    );
    (house(&policy).await, upstream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_decides_and_nothing_else() {
    let (house, upstream) = open().await;
    let http = reqwest::Client::new();
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"other","version":"1"}}}"#;
    let post = |path: &str, token: Option<&str>| {
        let mut request = http
            .post(format!("{}{path}", house.agents))
            .header("content-type", "application/json")
            .body(list);
        if let Some(token) = token {
            request = request.header("authorization", token.to_owned());
        }
        request.send()
    };
    let support = format!("Bearer {}", house.token("support"));
    let cut = support.get(..support.len() - 1).unwrap();
    for wrong in [None, Some("Bearer nonsense"), Some("Bearer "), Some(cut), Some("Basic eDp5")] {
        let response = post("/mcp", wrong).await.unwrap();
        assert_eq!(response.status(), 401, "{wrong:?}");
        assert!(response.headers().contains_key("www-authenticate"));
    }
    let other = format!("Bearer {}", house.token("other"));
    assert_eq!(post("/a/support/mcp", Some(&other)).await.unwrap().status(), 403);
    assert_eq!(post("/a/nobody/mcp", Some(&other)).await.unwrap().status(), 403);
    // A token whose agent no file defines may use nothing.
    let a1 = format!("Bearer {}", house.token("a1"));
    assert_eq!(post("/mcp", Some(&a1)).await.unwrap().status(), 403);
    for path in [
        "/",
        "//mcp",
        "/mcp/",
        "/MCP",
        "/mcp;x",
        "/mcp/../mcp",
        "/./mcp",
        "/%6dcp",
        "/mcp%00",
        "/a/support/mcp/x",
        "/a/support/../other/mcp",
        "/mcp?agent=other",
        "/v1/approvals",
    ] {
        // Raw bytes: an HTTP client would tidy the path up before it is sent.
        assert_eq!(status_of(&house, path, &support).await, 404, "{path}");
    }
    for path in
        ["/mcp", "/a/support/mcp", "/a/SUPPORT/mcp", "/a/support/s/crm/mcp", "/a/support/s/CRM/mcp"]
    {
        assert_eq!(post(path, Some(&support)).await.unwrap().status(), 200, "{path}");
    }
    // Neither an argument nor metadata names another agent.
    let agent = house.agent("support", Speaks::Modern).await;
    let answer =
        agent.call("crm__whoami", json!({"agent_id": "other", "agent": "other"})).await.unwrap();
    assert!(answer.is_error());
    assert!(upstream.calls("whoami").is_empty());
}

async fn status_of(house: &House, path: &str, authorization: &str) -> u16 {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let host = house.agents.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {authorization}\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeclared_and_nonexistent_servers_answer_alike() {
    let (house, _upstream) = open().await;
    let http = reqwest::Client::new();
    let mut bodies = Vec::new();
    for server in ["billing", "nothing-at-all"] {
        let url = format!("{}/a/support/s/{server}/mcp", house.agents);
        let response =
            http.post(url).bearer_auth(house.token("support")).body("{}").send().await.unwrap();
        assert_eq!(response.status(), 404);
        bodies.push(response.text().await.unwrap());
    }
    assert_eq!(bodies[0], bodies[1]);
    assert!(bodies[0].contains("Servers it may use: crm"), "{}", bodies[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_one_server_endpoint_has_native_names() {
    let (house, upstream) = open().await;
    let url = format!("{}/a/support/s/crm/mcp", house.agents);
    let agent =
        portcullis_tests::agent::Agent::connect(&url, &house.token("support"), Speaks::Modern)
            .await
            .unwrap();
    assert_eq!(agent.tools().await.unwrap(), ["get"]);
    assert_eq!(agent.call("get", json!({"a": 1})).await.unwrap().says(), r#"{"a":1}"#);
    assert!(agent.call("whoami", json!({})).await.unwrap().is_error());
    assert!(agent.call("crm__get", json!({})).await.unwrap().is_error());
    assert_eq!(upstream.calls("get"), [r#"{"a":1}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_hosts_origins_and_forms_are_turned_away() {
    let (house, upstream) = open().await;
    let http = reqwest::Client::new();
    let own = house.agents.strip_prefix("http://").unwrap().to_owned();
    let port = own.rsplit_once(':').unwrap().1.to_owned();
    let post = |headers: Vec<(&'static str, String)>| {
        let mut request = http
            .post(format!("{}/mcp", house.agents))
            .bearer_auth(house.token("support"))
            .body("{}");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send()
    };
    let json = || ("content-type", "application/json".to_owned());
    for headers in [
        vec![("host", "evil.example".to_owned()), json()],
        vec![("host", format!("localhost.evil:{port}")), json()],
        vec![("host", "localhost".to_owned()), json()],
        vec![("origin", "http://evil.example".to_owned()), json()],
        vec![("origin", "null".to_owned()), json()],
        vec![
            ("origin", format!("http://{own}")),
            ("origin", "http://evil.example".to_owned()),
            json(),
        ],
        vec![("host", "evil.example".to_owned()), ("origin", format!("http://{own}")), json()],
    ] {
        assert_eq!(post(headers.clone()).await.unwrap().status(), 403, "{headers:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        assert_eq!(
            post(vec![("content-type", kind.to_owned())]).await.unwrap().status(),
            415,
            "{kind}"
        );
    }
    assert_eq!(
        post(vec![json(), ("content-encoding", "gzip".to_owned())]).await.unwrap().status(),
        415
    );
    assert_eq!(
        post(vec![("origin", format!("http://localhost:{port}")), json()]).await.unwrap().status(),
        400
    );
    assert!(upstream.calls("get").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_never_cross() {
    let (house, upstream) = open().await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    agent.call("crm__get", json!({})).await.unwrap();
    let token = house.token("support");
    for request in upstream.received() {
        assert_eq!(
            request.headers.get("authorization").map(String::as_str),
            Some("Bearer upstream-secret")
        );
        let all = format!("{:?}{}", request.headers, request.body);
        assert!(!all.contains(&token) && !all.contains("support"), "{all}");
    }
    let audit = format!("{:?}", house.audit());
    let metrics = house.observe("/metrics").await.1;
    for place in [audit, metrics] {
        assert!(!place.contains(&token) && !place.contains("upstream-secret"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_token_opens_no_admin_door() {
    let (house, _upstream) = open().await;
    let card = json!({"decision": "approve", "digest": "sha256:00"});
    for (method, path) in
        [("GET", "/v1/approvals"), ("GET", "/v1/agents"), ("POST", "/v1/approvals/apr_x/decision")]
    {
        let (status, _) =
            house.api_as(&house.token("support"), method, path, Some(card.clone())).await;
        assert_eq!(status, 401, "{method} {path}");
        let (status, _) = house.api_as("", method, path, Some(card.clone())).await;
        assert_eq!(status, 401, "{method} {path}");
    }
    assert_eq!(house.api("GET", "/v1/approvals", None).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_this_machine_comes_in_only_where_the_operator_said_so_and_decides_nothing()
{
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let policy = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [get, refund], autoApprove: [get]}}\n    - subAgent: {{name: helper, description: Helps., templateRef: {{name: other}}}}\n---\napiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: other}}\nspec:\n  tools:\n    - {{server: crm, allow: [get]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    );
    let folder = House::folder(&policy, "");
    let yaml = std::fs::read_to_string(folder.path().join("gateway.yaml")).unwrap();
    let open = yaml.replace("tokenFile:", "loopbackWithoutToken: true, tokenFile:");
    folder.write("gateway.yaml", &open);
    let house = House::from(folder).await.unwrap();
    let url = house.url("support");
    let connect = |url: String| async move {
        portcullis_tests::agent::Agent::connect(&url, "", Speaks::Modern).await
    };
    let agent = connect(url.clone()).await.unwrap();
    assert_eq!(agent.tools().await.unwrap(), ["crm__get", "crm__refund", "approval_status"]);
    assert_eq!(agent.call("crm__get", json!({})).await.unwrap().says(), "{}");
    assert!(agent.call("run_start", json!({"subAgent": "helper"})).await.unwrap().is_error());
    // With a token it is who the token says, with all that belongs to it.
    let proven = house.agent("support", Speaks::Modern).await;
    assert!(proven.tools().await.unwrap().contains(&"run_start".to_owned()));
    // No name in the URL, no run, nobody behind a proxy, and a wrong token is no missing one.
    let http = reqwest::Client::new();
    let run = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
    let post = |url: &str, header: Option<(&'static str, &'static str)>| {
        let request = http.post(url).header("content-type", "application/json").body(body);
        let request = match header {
            Some((name, value)) => request.header(name, value),
            None => request,
        };
        request.send()
    };
    let inside = run["url"].as_str().unwrap();
    assert_eq!(post(&format!("{}/mcp", house.agents), None).await.unwrap().status(), 401);
    assert_eq!(post(inside, None).await.unwrap().status(), 404);
    for header in [
        ("x-forwarded-for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("authorization", "Bearer x"),
    ] {
        assert_eq!(post(&url, Some(header)).await.unwrap().status(), 401, "{header:?}");
    }
    assert_eq!(post(&url, None).await.unwrap().status(), 200);
    assert_eq!(house.api_as("", "GET", "/v1/approvals", None).await.0, 401);
    // What waits for it survives a restart, as for anyone.
    let agent = connect(url).await.unwrap();
    let held = tokio::spawn(async move { agent.call("crm__refund", json!({})).await });
    house.parked(1).await;
    let house = House::from(house.stop().await).await.unwrap();
    drop(held);
    let agent = connect(house.url("support")).await.unwrap();
    let held = tokio::spawn(async move { agent.call("crm__refund", json!({})).await });
    let cards = house.parked(1).await;
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), "{}");
}
