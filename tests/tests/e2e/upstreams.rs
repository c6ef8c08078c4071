//! Upstreams that die, hang, flood and lie: one clean answer, and everybody else unaffected.

use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Behave, Offer, Upstream};
use serde_json::json;
use std::time::{Duration, Instant};

fn policy(servers: &[(&str, &str)]) -> String {
    let grants: Vec<String> = servers
        .iter()
        .map(|(name, _)| format!("    - {{server: {name}, allow: \"*\", autoApprove: \"*\"}}\n"))
        .collect();
    let defined: Vec<String> = servers
        .iter()
        .map(|(name, how)| {
            format!("---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: {name}}}\nspec: {{{how}, callTimeout: 2s}}\n")
        })
        .collect();
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n{}{}",
        grants.concat(),
        defined.concat()
    )
}

fn http(url: &str) -> String {
    format!("http: {{url: \"{url}\"}}")
}

async fn good_and_bad(behave: Behave, modern: bool) -> (House, Upstream, Upstream, Agent) {
    let good = Upstream::start(Offer::tools(&["get"])).await;
    let mut offer = Offer::tools(&["act"]).behave(behave);
    offer.modern = modern;
    let bad = Upstream::start(offer).await;
    let house = house(&policy(&[("good", &http(&good.url)), ("bad", &http(&bad.url))])).await;
    let agent = house.agent("support", Speaks::Modern).await;
    (house, good, bad, agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_misbehaviour_gets_exactly_one_clean_answer() {
    for behave in [
        Behave::Hang,
        Behave::WrongId,
        Behave::Junk,
        Behave::Close,
        Behave::Flood,
        Behave::Both,
        Behave::Broken,
        Behave::Redirect,
    ] {
        for modern in [false, true] {
            let (_house, _good, bad, agent) = good_and_bad(behave, modern).await;
            let begun = Instant::now();
            let answer = agent.call("bad__act", json!({"n": 1})).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(15), "{behave:?}");
            assert!(answer.is_error(), "{behave:?}: {}", answer.text);
            // What redirects has not carried the call out; all else may have.
            let redirects = behave == Behave::Redirect;
            let expected = if redirects { "turned the request away" } else { "may have run" };
            assert!(answer.says().contains(expected), "{behave:?}: {}", answer.text);
            assert!(
                !answer.text.contains("127.0.0.1") && !answer.text.contains("panicked"),
                "{}",
                answer.text
            );
            assert_eq!(bad.calls("act").len(), 1, "{behave:?}: never repeated");
            assert_eq!(
                agent.call("good__get", json!({"n": 2})).await.unwrap().says(),
                r#"{"n":2}"#
            );
            // It recovers by itself.
            bad.set(|offer| offer.behave = Behave::Echo);
            assert_eq!(recovered(&agent).await, r#"{"n":3}"#, "{behave:?}");
        }
    }
}

async fn recovered(agent: &Agent) -> String {
    for _ in 0..50 {
        let answer = agent.call("bad__act", json!({"n": 3})).await.unwrap();
        if !answer.is_error() {
            return answer.says();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    String::new()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_or_dead_upstream_never_delays_the_lists_of_others() {
    let good = Upstream::start(Offer::tools(&["get"])).await;
    let mut slow = Offer::tools(&["act"]);
    slow.list_delay = Duration::from_secs(6);
    let slow = Upstream::start(slow).await;
    let house = house(&policy(&[
        ("good", &http(&good.url)),
        ("slow", &http(&slow.url)),
        ("dead", &http("http://127.0.0.1:9/mcp")),
        ("gone", "stdio: {command: no-such-command-here}"),
    ]))
    .await;
    let agent = house.agent("support", Speaks::Modern).await;
    let begun = Instant::now();
    assert_eq!(agent.tools().await.unwrap(), ["good__get"]);
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert!(
        agent.hello["instructions"].as_str().unwrap().contains("`dead` (unreachable)"),
        "{}",
        agent.hello
    );
    let diagnostics = house.api("GET", "/v1/diagnostics", None).await.1.to_string();
    for server in ["dead", "gone", "slow"] {
        assert!(diagnostics.contains(server), "{diagnostics}");
    }
    // The slow one joins when it has answered.
    for _ in 0..100 {
        if agent.tools().await.unwrap() == ["good__get", "slow__act"] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the slow server never joined");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stdio_children_that_misbehave_are_contained() {
    let good = Upstream::start(Offer::tools(&["get"])).await;
    let flood = "stdio: {command: sh, args: [\"-c\", \"while :; do echo junkjunkjunkjunk; done\"]}";
    let endless = "stdio: {command: sh, args: [\"-c\", \"yes | tr -d '\\\\n'\"]}";
    let dies = "stdio: {command: sh, args: [\"-c\", \"exit 3\"]}";
    let house = house(&policy(&[
        ("good", &http(&good.url)),
        ("flood", flood),
        ("endless", endless),
        ("dies", dies),
    ]))
    .await;
    let agent = house.agent("support", Speaks::Modern).await;
    for n in 0..20 {
        assert_eq!(
            agent.call("good__get", json!({"n": n})).await.unwrap().says(),
            format!("{{\"n\":{n}}}")
        );
    }
    assert_eq!(agent.tools().await.unwrap(), ["good__get"]);
}
