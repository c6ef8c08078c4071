//! Parents decide below themselves and nowhere else.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_starts_decides_and_stops_below_itself() {
    for speaks in ERAS {
        let (house, upstream) = open().await;
        let parent = house.agent("support", speaks.clone()).await;
        let tools = parent.tools().await.unwrap();
        for tool in [
            "run_start",
            "agent_view",
            "approvals_list",
            "approvals_wait",
            "approvals_decide",
            "run_stop",
        ] {
            assert!(tools.iter().any(|name| name == tool), "{tool}: {tools:?}");
        }
        let child = tool(&parent, "run_start", json!({"subAgent": "helper"})).await;
        let (url, token) = (child["url"].as_str().unwrap(), child["token"].as_str().unwrap());
        let run = child["run"].as_str().unwrap();
        let agent = Agent::connect(url, token, speaks.clone()).await.unwrap();
        // A child without bindings of its own has none of these tools.
        assert!(!agent.tools().await.unwrap().iter().any(|name| name.starts_with("run_")));
        let refused = agent.call("approvals_list", json!({})).await.unwrap();
        assert!(refused.is_error() && refused.says().contains("is not available"));

        let waits = call(&parent, "approvals_wait", json!({"timeoutSeconds": 20}));
        let held = refund(&agent, 8);
        let seen = structured(&waits.await.unwrap().unwrap());
        let card = &seen["items"][0];
        assert_eq!((&seen["timedOut"], &card["run"]), (&json!(false), &json!(run)), "{seen}");
        assert_eq!(card["arguments"], r#"{"amount":8}"#);
        let decision = |decision: &str, digest: &Value, id: &Value| json!({"decisions": [{"id": id, "digest": digest, "decision": decision}]});
        let wrong = json!(format!("sha256:{}", "0".repeat(64)));
        let not = tool(&parent, "approvals_decide", decision("approve", &wrong, &card["id"])).await;
        assert_eq!(not["results"][0]["done"], json!(false), "{not}");
        let done =
            tool(&parent, "approvals_decide", decision("approve", &card["digest"], &card["id"]))
                .await;
        assert_eq!(done["results"][0]["done"], json!(true), "{done}");
        assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":8}"#);
        assert_eq!(upstream.calls("refund").len(), 1);

        let held = refund(&agent, 9);
        house.parked(1).await;
        let stopped = tool(&parent, "run_stop", json!({"run": run})).await;
        assert_eq!(stopped["ended"], json!([run]), "{stopped}");
        assert!(held.await.unwrap().unwrap().says().contains("its parent stopped it"));
        assert_eq!(status_at(url, token).await.0, 401);
        // The decision is the parent's on record, and the child is not told a name.
        let by: Vec<String> = house
            .audit()
            .iter()
            .filter(|line| line["kind"] == "decision")
            .map(|line| line["by"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert!(by.iter().all(|by| by.starts_with("support in run_")) && !by.is_empty(), "{by:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_subtree_answers_like_nothing() {
    let (house, upstream) = open().await;
    let parent = house.agent("support", Speaks::Modern).await;
    let stranger = house.agent("other", Speaks::Modern).await;
    let child = tool(&parent, "run_start", json!({"subAgent": "helper"})).await;
    let url = child["url"].as_str().unwrap();
    let agent =
        Agent::connect(url, child["token"].as_str().unwrap(), Speaks::Modern).await.unwrap();
    let held = refund(&agent, 2);
    let cards = house.parked(1).await;
    let (id, digest) = (&cards[0]["id"], &cards[0]["digest"]);
    assert_eq!(tool(&stranger, "approvals_list", json!({})).await["items"], json!([]));
    let decide =
        |id: &Value| json!({"decisions": [{"id": id, "digest": digest, "decision": "approve"}]});
    let nothing = json!("apr_aaaaaaaaaaaaaaaaaaaaaaaaaa");
    let foreign = tool(&stranger, "approvals_decide", decide(id)).await.to_string();
    let unknown = tool(&stranger, "approvals_decide", decide(&nothing)).await.to_string();
    assert_eq!(
        foreign.replace(id.as_str().unwrap(), "X"),
        unknown.replace(nothing.as_str().unwrap(), "X")
    );
    let run = child["run"].as_str().unwrap();
    let foreign = stranger.call("run_stop", json!({"run": run})).await.unwrap().says();
    let nowhere = "run_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    let unknown = stranger.call("run_stop", json!({"run": nowhere})).await.unwrap().says();
    assert_eq!(foreign.replace(run, "X"), unknown.replace(nowhere, "X"));
    let watch = |id: &Value| json!({"ids": [id], "timeoutSeconds": 0});
    let foreign = stranger.call("approvals_wait", watch(id)).await.unwrap().says();
    let unknown = stranger.call("approvals_wait", watch(&nothing)).await.unwrap().says();
    assert_eq!(
        foreign.replace(id.as_str().unwrap(), "X"),
        unknown.replace(nothing.as_str().unwrap(), "X")
    );
    // Nor does the child reach its own card, by whatever way.
    let own = agent.call("approvals_decide", decide(id)).await.unwrap();
    assert!(own.is_error());
    assert!(upstream.calls("refund").is_empty() && !held.is_finished());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_approver_that_policy_names_decides() {
    let (house, upstream) =
        open_with(Offer::tools(&["get", "refund"]), "  approval: {approvers: [human]}\n").await;
    let parent = house.agent("support", Speaks::Modern).await;
    let child = tool(&parent, "run_start", json!({"subAgent": "helper"})).await;
    let url = child["url"].as_str().unwrap();
    let agent =
        Agent::connect(url, child["token"].as_str().unwrap(), Speaks::Modern).await.unwrap();
    let held = refund(&agent, 2);
    let cards = house.parked(1).await;
    let listed = tool(&parent, "approvals_list", json!({})).await;
    assert_eq!(listed["items"][0]["youMayApprove"], json!(false), "{listed}");
    let one = json!({"id": cards[0]["id"], "digest": cards[0]["digest"], "decision": "approve"});
    let done = tool(&parent, "approvals_decide", json!({"decisions": [one]})).await;
    assert_eq!(done["results"][0]["done"], json!(false), "{done}");
    assert!(upstream.calls("refund").is_empty());
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":2}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_to_ask_is_told_by_run_and_parent() {
    for (approvers, unattended, below, parks) in [
        ("[human]", false, false, true),
        ("[human]", true, false, false),
        ("[parent]", false, false, true),
        ("[parent]", true, true, true),
        ("[parent]", true, false, true),
        ("[parent, human]", true, true, true),
    ] {
        let approval = format!("  approval: {{approvers: {approvers}, onNoApprover: deny}}\n");
        let (house, _upstream) = open_with(Offer::tools(&["get", "refund"]), &approval).await;
        let parent = start(&house, json!({"agent": "support"})).await;
        let mut body = json!({"agent": "a1", "unattended": unattended});
        if below {
            body["parent"] = json!(parent.run);
        }
        let run = start(&house, body).await;
        let agent = connect(&run, Speaks::Modern).await;
        let held = refund(&agent, 1);
        if parks {
            house.parked(1).await;
            continue;
        }
        let told = held.await.unwrap().unwrap();
        assert!(told.says().contains("nobody who may give one can be reached"), "{}", told.text);
    }
}

async fn tool(agent: &Agent, name: &'static str, arguments: Value) -> Value {
    let answer = agent.call(name, arguments).await.unwrap();
    assert!(!answer.is_error(), "{name}: {}", answer.text);
    structured(&answer)
}

fn structured(answer: &Answer) -> Value {
    answer.result()["structuredContent"].clone()
}
