//! Harnesses: their permission prompt, the hooks that tell of their subagents, and the worked
//! examples for authors of others.

use crate::clis::{quickstart, run};
use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::driver::{program, repository};
use portcullis_tests::house::{Folder, House, binary};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::process::{Output, Stdio};
use tokio::process::Command;

fn policy(url: &str, more: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [get], autoApprove: [get]}}\n{more}---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n"
    )
}

async fn open(more: &str) -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["get"])).await;
    let house = House::start(&policy(&upstream.url, more), "").await;
    (house, upstream)
}

fn asks(agent: &Agent, input: Value, id: &str) -> tokio::task::JoinHandle<Value> {
    let (agent, id) = (agent.clone(), id.to_owned());
    tokio::spawn(async move {
        let arguments = json!({"tool_name": "Bash", "input": input, "tool_use_id": id});
        let answer = agent.call("permission_prompt", arguments).await.unwrap();
        assert!(!answer.is_error(), "a harness reads JSON, not an error: {}", answer.says());
        serde_json::from_str(&answer.says()).unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harness_asks_for_leave_and_reads_what_may_be_done() {
    let (house, upstream) = open("  permissionPrompt: true\n").await;
    for (era, speaks) in [Speaks::Modern, Speaks::Legacy("2025-11-25")].into_iter().enumerate() {
        let used = |number: u32| format!("use-{era}-{number}");
        let agent = house.agent("support", speaks).await;
        assert!(agent.tools().await.unwrap().contains(&"permission_prompt".to_owned()));
        let allowed = asks(&agent, json!({"command": "ls"}), &used(1));
        let card = house.parked(1).await.remove(0);
        assert_eq!((&card["server"], &card["tool"]), (&json!("claude-code"), &json!("Bash")));
        assert_eq!(card["external"], true);
        assert!(card["rule"].as_str().unwrap().contains("policy.yaml:7"), "{card}");
        assert_eq!(house.decide(&card, "approve", None).await.0, 200);
        let expected = json!({"behavior": "allow", "updatedInput": {"command": "ls"}});
        assert_eq!(allowed.await.unwrap(), expected);

        let denied = asks(&agent, json!({"command": "rm -r /"}), &used(2));
        let card = house.parked(1).await.remove(0);
        assert_eq!(house.decide(&card, "deny", Some("never that")).await.0, 200);
        let answer = denied.await.unwrap();
        assert_eq!(answer["behavior"], "deny");
        assert!(answer["message"].as_str().unwrap().contains("never that"), "{answer}");

        // What an approver makes of it is what the harness does.
        let edited = asks(&agent, json!({"command": "cat a"}), &used(3));
        let card = house.parked(1).await.remove(0);
        let path = format!("/v1/approvals/{}/decision", card["id"].as_str().unwrap());
        let body = json!({"decision": "approve", "digest": card["digest"], "arguments": {"command": "cat b"}});
        assert_eq!(house.api("POST", &path, Some(body)).await.0, 200);
        assert_eq!(edited.await.unwrap()["updatedInput"]["command"], "cat b");
    }
    // Two uses at once are two questions, and one use that asks again is one.
    let agent = house.agent("support", Speaks::Modern).await;
    let one = asks(&agent, json!({"command": "ls"}), "use-4");
    let again = asks(&agent, json!({"command": "ls"}), "use-4");
    let other = asks(&agent, json!({"command": "ls"}), "use-5");
    for card in house.parked(2).await {
        assert_eq!(house.decide(&card, "approve", None).await.0, 200);
    }
    for answer in [one, again, other] {
        assert_eq!(answer.await.unwrap()["behavior"], "allow");
    }
    assert!(upstream.received().iter().all(|request| !request.body.contains("Bash")));
    let intents = house.audit();
    let intents = intents.iter().filter(|line| line["kind"] == "intent" && line["tool"] == "Bash");
    assert_eq!(intents.count(), 6, "each leave is on record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_prompt_is_there_only_where_policy_says_so() {
    let (house, _upstream) = open("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    assert!(!agent.tools().await.unwrap().contains(&"permission_prompt".to_owned()));
    let arguments = json!({"tool_name": "Bash", "input": {}, "tool_use_id": "x"});
    let answer = agent.call("permission_prompt", arguments).await.unwrap();
    assert!(answer.is_error() && answer.says().contains("is not available"), "{}", answer.says());
    let (house, _upstream) = open("  permissionPrompt: true\n").await;
    let agent = house.agent("support", Speaks::Modern).await;
    for wrong in [json!({}), json!({"tool_name": "Bash"}), json!({"tool_name": "Bash", "input": 7})]
    {
        let answer = agent.call("permission_prompt", wrong).await.unwrap();
        assert_eq!(answer.code(), -32602);
    }
    let arguments = json!({"tool_name": "no name", "input": {}});
    let answer = agent.call("permission_prompt", arguments).await.unwrap();
    assert!(answer.is_error() && answer.says().contains("is no name of a tool"));
    house.parked(0).await;
}

fn hook(event: &str, id: &str) -> Option<Value> {
    Some(
        json!({"hook_event_name": event, "session_id": "s-1", "agent_id": id, "agent_type": "support",
                "cwd": "/somewhere", "transcript_path": "/t"}),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_subagent_is_the_end_of_its_run_and_of_no_other() {
    let (house, _upstream) = open("").await;
    let tell = |event: &'static str, id: &'static str| {
        let house = &house;
        async move { house.api("POST", "/v1/hooks/claude-code", hook(event, id)).await }
    };
    let print = async || {
        let (status, run) =
            house.api("POST", "/v1/runs", Some(json!({"agent": "support", "helper": true}))).await;
        assert_eq!(status, 201, "{run}");
        run["run"].as_str().unwrap().to_owned()
    };
    let live = async |run: &str| {
        house.api("GET", &format!("/v1/runs/{run}"), None).await.1["state"] == "live"
    };
    assert_eq!(tell("SubagentStart", "a").await.0, 204);
    let a = print().await;
    let by_hand = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
    assert_eq!(tell("SubagentStop", "a").await.0, 204);
    assert!(!live(&a).await);
    assert!(live(by_hand["run"].as_str().unwrap()).await, "it is nobody's subagent");

    // Two at once: which run is whose nobody can tell.
    tell("SubagentStart", "b").await;
    tell("SubagentStart", "c").await;
    let (b, c) = (print().await, print().await);
    let (status, said) = tell("SubagentStop", "b").await;
    assert_eq!(status, 200);
    let text = said["systemMessage"].as_str().unwrap();
    assert!(
        text.contains("2 runs of agent support") && text.contains("nothing was stopped"),
        "{text}"
    );
    assert_eq!(said.as_object().unwrap().len(), 1, "nothing that changes what the harness does");
    assert!(live(&b).await && live(&c).await);
    assert_eq!(tell("SessionEnd", "").await.0, 204);
    assert!(!live(&b).await && !live(&c).await);

    // Of agents and events that are none of ours nothing is said.
    let other = json!({"hook_event_name": "SubagentStop", "session_id": "s", "agent_id": "z", "agent_type": "Explore"});
    assert_eq!(house.api("POST", "/v1/hooks/claude-code", Some(other)).await.0, 204);
    assert_eq!(tell("PreToolUse", "a").await.0, 204);
    let approver = json!({"admin": "dana", "role": "approver"});
    let token = house.api("POST", "/v1/tokens", Some(approver)).await.1;
    let token = token["token"].as_str().unwrap();
    let refused =
        house.api_as(token, "POST", "/v1/hooks/claude-code", hook("SubagentStop", "a")).await;
    assert_eq!(refused.0, 403);
}

/// The real Claude Code, whose subagent connects with a helper and whose hooks tell of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claude_code_subagent_with_a_helper_has_a_run_that_ends_with_it() {
    let house = quickstart().await;
    let token = std::fs::read_to_string(house.folder.path().join("state/admin.token")).unwrap();
    let hook = json!([{"matcher": "support", "hooks": [{
        "type": "http", "url": format!("{}/v1/hooks/claude-code", house.admin), "timeout": 5,
        "headers": {"Authorization": format!("Bearer {}", token.trim())},
    }]}]);
    let settings = json!({"hooks": {"SubagentStart": hook, "SubagentStop": hook}});
    let helper = format!(
        "{} token print --agent support --url {} --state-dir {}",
        binary().display(),
        house.admin,
        house.folder.path().join("state").display()
    );
    let agents = repository().join("tests/clis/scripts/helper.agents.json");
    let arguments = [
        "--url",
        &house.url("assistant"),
        "--token",
        &house.token("assistant"),
        "--agents",
        &agents.display().to_string(),
        "--sub-url",
        &house.url("support"),
        "--sub-token",
        &helper,
        "--also=--settings",
        &format!("--also={settings}"),
    ];
    run("claude", "subagent.json", &arguments.map(str::to_owned)).await;
    let (_, runs) = house.api("GET", "/v1/runs?all=true&agent=support", None).await;
    let runs = runs["items"].as_array().unwrap();
    let own: Vec<_> = runs.iter().filter(|run| run["unnamed"] == false).collect();
    assert!(!own.is_empty(), "its helper started a run: {runs:?}");
    for run in own {
        assert_eq!(
            (&run["state"], &run["why"]),
            (&json!("ended"), &json!("its subagent has ended")),
            "{run}"
        );
    }
}

/// The real Claude Code asks about its own shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_asks_here_before_it_uses_a_tool_of_its_own() {
    let (house, _upstream) = open("  permissionPrompt: true\n").await;
    let arguments = [
        "--url",
        &house.url("support"),
        "--token",
        &house.token("support"),
        "--also=--permission-prompt-tool",
        "--also=mcp__gw__permission_prompt",
    ]
    .map(str::to_owned);
    let decides = async {
        let first = card(&house).await;
        assert_eq!(
            (&first["server"], &first["tool"]),
            (&json!("claude-code"), &json!("Bash")),
            "{first}"
        );
        let path = format!("/v1/approvals/{}/decision", first["id"].as_str().unwrap());
        let mut input = first["argumentsView"].clone();
        input["command"] = json!("mkdir -p made-edited && ls");
        let body = json!({"decision": "approve", "digest": first["digest"], "arguments": input});
        assert_eq!(house.api("POST", &path, Some(body)).await.0, 200);
        let second = card(&house).await;
        assert_eq!(house.decide(&second, "deny", Some("not on this machine")).await.0, 200);
    };
    tokio::join!(run("claude", "own_tool.json", &arguments), decides);
}

async fn card(house: &House) -> Value {
    for _ in 0..1_200 {
        let (_, list) = house.api("GET", "/v1/approvals?state=parked", None).await;
        if let Some(card) = list["items"].as_array().and_then(|items| items.first()) {
            return card.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("nothing was asked");
}

async fn demo_token(house: &House) -> String {
    let new = json!({"admin": "demo", "role": "harness+approver", "agents": ["support"]});
    let (status, token) = house.api("POST", "/v1/tokens", Some(new)).await;
    assert_eq!(status, 201, "{token}");
    token["token"].as_str().unwrap().to_owned()
}

async fn example(house: &House, token: &str, command: &mut Command) -> Output {
    let limit = std::time::Duration::from_secs(120);
    let run = command
        .env("PORTCULLIS_ADMIN_URL", &house.admin)
        .env("PORTCULLIS_HARNESS_TOKEN", token)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(limit, run).await.expect("the example ends").unwrap()
}

async fn both_ways(house: &House, start: impl Fn() -> Command) {
    let token = demo_token(house).await;
    let approved = example(house, &token, start().args(["--decide", "approve"])).await;
    let text = String::from_utf8_lossy(&approved.stdout);
    let said = String::from_utf8_lossy(&approved.stderr);
    assert_eq!(approved.status.code(), Some(0), "{text}\n{said}");
    assert!(text.contains("\\u{200b}"), "what hides in arguments is spelled out: {text}");
    let denied =
        example(house, &token, start().args(["--decide", "deny", "--reason", "too much"])).await;
    let text = String::from_utf8_lossy(&denied.stdout);
    assert_eq!(denied.status.code(), Some(0), "{text}");
    assert!(text.contains("too much"), "the subagent reads why: {text}");
    let wrong = format!("pcl_admin_{}", "a".repeat(43));
    let refused = example(house, &wrong, start().args(["--decide", "approve"])).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    // Nothing is left behind: each of its runs has ended.
    let (_, runs) = house.api("GET", "/v1/runs?agent=support", None).await;
    let left = runs["items"].as_array().unwrap().iter().filter(|run| run["unnamed"] == false);
    assert_eq!(left.count(), 0, "{runs}");
    let (_, list) = house.api("GET", "/v1/approvals", None).await;
    let states: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|c| c["state"].clone()).collect();
    assert_eq!(states, ["done", "denied"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_python_does_what_it_says() {
    let house = quickstart().await;
    let file = repository().join("config/examples/harness/harness.py");
    both_ways(&house, || {
        let mut command = Command::new(program("python2x"));
        command.arg(&file);
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_typescript_does_what_it_says() {
    let house = quickstart().await;
    let folder = Folder::new();
    for name in ["harness.ts", "package.json"] {
        let text = std::fs::read_to_string(repository().join("config/examples/harness").join(name));
        folder.write(name, &text.unwrap());
    }
    let modules = program("node24").parent().unwrap().parent().unwrap().join("mcp/node_modules");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    both_ways(&house, || {
        let mut command = Command::new(program("node24"));
        command.arg(folder.path().join("harness.ts"));
        command
    })
    .await;
}
