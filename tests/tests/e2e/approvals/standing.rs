//! Approvals that cover later calls: this run or some minutes, the same call or the tool.

use super::*;

const TOOL: &str = "  approval: {standing: tool}\n";

async fn run(house: &House) -> (String, Agent) {
    let started = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
    let member = |name: &str| started[name].as_str().unwrap().to_owned();
    let agent = Agent::connect(&member("url"), &member("token"), Speaks::Modern).await.unwrap();
    (member("run"), agent)
}

// Approves the one call that waits, and what `standing` says beside it.
async fn approve(house: &House, standing: Value) -> Value {
    let card = house.parked(1).await.remove(0);
    let (status, done) =
        decide(house, "anna", &card, ("approve", json!({"standing": standing}))).await;
    assert_eq!(status, 200, "{done}");
    card
}

async fn grants(house: &House) -> Vec<Value> {
    house.api("GET", "/v1/grants", None).await.1["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_for_the_run_covers_its_later_calls_and_no_other_runs() {
    let (house, upstream) = open(TOOL).await;
    let (run_id, agent) = run(&house).await;
    let (_, sibling) = run(&house).await;
    let held = refund(&agent, 1);
    let card = approve(&house, json!({"covers": "tool", "lasts": "run"})).await;
    held.await.unwrap();
    // Other arguments, at once, and each call has its card and its decision.
    let done = refund(&agent, 2).await.unwrap();
    assert_eq!(done.says(), r#"{"amount":2}"#, "{}", done.text);
    assert_eq!(refund(&agent, 2).await.unwrap().says(), r#"{"amount":2}"#);
    assert_eq!(upstream.calls("refund").len(), 3);
    let listed = grants(&house).await;
    assert_eq!((listed.len(), &listed[0]["run"]), (1, &json!(run_id)), "{listed:?}");
    assert_eq!((&listed[0]["approval"], &listed[0]["by"]), (&card["id"], &json!("anna")));
    let cards = house.api("GET", "/v1/approvals?state=done", None).await.1["items"].clone();
    assert_eq!(cards.as_array().unwrap().len(), 3);
    assert_eq!(cards[2]["decision"]["grant"], listed[0]["id"]);
    assert_eq!(cards[2]["decision"]["by"], "anna");
    // Another run and another tool still ask.
    let waits = refund(&sibling, 3);
    house.parked(1).await;
    let other = agent.clone();
    let looks = tokio::spawn(async move { other.call("crm__look", json!({})).await });
    house.parked(2).await;
    waits.abort();
    looks.abort();
    // The end of the run is the end of it.
    assert_eq!(house.api("DELETE", &format!("/v1/runs/{run_id}"), None).await.0, 200);
    assert!(grants(&house).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_of_the_same_call_covers_that_call_until_it_is_ended() {
    let (house, upstream) = open("").await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let held = refund(&agent, 1);
    approve(&house, json!({"covers": "arguments", "lasts": "10m"})).await;
    held.await.unwrap();
    assert_eq!(refund(&agent, 1).await.unwrap().says(), r#"{"amount":1}"#);
    let other = refund(&agent, 2);
    house.parked(1).await;
    other.abort();
    assert_eq!(upstream.calls("refund").len(), 2);
    let grant = grants(&house).await.remove(0);
    let path = format!("/v1/grants/{}", grant["id"].as_str().unwrap());
    let hugo = admin_token("hugo");
    assert_eq!(house.api_as(&hugo, "DELETE", &path, None).await.0, 403);
    let (status, ended) = house.api_as(&admin_token("bert"), "DELETE", &path, None).await;
    assert_eq!((status, ended["ended"].is_string()), (200, true), "{ended}");
    let again = refund(&agent, 1);
    house.parked(2).await;
    again.abort();
    let ended = house.audit().into_iter().find(|line| line["kind"] == "grant_ended").unwrap();
    assert_eq!((&ended["by"], &ended["grant"]), (&json!("bert"), &grant["id"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_for_the_agent_covers_all_its_runs_and_is_void_when_the_tool_changes() {
    let (house, upstream) = open(TOOL).await;
    let (_, first) = run(&house).await;
    let (_, second) = run(&house).await;
    let held = refund(&first, 1);
    approve(&house, json!({"covers": "tool", "lasts": "1h", "of": "agent"})).await;
    held.await.unwrap();
    assert_eq!(refund(&second, 2).await.unwrap().says(), r#"{"amount":2}"#);
    // Another agent asks.
    let other = house.agent("other", Speaks::Modern).await;
    let asks = refund(&other, 3);
    house.parked(1).await;
    asks.abort();
    // It outlives the gateway.
    let house = House::from(house.stop().await).await.unwrap();
    let agent = house.agent("support", Speaks::Modern).await;
    assert_eq!(refund(&agent, 4).await.unwrap().says(), r#"{"amount":4}"#);
    // What was approved is not there any more: another definition is another tool.
    upstream.set(|offer| offer.tools = offer.tools.replace("Pays back.", "Pays back twice."));
    let house = House::from(house.stop().await).await.unwrap();
    let agent = house.agent("support", Speaks::Modern).await;
    let asks = refund(&agent, 5);
    house.parked(2).await;
    asks.abort();
    assert_eq!(upstream.calls("refund").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_says_how_much_one_approval_may_cover() {
    for (standing, tool, arguments) in [("never", 400, 400), ("arguments", 400, 200)] {
        let (house, _upstream) = open(&format!("  approval: {{standing: {standing}}}\n")).await;
        let agent = house.agent("support", Speaks::Modern).await;
        let held = refund(&agent, 1);
        let card = house.parked(1).await.remove(0);
        assert_eq!(card["standing"], standing);
        for (covers, due) in [("tool", tool), ("arguments", arguments)] {
            let more = json!({"standing": {"covers": covers, "lasts": "run"}});
            let (status, answer) = decide(&house, "anna", &card, ("approve", more)).await;
            assert_eq!(status, due, "{standing} {covers}: {answer}");
        }
        held.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_lasts_no_longer_than_its_giver_may_decide() {
    let (house, upstream) = open(TOOL).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let body = json!({"admin": "zoe", "role": "approver"});
    let made = house.api("POST", "/v1/tokens", Some(body)).await.1;
    let held = refund(&agent, 1);
    let card = house.parked(1).await.remove(0);
    let standing = json!({"covers": "tool", "lasts": "1h", "of": "agent"});
    let body = json!({"decision": "approve", "digest": card["digest"], "standing": standing});
    let path = format!("/v1/approvals/{}/decision", card["id"].as_str().unwrap());
    let token = made["token"].as_str().unwrap();
    assert_eq!(house.api_as(token, "POST", &path, Some(body)).await.0, 200);
    held.await.unwrap();
    assert_eq!(refund(&agent, 2).await.unwrap().says(), r#"{"amount":2}"#);
    let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    assert!(house.api("DELETE", &path, None).await.0 < 300);
    let asks = refund(&agent, 3);
    let card = house.parked(1).await.remove(0);
    assert!(card["decision"].is_null(), "{card}");
    assert_eq!(upstream.calls("refund").len(), 2);
    asks.abort();
}
