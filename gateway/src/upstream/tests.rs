//! Servers that misbehave over stdio, and what becomes of the calls to them.

mod http;

use super::*;
use bytes::Bytes;
use portcullis_policy::decide::{Ask, Decision, Usage, decide};
use portcullis_policy::definition::{
    Agent, AgentLimits, Approval, Definition, EraPin, Expose, Grant, Rule, SERVER_PARKED_CALLS,
    Selection,
};
use portcullis_policy::diagnostic::Location;
use portcullis_policy::name::AgentName;
use portcullis_policy::narrow::Narrowing;
use portcullis_policy::pattern::Pattern;
use portcullis_policy::scope::Scope;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use tokio::sync::mpsc;

const PEER: &str = include_str!("tests/peer.py");

fn here() -> Location {
    Location::new(&"test".into(), 1, 1)
}

/// A server definition named `s`.
pub(super) fn server(transport: Transport, era: EraPin) -> Server {
    Server {
        name: ServerName::new("s").unwrap(),
        transport,
        enabled: true,
        era,
        call_timeout: Duration::from_secs(20),
        parked_calls: SERVER_PARKED_CALLS,
        location: here(),
    }
}

// A stand-in for the gateway's executable that runs what `__child --` is followed by.
fn executable() -> PathBuf {
    let path = std::env::temp_dir().join(format!("portcullis-test-child-{}", std::process::id()));
    if !path.exists() {
        let fresh = path.with_extension(format!("{:?}", std::thread::current().id()));
        let mut file = std::fs::File::create(&fresh).unwrap();
        file.write_all(b"#!/bin/sh\nshift 2\nexec \"$@\"\n").unwrap();
        drop(file);
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
    }
    path
}

pub(super) fn settings() -> UpstreamSettings {
    UpstreamSettings::new(executable())
}

fn python(args: &[&str], era: EraPin) -> Server {
    let mut all = vec!["-u".to_owned(), "-c".to_owned(), PEER.to_owned()];
    all.extend(args.iter().map(|&arg| arg.to_owned()));
    let env = BTreeMap::new();
    server(Transport::Stdio { command: "python3".to_owned(), args: all, env, cwd: None }, era)
}

pub(super) async fn started(server: Server) -> Upstreams {
    let upstreams = Upstreams::start(vec![server], settings()).unwrap();
    upstreams.settle(Duration::from_secs(30)).await;
    upstreams
}

pub(super) fn offer(upstreams: &Upstreams) -> Arc<Offer> {
    let catalogue = upstreams.catalogue().borrow().clone();
    Arc::clone(catalogue.servers.values().next().unwrap())
}

/// A permit for `ask`, decided against an agent that is granted everything.
pub(super) fn permit(upstreams: &Upstreams, ask: Ask) -> Option<Permit> {
    let agent = Agent {
        name: AgentName::new("a").unwrap(),
        description: String::new(),
        grants: vec![Grant {
            server: ServerName::new("s").unwrap(),
            allow: Selection::Every(here()),
            auto_approve: Selection::Every(here()),
            deny: Selection::none(),
            resources: vec![Rule { pattern: Pattern::new("*"), location: here() }],
            prompts: Selection::Every(here()),
            secret: Vec::new(),
            location: here(),
        }],
        sub_agents: Vec::new(),
        permission_prompt: None,
        expose: Expose::Direct,
        approval: Approval::default(),
        limits: AgentLimits::default(),
        narrowing: Narrowing::default(),
        location: here(),
    };
    let definition = Definition {
        agents: [(agent.name.clone(), agent.clone())].into(),
        servers: upstreams
            .inner
            .servers
            .values()
            .map(|upstream| (upstream.server.name.clone(), upstream.server.clone()))
            .collect(),
    };
    let catalogue = upstreams.catalogue().borrow().clone();
    let (scope, _) = Scope::resolve(&agent, &definition, &catalogue, 1);
    match decide(&scope, &scope.all, ask, &Usage::default()) {
        Decision::Run(permit) => Some(permit),
        Decision::Park(_) | Decision::Refuse(_) => None,
    }
}

pub(super) fn tool(name: &str, arguments: &'static str) -> Ask {
    let arguments = Some(Bytes::from_static(arguments.as_bytes()));
    Ask::Tool { name: format!("s__{name}"), arguments }
}

pub(super) async fn call(upstreams: &Upstreams, ask: Ask) -> Result<Reply, Failure> {
    let Some(permit) = permit(upstreams, ask) else {
        return Err(Failure::NotSent("no permit".to_owned()));
    };
    upstreams.call(permit, Forward::default()).await
}

pub(super) fn text(reply: Reply) -> String {
    match reply {
        Reply::Result(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Reply::Error(bytes) => format!("error {}", String::from_utf8_lossy(&bytes)),
    }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn both_eras_are_found_out_and_arguments_arrive_as_written() {
    for (kind, era) in [("legacy", Era::Legacy), ("modern", Era::Modern), ("exits", Era::Legacy)] {
        let upstreams = started(python(&[kind], EraPin::Auto)).await;
        assert_eq!(offer(&upstreams).status, Status::Ready, "{kind}");
        assert_eq!(upstreams.states().first().unwrap().up, Some(era), "{kind}");
        let permit = permit(&upstreams, tool("raw", "{\"b\": 1.50,\n \"a\":\"\\u00e9\"}")).unwrap();
        let reply = is_send(upstreams.call(permit, Forward::default())).await.unwrap();
        let line = text(reply);
        // Line ends between tokens become blanks; nothing else changes.
        assert!(
            line.contains(r#""arguments\":{\"b\": 1.50,  \"a\":\"\\u00e9\"}"#),
            "{kind}: {line}"
        );
        assert_eq!(line.contains("clientCapabilities"), era == Era::Modern, "{kind}: {line}");
        upstreams.shutdown().await;
    }
}

#[tokio::test]
async fn a_silent_probe_leads_to_the_legacy_greeting() {
    let upstreams = started(python(&["silent"], EraPin::Auto)).await;
    assert_eq!(upstreams.states().first().unwrap().up, Some(Era::Legacy));
    upstreams.shutdown().await;
}

#[tokio::test]
async fn strays_and_junk_are_dropped_and_requests_of_the_server_refused() {
    let upstreams = started(python(&["legacy"], EraPin::Legacy)).await;
    assert!(text(call(&upstreams, tool("junk", "{}")).await.unwrap()).contains("after junk"));
    let dropped = upstreams.states().first().unwrap().dropped_frames;
    assert_eq!(dropped, 4, "two lines of junk, two strays");
    let asked = text(call(&upstreams, tool("ask", "{}")).await.unwrap());
    assert!(asked.contains("-32601") && asked.contains("ping-ok"), "{asked}");
    upstreams.shutdown().await;
}

#[tokio::test]
async fn floods_endless_lines_and_death_end_the_connection_but_not_the_server() {
    for kind in ["flood", "endless", "die"] {
        let mut small = settings();
        small.result_bytes_max = 100_000;
        let upstreams = Upstreams::start(vec![python(&["legacy"], EraPin::Legacy)], small).unwrap();
        upstreams.settle(Duration::from_secs(30)).await;
        let failure = call(&upstreams, tool(kind, "{}")).await.unwrap_err();
        assert!(failure.may_have_run(), "{kind}: {failure}");
        timeout(Duration::from_secs(20), recovered(&upstreams)).await.expect(kind);
        assert!(upstreams.states().first().unwrap().restarts >= 1, "{kind}");
        upstreams.shutdown().await;
    }
}

#[tokio::test]
async fn a_caller_that_leaves_cancels_and_a_late_answer_is_no_stray() {
    let upstreams = started(python(&["legacy"], EraPin::Legacy)).await;
    let permit = permit(&upstreams, tool("wait", "{}")).unwrap();
    let waiting = upstreams.call(permit, Forward::default());
    assert!(timeout(Duration::from_millis(300), waiting).await.is_err());
    // The peer answers `wait` once it is cancelled.
    let seen = text(call(&upstreams, tool("cancelled", "{}")).await.unwrap());
    assert!(seen.contains("cancelled: 1"), "{seen}");
    assert_eq!(upstreams.states().first().unwrap().dropped_frames, 0);
    upstreams.shutdown().await;
}

#[tokio::test]
async fn time_limits_say_that_the_call_may_have_run() {
    let mut server = python(&["legacy"], EraPin::Legacy);
    server.call_timeout = Duration::from_millis(300);
    let upstreams = started(server).await;
    let failure = call(&upstreams, tool("wait", "{}")).await.unwrap_err();
    assert!(matches!(failure, Failure::Timeout(_)), "{failure}");
    upstreams.shutdown().await;
}

#[tokio::test]
async fn progress_reaches_its_own_call() {
    let upstreams = started(python(&["legacy"], EraPin::Legacy)).await;
    let permit = permit(&upstreams, tool("progress", "{}")).unwrap();
    let (progress, mut seen) = mpsc::channel(4);
    let forward = Forward { progress: Some(progress), ..Forward::default() };
    upstreams.call(permit, forward).await.unwrap();
    let first = seen.recv().await.unwrap();
    assert!(first.ends_with(b"\"progress\":1.50}"), "{first:?}");
    assert!(seen.recv().await.is_none(), "only one is sent with the right token");
    upstreams.shutdown().await;
}

#[tokio::test]
async fn a_changed_list_is_read_again_and_capped() {
    let upstreams = started(python(&["legacy"], EraPin::Legacy)).await;
    let mut catalogue = upstreams.catalogue();
    call(&upstreams, tool("grow", "{}")).await.unwrap();
    let grown = catalogue.wait_for(|catalogue| {
        let offer = catalogue.servers.values().next();
        offer.is_some_and(|offer| offer.tools.iter().any(|tool| tool.name == "grown"))
    });
    drop(timeout(Duration::from_secs(20), grown).await.unwrap());
    upstreams.shutdown().await;

    let upstreams = started(python(&["loops"], EraPin::Legacy)).await;
    let offer = offer(&upstreams);
    assert_eq!(offer.status, Status::Ready);
    assert!(offer.problems.iter().any(|p| p.contains("repeats a cursor")), "{:?}", offer.problems);
    upstreams.shutdown().await;
}

#[tokio::test]
async fn a_missing_command_is_named_and_a_missing_variable_is_an_error() {
    let transport = |env: BTreeMap<_, _>| Transport::Stdio {
        command: "no-such-command-here".to_owned(),
        args: Vec::new(),
        env,
        cwd: None,
    };
    let upstreams = started(server(transport(BTreeMap::new()), EraPin::Auto)).await;
    let Status::Unreachable { reason, .. } = &offer(&upstreams).status else { panic!("reached") };
    assert_eq!(reason, "command not found: `no-such-command-here` is in no folder of PATH");
    upstreams.shutdown().await;

    let value = portcullis_policy::definition::Value::FromEnv {
        variable: "PORTCULLIS_NO_SUCH_VARIABLE".to_owned(),
        prefix: String::new(),
    };
    let env = [("KEY".to_owned(), value)].into();
    let error =
        Upstreams::start(vec![server(transport(env), EraPin::Auto)], settings()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "server `s`: `KEY` needs the variable `PORTCULLIS_NO_SUCH_VARIABLE`, which is not set"
    );
}

#[tokio::test]
async fn a_server_that_hangs_delays_no_other() {
    let mut slow = python(&["hangs"], EraPin::Legacy);
    slow.name = ServerName::new("slow").unwrap();
    let upstreams =
        Upstreams::start(vec![slow, python(&["legacy"], EraPin::Legacy)], settings()).unwrap();
    let mut catalogue = upstreams.catalogue();
    let ready = catalogue.wait_for(|catalogue| {
        catalogue.servers.values().any(|offer| offer.status == Status::Ready)
    });
    drop(timeout(Duration::from_secs(20), ready).await.unwrap());
    assert!(call(&upstreams, tool("echo", "{}")).await.is_ok());
    upstreams.shutdown().await;
}

#[tokio::test]
async fn shutdown_leaves_no_process() {
    let upstreams = started(python(&["legacy"], EraPin::Legacy)).await;
    let seen = text(call(&upstreams, tool("fork", "{}")).await.unwrap());
    let pid: i32 = seen.split("pid ").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    assert!(rustix::process::test_kill_process(pid).is_ok());
    upstreams.shutdown().await;
    let gone = async {
        while std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(5), gone).await.unwrap();
}

async fn recovered(upstreams: &Upstreams) {
    while call(upstreams, tool("echo", "{}")).await.is_err() {
        upstreams.settle(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
