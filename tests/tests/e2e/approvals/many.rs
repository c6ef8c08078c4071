//! Many at once: batches, kagent's own words, the riskiest first, caps.

use super::*;

async fn batch(house: &House, who: &str, body: Value) -> (u16, Value) {
    house.api_as(&admin_token(who), "POST", "/v1/decisions", Some(body)).await
}

async fn held(
    house: &House,
    amounts: std::ops::Range<u32>,
) -> (Vec<JoinHandle<Answer>>, Vec<Value>) {
    let agent = house.agent("support", Speaks::Modern).await;
    let before = house.api("GET", "/v1/approvals?state=parked", None).await.1;
    let mut count = before["items"].as_array().unwrap().len();
    let mut calls = Vec::new();
    for amount in amounts {
        calls.push(refund(&agent, amount));
        count += 1;
        // One after the other, so that cards come in the order of their amounts.
        house.parked(count).await;
    }
    (calls, house.parked(count).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_one_result_for_each_and_leaves_out_what_it_does_not_name() {
    let (house, upstream) = open("").await;
    let (calls, cards) = held(&house, 0..5).await;
    let say = |at: usize, decision: &str| json!({"id": cards[at]["id"], "digest": cards[at]["digest"], "decision": decision});
    let twice = json!({"decisions": [say(0, "approve"), say(1, "deny"), say(0, "deny")]});
    let (status, refused) = batch(&house, "anna", twice).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (400, Some("duplicate_id")));
    assert_eq!(house.parked(5).await.len(), 5, "and decided nothing");
    let mut wrong = say(2, "approve");
    wrong["digest"] = cards[3]["digest"].clone();
    let mut edited = say(3, "approve");
    edited["arguments"] = json!({"amount": 30});
    let (status, done) = batch(
        &house,
        "anna",
        json!({"decisions": [say(0, "approve"), say(1, "deny"), wrong, edited,
            {"id": "apr_nothing", "decision": "deny"}]}),
    )
    .await;
    assert_eq!(status, 200, "{done}");
    let results = done["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|r| r["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 400, 200, 404], "{done}");
    let ids: Vec<_> = results.iter().take(4).map(|result| &result["id"]).collect();
    assert_eq!(ids, cards[..4].iter().map(|card| &card["id"]).collect::<Vec<_>>());
    let left = house.parked(2).await;
    assert_eq!([&left[0]["id"], &left[1]["id"]], [&cards[2]["id"], &cards[4]["id"]]);
    let (_, late) = batch(&house, "bert", json!({"decisions": [say(0, "deny")]})).await;
    assert_eq!(late["results"][0]["status"], 409, "{late}");
    assert_eq!(late["results"][0]["approval"]["decision"]["by"], "anna");
    assert_eq!(batch(&house, "hugo", json!({"decisions": [say(2, "deny")]})).await.0, 403);
    let mut sent = Vec::new();
    for (at, call) in calls.into_iter().enumerate() {
        match at {
            0 | 3 => sent.push(call.await.unwrap().says()),
            1 => assert!(call.await.unwrap().is_error()),
            _ => call.abort(),
        }
    }
    sent.sort();
    let mut received = upstream.calls("refund");
    received.sort();
    assert_eq!((sent, received.len()), (received.clone(), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kagent_answers_in_its_own_words() {
    let (house, upstream) = open("").await;
    let (calls, cards) = held(&house, 0..5).await;
    let asked = house.api("GET", "/v1/approvals?state=parked&format=kagent", None).await.1;
    assert_eq!(asked["type"], "tool_approval_request", "{asked}");
    let tools = asked["tools"].as_array().unwrap();
    assert_eq!((tools.len(), &tools[2]["args"]), (5, &json!({"amount": 2})));
    assert_eq!((&tools[2]["call_id"], &tools[2]["name"]), (&cards[2]["id"], &json!("crm__refund")));
    // As `docs/architecture/human-in-the-loop.md` of kagent-dev/kagent has it, message and all.
    let extension = "https://kagent.dev/extensions/hitl/v1";
    let message = json!({
        "messageId": "approval-response-1", "role": "user", "extensions": [extension],
        "metadata": {extension: {"type": "tool_approval_response", "approvals": [
            {"id": tools[0]["id"], "approved": false, "rejection_reason": "The file is still used"},
            {"id": tools[1]["id"], "approved": true}]}},
        "parts": [{"kind": "text", "text": "Approved"}]});
    let (status, done) = batch(&house, "anna", message).await;
    assert_eq!(status, 200, "{done}");
    // The older form, as the data of a message's part.
    let ids: Vec<&str> = tools.iter().map(|tool| tool["id"].as_str().unwrap()).collect();
    let older = json!({"kind": "data", "metadata": {}, "data": {"decision_type": "batch",
        "decisions": {ids[2]: "approve", ids[3]: "reject"},
        "rejection_reasons": {ids[3]: "Too dangerous"}}});
    let (status, done) = batch(&house, "anna", older).await;
    assert_eq!(status, 200, "{done}");
    let answers: Vec<Answer> = {
        let mut answers = Vec::new();
        for call in calls.into_iter().take(4) {
            answers.push(call.await.unwrap());
        }
        answers
    };
    assert!(answers[0].says().contains("The file is still used"), "{}", answers[0].text);
    assert!(!answers[1].is_error() && !answers[2].is_error());
    assert!(answers[3].says().contains("Too dangerous"), "{}", answers[3].text);
    assert_eq!(upstream.calls("refund").len(), 2);
    // No id, no digest, no exact word: nothing is approved by leaving something out.
    let plain = cards[4]["id"].clone();
    for (refused, due) in [
        (json!({"decision_type": "approve"}), 400),
        (json!({"decision_type": "batch", "decisions": {}}), 400),
        (json!({"decision_type": "batch", "decisions": {ids[4]: "yes"}}), 400),
        (json!({"type": "tool_approval_response", "approvals": [{"id": ids[4]}]}), 400),
        (
            json!({"type": "tool_approval_response", "approvals": [{"id": ids[4], "approved": "true"}]}),
            400,
        ),
        (json!({"type": "ask_user_response", "id": "x", "answers": []}), 400),
        (
            json!({"type": "tool_approval_response", "approvals": [{"id": plain, "approved": true}]}),
            200,
        ),
    ] {
        let (status, answer) = batch(&house, "anna", refused.clone()).await;
        assert_eq!(status, due, "{refused}: {answer}");
        if due == 200 {
            assert_eq!(answer["results"][0]["error"]["code"], "digest_missing", "{answer}");
        }
    }
    house.parked(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_riskiest_comes_first_however_many_others_wait() {
    let (house, _upstream) = open("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let mut calls = Vec::new();
    for number in 0..6 {
        let agent = agent.clone();
        calls.push(tokio::spawn(async move {
            agent.call("crm__look", json!({"number": number})).await.unwrap()
        }));
    }
    house.parked(6).await;
    calls.push(refund(&agent, 1));
    let by_age = house.parked(7).await;
    assert_eq!(by_age[6]["tool"], "refund");
    let (_, list) = house.api("GET", "/v1/approvals?state=parked&order=risk", None).await;
    let items = list["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["tool"]), (7, &json!("refund")), "{list}");
    assert_eq!(items[0]["claims"]["destructiveHint"], true);
    assert_eq!(house.api("GET", "/v1/approvals?order=risk", None).await.0, 400);
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_calls_are_capped_by_run_agent_and_server_and_others_go_on() {
    let mut offer = Offer::tools(&[]);
    offer.tools = format!("[{REFUND},{LOOK}]");
    let upstream = Upstream::start(offer).await;
    let policy = policy(&upstream.url, "  limits: {parkedCalls: 3, parkedCallsPerRun: 2}\n")
        .replace("spec: {http:", "spec: {parkedCalls: 4, http:");
    let house = House::start(&policy, &admins()).await;
    let run = || async {
        let started = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
        let member = |name: &str| started[name].as_str().unwrap().to_owned();
        Agent::connect(&member("url"), &member("token"), Speaks::Modern).await.unwrap()
    };
    let (first, second) = (run().await, run().await);
    let other = house.agent("other", Speaks::Modern).await;
    let mut held = vec![refund(&first, 1)];
    house.parked(1).await;
    held.push(refund(&first, 2));
    house.parked(2).await;
    let refused = refund(&first, 3).await.unwrap();
    assert!(refused.says().contains("This run has 2 calls"), "{}", refused.text);
    held.push(refund(&second, 3));
    house.parked(3).await;
    let refused = refund(&second, 4).await.unwrap();
    assert!(refused.says().contains("Agent `support` has 3 calls"), "{}", refused.text);
    held.push(refund(&other, 5));
    house.parked(4).await;
    let refused = refund(&other, 6).await.unwrap();
    assert!(refused.says().contains("Server `crm` has calls"), "{}", refused.text);
    assert!(refused.says().contains("was not queued"));
    // A repeat makes no card, so it is not one too many.
    held.push(refund(&first, 1));
    let cards = house.parked(4).await;
    house.decide(&cards[0], "approve", None).await;
    until(&house, &cards[0]["id"], "done").await;
    held.push(refund(&first, 7));
    house.parked(4).await;
    held.iter().for_each(JoinHandle::abort);
}
