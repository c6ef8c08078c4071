//! Callers that are sent away and come back: legs, the user's page, what clients teach.

use super::*;
use std::time::Instant;

const HOLD: &str = "  approval: {hold: {default: 3s}}\n";

async fn again(agent: &Agent, arguments: &Value, state: &Value, more: Value) -> Answer {
    let mut params = json!({"name": "crm__refund", "arguments": arguments, "requestState": state});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent.request("tools/call", params).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_caller_is_sent_away_with_a_state_and_gets_its_answer_on_a_later_leg() {
    let (house, upstream) = open_with("", HOLD).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let arguments = json!({"amount": 7});
    let began = Instant::now();
    let first = refund(&agent, 7).await.unwrap();
    // Held, then sent away: never a poll.
    assert!(began.elapsed() >= Duration::from_secs(3));
    let result = first.result();
    assert_eq!(result["resultType"], "input_required", "{}", first.text);
    assert!(result.get("inputRequests").is_none() && result.get("isError").is_none());
    let state = &result["requestState"];
    let card = house.parked(1).await.remove(0);
    deserted(&house, &card["id"]).await;
    assert!(!state.as_str().unwrap().contains("apr_"));
    // Whose it is, and what of, is part of it.
    let other = house.agent("other", Speaks::Modern).await;
    for (who, arguments, state) in [
        (&other, &arguments, state),
        (&agent, &json!({"amount": 8}), state),
        (&agent, &arguments, &json!("AAAA")),
        (&agent, &arguments, &card["id"]),
    ] {
        let refused = again(who, arguments, state, json!({})).await;
        assert_eq!(refused.code(), -32602, "{}", refused.text);
    }
    let (second, _) = tokio::join!(again(&agent, &arguments, state, json!({})), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        house.decide(&card, "approve", None).await
    });
    assert_eq!(second.says(), r#"{"amount":7}"#, "{}", second.text);
    assert_eq!(upstream.calls("refund").len(), 1);
    // The state is of a call that is over: it runs nothing any more.
    let late = again(&agent, &arguments, state, json!({})).await;
    assert!(late.says().contains("handed over before"), "{}", late.text);
    assert_eq!(upstream.calls("refund").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_the_tenth_request_is_final_and_honest() {
    let (house, upstream) = open_with("", HOLD).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let mut answer = refund(&agent, 7).await.unwrap();
    let mut states = std::collections::BTreeSet::new();
    let mut legs = 1;
    while answer.result()["resultType"] == "input_required" {
        let state = answer.result()["requestState"].clone();
        assert!(states.insert(state.to_string()), "no state comes twice");
        answer = again(&agent, &json!({"amount": 7}), &state, json!({})).await;
        legs += 1;
    }
    assert_eq!(legs, 10);
    assert!(answer.is_error() && answer.says().contains("did NOT run"), "{}", answer.text);
    assert!(answer.says().contains("approval_status"));
    house.parked(1).await;
    assert!(upstream.calls("refund").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_how_long_a_call_is_held_means_all_of_it() {
    let policy = "  approval: {hold: 3s}\n";
    for (policy, spec) in [(policy, ""), ("", "  approval: {hold: {default: 3s, legs: false}}\n")] {
        let (house, _upstream) = open_with(policy, spec).await;
        let agent = house.agent("support", Speaks::Modern).await;
        let answer = refund(&agent, 7).await.unwrap();
        assert!(answer.says().contains("did NOT run"), "{}", answer.text);
    }
    // Nobody is sent away in a revision without rounds.
    let (house, _upstream) = open_with("", HOLD).await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    assert!(refund(&agent, 7).await.unwrap().says().contains("did NOT run"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_teaches_how_long_it_waits() {
    let (house, _upstream) = open_with("", "  approval: {hold: {default: 60s}}\n").await;
    for (speaks, settles) in
        [(Speaks::Modern, "input_required"), (Speaks::Legacy("2025-11-25"), "did NOT run")]
    {
        let agent = house.agent("support", speaks.clone()).await;
        let arguments = json!({"amount": 7, "note": settles});
        let held = call(&agent, arguments.clone());
        let mine = |card: &Value| card["arguments"].as_str().unwrap().contains(settles);
        let cards = house.parked(if speaks == Speaks::Modern { 1 } else { 2 }).await;
        let card = cards.into_iter().find(mine).unwrap();
        // It gives up after a second: next time it is held for the shortest time there is.
        tokio::time::sleep(Duration::from_secs(1)).await;
        held.abort();
        deserted(&house, &card["id"]).await;
        let began = Instant::now();
        let answer = call(&agent, arguments).await.unwrap();
        assert!(answer.text.contains(settles), "{speaks:?}: {}", answer.text);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_own_user_is_asked_at_the_page_and_the_client_decides_nothing() {
    let (house, upstream) = open("  approval: {approvers: [user], user: bert}\n").await;
    let client = || ("raw", json!({"elicitation": {"url": {}}}));
    let (url, own) = (house.url("support"), token("support"));
    let agent = Agent::connect_as(&url, &own, Speaks::Modern, client()).await.unwrap();
    let asked = refund(&agent, 7).await.unwrap().result();
    let card = house.parked(1).await.remove(0);
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    let page = format!("{}/approve/{}", house.admin, card["id"].as_str().unwrap());
    assert_eq!(
        (&question["params"]["mode"], &question["params"]["url"]),
        (&json!("url"), &json!(page))
    );
    // Who is not signed in is asked to, and not told which cards there are.
    let opened = reqwest::get(&page).await.unwrap();
    let kind = opened.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!((opened.status().as_u16(), kind.starts_with("text/html")), (401, true), "{kind}");
    let opened = opened.text().await.unwrap();
    let unknown = reqwest::get(format!("{}/approve/apr_unknown", house.admin)).await.unwrap();
    assert_eq!(unknown.status(), 401);
    let (id, unknown) = (card["id"].as_str().unwrap(), unknown.text().await.unwrap());
    assert_eq!(opened.replace(id, ""), unknown.replace("apr_unknown", ""));
    assert!(!opened.contains("refund"), "{opened}");
    let answer = |action: &str| json!({"inputResponses": {key: {"action": action}}});
    let state = &asked["requestState"];
    let seven = json!({"amount": 7});
    // That the client says yes is not that its user does.
    let (done, ()) = tokio::join!(again(&agent, &seven, state, answer("accept")), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(upstream.calls("refund").is_empty());
        assert_eq!(decide(&house, "bert", &card, ("approve", json!({}))).await.0, 200);
    });
    assert_eq!(done.says(), r#"{"amount":7}"#, "{}", done.text);
    // A user who declines at the client ends the wait.
    let asked = refund(&agent, 8).await.unwrap().result();
    let card = house.parked(1).await.remove(0);
    let ended =
        again(&agent, &json!({"amount": 8}), &asked["requestState"], answer("decline")).await;
    assert!(ended.is_error() && ended.says().contains("cancelled"), "{}", ended.text);
    assert_eq!(decide(&house, "bert", &card, ("approve", json!({}))).await.0, 409);
    // Who repeats the call waits and is not asked again.
    let asked = refund(&agent, 9).await.unwrap().result();
    assert_eq!(asked["resultType"], "input_required");
    let repeat = refund(&agent, 9);
    let card = house.parked(1).await.remove(0);
    decide(&house, "bert", &card, ("deny", json!({"reason": "enough"}))).await;
    assert!(repeat.await.unwrap().says().contains("enough"));

    let speaks = Speaks::Legacy("2025-11-25");
    let agent = Agent::connect_as(&url, &own, speaks, client()).await.unwrap();
    let asked = refund(&agent, 10).await.unwrap();
    assert_eq!(asked.code(), -32042, "{}", asked.text);
    let card = house.parked(1).await.remove(0);
    let question = &asked.json()["error"]["data"]["elicitations"][0];
    assert_eq!((&question["mode"], &question["elicitationId"]), (&json!("url"), &card["id"]));
    let held = refund(&agent, 10);
    decide(&house, "bert", &card, ("approve", json!({}))).await;
    assert_eq!(held.await.unwrap().says(), r#"{"amount":10}"#);
    // A client that cannot ask is held like any other.
    let plain = house.agent("support", Speaks::Modern).await;
    let held = refund(&plain, 11);
    let card = house.parked(1).await.remove(0);
    decide(&house, "bert", &card, ("approve", json!({}))).await;
    assert_eq!(held.await.unwrap().says(), r#"{"amount":11}"#);
}
