//! The gateway as a process of its own: signals, exit codes, children.

use portcullis_tests::agent::Speaks;
use portcullis_tests::house::{Folder, House, binary};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::json;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

const GATEWAY: &str = "apiVersion: portcullis.dev/v1\nkind: Gateway\nspec:\n  listen: {agents: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", observe: \"127.0.0.1:0\"}\n  policy: {dirs: [policy]}\n";
const AGENT: &str = "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {name: support}\nspec:\n  tools:\n    - {server: crm, allow: [get], autoApprove: [get]}\n";

async fn portcullis(folder: &Folder, args: &[&str]) -> Output {
    let run = Command::new(binary())
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(Duration::from_secs(30), run).await.expect("it should have ended").unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_with_errors_starts_nothing_and_says_where() {
    let cases = [
        (
            "broken",
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {name: a\n",
            "policy/policy.yaml:",
        ),
        ("empty", "", "policy/policy.yaml"),
        ("a list", "- 1\n", "policy/policy.yaml:1"),
        ("half written", "apiVersion: portcullis.dev/v1\nkind: Agent\n", "policy/policy.yaml:"),
        (
            "misspelt key",
            &AGENT.replace("autoApprove", "autoAprove"),
            "did you mean `autoApprove`?",
        ),
        ("null grant", &AGENT.replace("allow: [get]", "allow:"), "policy/policy.yaml:6"),
        (
            "two of one name",
            &format!("{AGENT}---\n{}", AGENT.replace("name: support", "name: SUPPORT")),
            "is defined twice",
        ),
        (
            "two spellings of a key",
            &AGENT.replace("allow: [get]", "allow: [get], allow: []"),
            "policy/policy.yaml:6",
        ),
        ("an anchor", &AGENT.replace("allow: [get]", "allow: &x [get]"), "policy/policy.yaml:6"),
        ("ambiguous server name", &AGENT.replace("server: crm", "server: a__b"), "a__b"),
    ];
    for (what, policy, expected) in cases {
        let folder = Folder::new();
        folder.write("gateway.yaml", GATEWAY);
        folder.write("policy/policy.yaml", policy);
        for args in [&["serve"][..], &["check"]] {
            let output = portcullis(&folder, args).await;
            assert_eq!(output.status.code(), Some(78), "{what} {args:?}: {}", said(&output));
            assert!(said(&output).contains(expected), "{what} {args:?}: {}", said(&output));
        }
    }
    let huge = Folder::new();
    huge.write("gateway.yaml", GATEWAY);
    huge.write("policy/policy.yaml", &format!("{AGENT}# {}\n", "x".repeat(9 * 1024 * 1024)));
    let output = portcullis(&huge, &["check"]).await;
    assert_eq!(output.status.code(), Some(78), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_no_file_defines_is_a_finding_and_no_obstacle() {
    let folder = Folder::new();
    folder.write("gateway.yaml", GATEWAY);
    folder.write("policy/policy.yaml", AGENT);
    let output = portcullis(&folder, &["check"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("policy/policy.yaml:6"), "{}", said(&output));
    assert_eq!(portcullis(&folder, &["check", "--strict"]).await.status.code(), Some(1));
    let house = House::process(House::folder(AGENT, "")).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let answer = agent.call("crm__get", json!({})).await.unwrap();
    assert!(answer.says().contains("not configured"), "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_usage_and_unreachable_gateways_have_their_exit_codes() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = Folder::new();
    folder.write("gateway.yaml", &GATEWAY.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1));
    folder.write("policy/policy.yaml", AGENT);
    let output = portcullis(&folder, &["serve"]).await;
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert!(
        said(&output).contains(&port.to_string()) && said(&output).contains("listen.agents"),
        "{}",
        said(&output)
    );
    assert_eq!(portcullis(&folder, &["no-such-command"]).await.status.code(), Some(2));
    for args in
        [&["approvals"][..], &["tools", "--agent", "support"], &["deny", "apr_x", "-m", "no"]]
    {
        let output = portcullis(&folder, args).await;
        assert_eq!(output.status.code(), Some(69), "{args:?}: {}", said(&output));
    }
    for args in [&["--version"][..], &["--help"], &["serve", "--help"], &["approve", "--help"]] {
        let output = portcullis(&folder, args).await;
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_drains_and_exits_0_and_the_command_line_decides() {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let policy = format!(
        "{}---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        AGENT.replace("allow: [get]", "allow: [get, refund]"),
        upstream.url
    );
    let house = House::process(House::folder(&policy, "")).await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let call = |amount: u32| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.call("crm__refund", json!({"amount": amount})).await })
    };
    let held = call(1);
    let card = house.parked(1).await.remove(0);
    let id = card["id"].as_str().unwrap();
    let admin = ["--url", house.admin.as_str()];
    let token = std::fs::read_to_string(house.folder.path().join("state/admin.token")).unwrap();
    let cli = |args: Vec<&str>| {
        let run = Command::new(binary())
            .args(args)
            .args(admin)
            .env("PORTCULLIS_ADMIN_TOKEN", token.trim())
            .current_dir(house.folder.path())
            .stdin(Stdio::null())
            .output();
        async move { run.await.unwrap() }
    };
    let list = cli(vec!["approvals"]).await;
    assert!(said(&list).contains(id) && said(&list).contains("refund"), "{}", said(&list));
    let approved = cli(vec!["approve", &id[..10]]).await;
    assert_eq!(approved.status.code(), Some(0), "{}", said(&approved));
    assert!(
        said(&approved).contains(r#"{"amount":1}"#),
        "it shows what will run: {}",
        said(&approved)
    );
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":1}"#);
    let held = call(2);
    let card = house.parked(1).await.remove(0);
    let denied = cli(vec!["deny", card["id"].as_str().unwrap(), "-m", "over budget"]).await;
    assert_eq!(denied.status.code(), Some(0), "{}", said(&denied));
    assert!(held.await.unwrap().unwrap().says().contains("over budget"));
    let tools = cli(vec!["tools", "--agent", "support"]).await;
    assert!(said(&tools).contains("crm__refund"), "{}", said(&tools));

    let held = call(3);
    house.parked(1).await;
    let pid = house.pid().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let told = held.await.unwrap().unwrap();
    assert!(told.says().contains("did NOT run"), "{}", told.text);
    let folder = house.ended(0).await;
    let house = House::process(folder).await;
    house.parked(1).await;
    assert_eq!(upstream.calls("refund"), [r#"{"amount":1}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_leaves_no_child_behind() {
    let servers = include_str!("../../../config/quickstart/policy/servers.yaml");
    let agents = include_str!("../../../config/quickstart/policy/agents.yaml");
    let house = House::process(House::folder(&format!("{agents}\n---\n{servers}"), "")).await;
    let agent = house.agent("support", Speaks::Modern).await;
    for _ in 0..100 {
        if !agent.call("crm__get_customer", json!({"id": "c-1001"})).await.unwrap().is_error() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let marker = house.folder.path().display().to_string();
    assert!(children(&marker) >= 3, "the gateway and two watched servers run in {marker}");
    let folder = house.kill().await;
    for _ in 0..150 {
        if children(&marker) == 0 {
            drop(folder);
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{} processes are left", children(&marker));
}

/// Processes whose working folder is `folder`.
fn children(folder: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok())
        .filter(|cwd| cwd.display().to_string() == folder)
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quickstart_comes_up_in_an_empty_folder_that_it_keeps_to_itself() {
    use std::os::unix::fs::PermissionsExt as _;
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let folder = Folder::new();
    let mut command = Command::new(binary());
    command.current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
    for listener in ["AGENTS", "ADMIN", "OBSERVE"] {
        command.env(format!("PORTCULLIS_LISTEN_{listener}"), "127.0.0.1:0");
    }
    let mut gateway =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it should start");
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let mut page = String::new();
    while !page.contains("Ctrl-C stops") {
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
        page.push_str(&line.expect("it does not come up").unwrap().expect("it ended"));
        page.push('\n');
    }
    assert!(page.contains("pcl_agent_") && page.contains("claude mcp add"), "{page}");
    let mode = |name: &str| {
        let metadata = std::fs::metadata(folder.path().join(".portcullis").join(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("admin.token"), mode("keys/seal.json")), (0o700, 0o600, 0o600));
    let doctor = portcullis(&folder, &["doctor"]).await;
    assert!(!said(&doctor).contains("others can look into it"), "{}", said(&doctor));
    gateway.kill().await.unwrap();
}
