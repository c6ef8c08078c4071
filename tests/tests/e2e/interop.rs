//! Real client libraries through the gateway to real servers, in every pairing of eras.

use portcullis_tests::driver::{Driver, inspect, program};
use portcullis_tests::fixture::{self, Era, Fixture};
use portcullis_tests::house::{Folder, House};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// All that a gateway with real servers behind it needs to stay alive.
struct World {
    house: House,
    _everything: Child,
    fixture: Fixture,
    _files: Folder,
    _fixture: tokio::task::JoinHandle<()>,
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn world() -> World {
    let files = Folder::new();
    files.write("shared/hello.txt", "hello from a file\n");
    files.write("repo/README", "x\n");
    let shared = files.path().join("shared");
    let repo = files.path().join("repo");
    git(&repo, &["init", "-q"]);
    git(&repo, &["add", "."]);
    git(&repo, &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "first"]);
    let port = free_port();
    let everything = Command::new(program("mcp-server-everything"))
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let fixture = Fixture::new(Era::Modern);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let modern = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = {
        let fixture = fixture.clone();
        tokio::spawn(async move {
            let _ = fixture::serve_http(listener, fixture).await;
        })
    };
    wait_for_port(port).await;
    let server = |name: &str, how: &str| {
        format!(
            "---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: {name}}}\nspec: {{{how}}}\n"
        )
    };
    let stdio = |name: &str, args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| format!("\"{arg}\"")).collect();
        format!("stdio: {{command: \"{}\", args: [{}]}}", program(name).display(), args.join(", "))
    };
    let policy = [
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {name: support}\nspec:\n  tools:\n".to_owned(),
        "    - {server: everything, allow: [echo, get-sum], autoApprove: [echo]}\n".to_owned(),
        "    - {server: everything-http, allow: [echo, get-sum], autoApprove: [echo]}\n".to_owned(),
        "    - {server: files, allow: [read_text_file, list_directory], autoApprove: [read_text_file]}\n".to_owned(),
        "    - {server: git, allow: [git_log], autoApprove: [git_log]}\n".to_owned(),
        "    - {server: time, allow: [get_current_time], autoApprove: \"*\"}\n".to_owned(),
        "    - {server: modern, allow: [echo, count], autoApprove: [echo]}\n".to_owned(),
        server("everything", &stdio("mcp-server-everything", &[])),
        server("everything-http", &format!("http: {{url: \"http://127.0.0.1:{port}/mcp\"}}")),
        server("files", &stdio("mcp-server-filesystem", &[&shared.display().to_string()])),
        server("git", &stdio("mcp-server-git", &["--repository", &repo.display().to_string()])),
        server("time", &stdio("mcp-server-time", &["--local-timezone", "UTC"])),
        server("modern", &format!("http: {{url: \"{modern}\"}}")),
    ];
    let house = House::start(&policy.concat(), "").await;
    World { house, _everything: everything, fixture, _files: files, _fixture: serving }
}

fn git(folder: &std::path::Path, args: &[&str]) {
    let done = std::process::Command::new("git").arg("-C").arg(folder).args(args).status().unwrap();
    assert!(done.success(), "git {args:?}");
}

async fn wait_for_port(port: u16) {
    for _ in 0..400 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nothing listens on {port}");
}

const TOOLS: &[&str] = &[
    "everything-http__echo",
    "everything-http__get-sum",
    "everything__echo",
    "everything__get-sum",
    "files__list_directory",
    "files__read_text_file",
    "git__git_log",
    "modern__count",
    "modern__echo",
    "time__get_current_time",
    "approval_status",
];

async fn all_there(world: &World) {
    for _ in 0..600 {
        let view = world.house.api("GET", "/v1/agents/support", None).await.1;
        if view["tools"].as_array().is_some_and(|tools| tools.len() == TOOLS.len() - 1) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not all servers came up: {}", world.house.api("GET", "/v1/diagnostics", None).await.1);
}

fn text(answer: &Value) -> &str {
    answer["text"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_library_lists_calls_is_refused_parks_and_collects() {
    let world = world().await;
    all_there(&world).await;
    let libraries = [
        ("py2", "2026-07-28"),
        ("py1", "2025-11-25"),
        ("fastmcp", "2026-07-28"),
        ("ts1", "2025-11-25"),
        ("ts2", "2026-07-28"),
    ];
    for (number, (library, protocol)) in libraries.into_iter().enumerate() {
        let url = world.house.url("support");
        let mut driver = Driver::connect(library, &url, &world.house.token("support")).await;
        assert_eq!(driver.hello["protocol"], protocol, "{library}");
        assert!(
            driver.hello["instructions"]
                .as_str()
                .unwrap_or_default()
                .contains("You are agent `support`"),
            "{library}"
        );
        assert_eq!(driver.tools().await, TOOLS, "{library}");
        calls_run(&mut driver, library).await;
        let refused = driver.call("everything__get-env", json!({})).await;
        assert_eq!(refused["isError"], true, "{library}: {refused}");
        assert!(
            text(&refused).contains("is not available to agent `support`"),
            "{library}: {refused}"
        );
        for server in ["everything", "everything-http"] {
            parks_and_decides(&world, &mut driver, (library, server), number).await;
        }
        let key = format!("{library}-{number}");
        let (counted, _) = tokio::join!(
            driver.call("modern__count", json!({"key": key})),
            decide(&world, "approve", None)
        );
        assert_eq!(counted["isError"], false, "{library}: {counted}");
        assert_eq!(world.fixture.executions(&key), 1, "{library}");
    }
}

async fn calls_run(driver: &mut Driver, library: &str) {
    for server in ["everything", "everything-http"] {
        let echoed = driver.call(&format!("{server}__echo"), json!({"message": "héllo"})).await;
        assert!(text(&echoed).contains("héllo"), "{library} {server}: {echoed}");
    }
    let read = driver.call("files__read_text_file", json!({"path": "hello.txt"})).await;
    // The server wants a path it may read; relative ones start at its own folder.
    assert!(
        read["isError"] == true || text(&read).contains("hello from a file"),
        "{library}: {read}"
    );
    let log = driver.call("git__git_log", json!({"repo_path": ".", "max_count": 1})).await;
    assert!(log.get("error").is_none(), "{library}: {log}");
    let time = driver.call("time__get_current_time", json!({"timezone": "UTC"})).await;
    assert!(text(&time).contains("UTC"), "{library}: {time}");
    let modern = driver.call("modern__echo", json!({"n": 1.5, "s": "x"})).await;
    assert!(text(&modern).contains("1.5"), "{library}: {modern}");
}

async fn parks_and_decides(
    world: &World,
    driver: &mut Driver,
    (library, server): (&str, &str),
    number: usize,
) {
    let name = format!("{server}__get-sum");
    let (approved, _) = tokio::join!(
        driver.call(&name, json!({"a": number, "b": 40})),
        decide(world, "approve", None)
    );
    assert!(text(&approved).contains(&(number + 40).to_string()), "{library} {server}: {approved}");
    let (denied, _) = tokio::join!(
        driver.call(&name, json!({"a": number, "b": 50})),
        decide(world, "deny", Some("not this month"))
    );
    assert_eq!(denied["isError"], true, "{library} {server}: {denied}");
    assert!(text(&denied).contains("not this month"), "{library} {server}: {denied}");
}

async fn decide(world: &World, decision: &str, reason: Option<&str>) {
    let cards = world.house.parked(1).await;
    let (status, answer) = world.house.decide(&cards[0], decision, reason).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rmcp_client_and_the_inspector_work_too() {
    let world = world().await;
    all_there(&world).await;
    rmcp_client(&world).await;
    inspector(&world).await;
}

async fn rmcp_client(world: &World) {
    use rmcp::ServiceExt as _;
    use rmcp::model::CallToolRequestParams;
    use rmcp::transport::StreamableHttpClientTransport;
    use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
    let config = StreamableHttpClientTransportConfig::with_uri(world.house.url("support"))
        .auth_header(world.house.token("support"));
    let client = ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
    let mut names: Vec<String> =
        client.list_all_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
    names.sort();
    let mut expected: Vec<&str> = TOOLS.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let call = |name: &'static str, arguments: Value| {
        let mut params = CallToolRequestParams::new(name);
        params.arguments = arguments.as_object().cloned();
        client.call_tool(params)
    };
    let echoed = call("modern__echo", json!({"a": 1})).await.unwrap();
    assert_ne!(echoed.is_error, Some(true));
    let refused = call("everything__get-env", json!({})).await.unwrap();
    assert_eq!(refused.is_error, Some(true));
    let (sum, ()) = tokio::join!(
        call("everything__get-sum", json!({"a": 2, "b": 3})),
        decide(world, "approve", None)
    );
    assert!(format!("{:?}", sum.unwrap()).contains('5'));
    let denied = tokio::join!(
        call("everything__get-sum", json!({"a": 2, "b": 4})),
        decide(world, "deny", Some("no more sums"))
    )
    .0;
    assert!(format!("{:?}", denied.unwrap()).contains("no more sums"));
    client.cancel().await.unwrap();
}

async fn inspector(world: &World) {
    let home = Folder::new();
    let (url, token) = (world.house.url("support"), world.house.token("support"));
    let run = async |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        inspect(&url, &token, &home, &words).await
    };
    let list = run(&["--method", "tools/list"]).await;
    assert!(list.contains("everything__echo") && !list.contains("get-env"), "{list}");
    let called = run(&[
        "--method",
        "tools/call",
        "--tool-name",
        "everything__echo",
        "--tool-arg",
        "message=hi",
    ])
    .await;
    assert!(called.contains("hi"), "{called}");
    let sum: &[&str] = &[
        "--method",
        "tools/call",
        "--tool-name",
        "everything__get-sum",
        "--tool-arg",
        "a=20",
        "--tool-arg",
        "b=22",
    ];
    let (approved, ()) = tokio::join!(run(sum), decide(world, "approve", None));
    assert!(approved.contains("42"), "{approved}");
    let (denied, ()) = tokio::join!(run(sum), decide(world, "deny", Some("not twice")));
    assert!(denied.contains("not twice"), "{denied}");
}
