//! Who decides what, when, and what they are shown.

use super::{admin, open, parked, policy, refund, start, text};
use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::approver::Approver;
use portcullis_tests::house::House;
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};

const PATIENT: &str = "decideWithin: 10m";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_runs_at_once_are_seven_cards_that_are_decided_in_any_order() {
    let (house, upstream) = open(&[("support", PATIENT)]).await;
    let operator = Approver::of(&house);
    let mut runs = Vec::new();
    for _ in 0..7 {
        runs.push(start(&operator, "support", Speaks::Modern).await);
    }
    let held: Vec<_> = runs.iter().map(|(_, agent)| refund(agent, 7)).collect();
    let mut cards = parked(&operator, 7).await;
    // The last first, and of three one is denied.
    cards.reverse();
    for (at, card) in cards.iter().enumerate() {
        let decision = if at % 3 == 0 { "deny" } else { "approve" };
        assert_eq!(operator.decide(card, decision).await.unwrap().0, 200);
    }
    for ((run, _), held) in runs.iter().zip(held) {
        let told = held.await.unwrap().unwrap();
        let at = cards.iter().position(|card| card["run"] == **run).unwrap();
        assert_eq!(told.is_error(), at % 3 == 0, "{}", told.text);
    }
    assert_eq!(upstream.calls("refund").len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_late_or_twice_finds_every_card() {
    let (house, upstream) = open(&[("support", PATIENT)]).await;
    let operator = Approver::of(&house);
    let agent = house.agent("support", Speaks::Modern).await;
    let held = [refund(&agent, 1), refund(&agent, 2)];
    let cards = parked(&operator, 2).await;
    let watches = |by: Approver, revision: Value| async move {
        let since = text(&revision, "revision").to_owned();
        let path = format!("/v1/approvals?state=parked&wait=60&since={since}");
        by.ask("GET", &path, None).await.unwrap().1
    };
    // They are not even known to the gateway when the cards are born.
    let (ann, bob) = (admin(&house, "ann", "approver").await, admin(&house, "bob", "viewer").await);
    assert_eq!(ann.cards("state=parked").await.unwrap(), cards);
    let (_, now) = ann.ask("GET", "/v1/approvals?state=parked", None).await.unwrap();
    let both = [(&ann, now.clone()), (&bob, now)];
    let both = both.map(|(by, now)| tokio::spawn(watches(by.clone(), now)));
    assert_eq!(ann.decide(&cards[0], "approve").await.unwrap().0, 200);
    for seen in both {
        let seen = seen.await.unwrap();
        assert_eq!(seen["items"], json!([cards[1]]), "{seen}");
    }
    assert_eq!(ann.decide(&cards[1], "approve").await.unwrap().0, 200);
    for held in held {
        assert!(!held.await.unwrap().unwrap().is_error());
    }
    assert_eq!(upstream.calls("refund").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_names_who_asks_for_what_and_by_which_rule() {
    let (house, _upstream) = open(&[("support", "approvers: [human]")]).await;
    let operator = Approver::of(&house);
    let (run, agent) = start(&operator, "support", Speaks::Modern).await;
    let held = refund(&agent, 7);
    let card = parked(&operator, 1).await.remove(0);
    let due = [
        ("agent", json!("support")),
        ("run", json!(run)),
        ("parents", json!([])),
        ("server", json!("crm")),
        ("tool", json!("refund")),
        ("arguments", json!(r#"{"amount":7}"#)),
        ("argumentsView", json!({"amount": 7})),
        ("approvers", json!(["human"])),
        ("masked", json!(false)),
        ("unattended", json!(false)),
        ("decision", Value::Null),
    ];
    for (member, value) in due {
        assert_eq!(card[member], value, "{member}: {card}");
    }
    // The line of the policy that grants the tool without approving it.
    let rule = text(&card, "rule");
    let line: usize = rule.split(':').nth(1).unwrap().parse().unwrap();
    let policy = std::fs::read_to_string(house.folder.path().join("policy/policy.yaml")).unwrap();
    assert!(rule.starts_with("policy/policy.yaml:"), "{rule}");
    assert!(policy.lines().nth(line - 1).unwrap().contains("allow: [get, refund]"), "{rule}");
    assert!(text(&card, "deadline") > text(&card, "created"));
    held.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_counts_once_however_often_and_whenever_it_comes() {
    let (house, upstream) = open(&[("support", PATIENT), ("other", "decideWithin: 1s")]).await;
    let operator = Approver::of(&house);
    let unknown = json!({"id": "apr_aaaaaaaaaaaaaaaaaaaaaaaaaa", "digest": format!("sha256:{}", "0".repeat(64))});
    assert_eq!(operator.decide(&unknown, "approve").await.unwrap().0, 404);
    let late = refund(&house.agent("other", Speaks::Modern).await, 1);
    let expired = parked(&operator, 1).await.remove(0);
    assert!(late.await.unwrap().unwrap().says().contains("nobody decided"));
    let held = refund(&house.agent("support", Speaks::Modern).await, 2);
    let used = parked(&operator, 1).await.remove(0);
    assert_eq!(operator.decide(&used, "approve").await.unwrap().0, 200);
    assert!(!held.await.unwrap().unwrap().is_error());
    let replays = async |operator: &Approver| {
        for (card, decision, due, state) in [
            (&used, "approve", 200, "done"),
            (&used, "deny", 409, "done"),
            (&expired, "approve", 409, "expired"),
            (&expired, "deny", 409, "expired"),
        ] {
            let (status, answer) = operator.decide(card, decision).await.unwrap();
            assert_eq!((status, text(&answer, "state")), (due, state), "{decision}: {answer}");
        }
    };
    replays(&operator).await;
    let house = House::process(house.kill().await).await;
    replays(&Approver::of(&house)).await;
    // The approval is used up, so that the next identical call asks.
    let again = refund(&house.agent("support", Speaks::Modern).await, 2);
    assert_ne!(parked(&Approver::of(&house), 1).await[0]["id"], used["id"]);
    assert_eq!(upstream.calls("refund"), [r#"{"amount":2}"#]);
    again.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_decided_is_told_by_the_token_alone() {
    let (house, _upstream) = open(&[("support", PATIENT)]).await;
    let operator = Approver::of(&house);
    let (status, made) = operator
        .ask("POST", "/v1/tokens", Some(json!({"admin": "ann", "role": "approver"})))
        .await
        .unwrap();
    assert_eq!(status, 201, "{made}");
    let held = refund(&house.agent("support", Speaks::Modern).await, 7);
    let card = parked(&operator, 1).await.remove(0);
    for member in ["by", "approver", "decider", "user"] {
        let mut body = json!({"decision": "approve", "digest": card["digest"]});
        body[member] = json!("the-boss");
        let path = format!("/v1/approvals/{}/decision", text(&card, "id"));
        let (status, answer) = operator.ask("POST", &path, Some(body)).await.unwrap();
        assert_eq!(status, 400, "{answer}");
    }
    let mut decision = reqwest::Client::new()
        .post(format!("{}/v1/approvals/{}/decision", house.admin, text(&card, "id")))
        .bearer_auth(text(&made, "token"))
        .json(&json!({"decision": "approve", "digest": card["digest"]}));
    for header in ["x-approver", "x-user", "x-forwarded-user", "x-remote-user", "from", "cookie"] {
        decision = decision.header(header, "the-boss");
    }
    assert_eq!(decision.send().await.unwrap().status(), 200);
    assert!(!held.await.unwrap().unwrap().is_error());
    let decided = operator.card(text(&card, "id")).await.unwrap().unwrap();
    assert_eq!(decided["decision"]["by"], "ann");
    let by = |line: &Value| line["kind"] == "decision" && line["by"] == "ann";
    assert!(house.audit().iter().any(by) && !format!("{:?}", house.audit()).contains("the-boss"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_the_decision_api_decides_nothing() {
    let (house, upstream) = open(&[("support", PATIENT)]).await;
    let operator = Approver::of(&house);
    let held = refund(&house.agent("support", Speaks::Modern).await, 7);
    let card = parked(&operator, 1).await.remove(0);
    // The gateway is told to send calls there, by whatever path, and has no credential for it.
    let url = format!("{}/v1/approvals/{}/decision", house.admin, text(&card, "id"));
    let second = House::start(&policy(&url, &[("support", "decideWithin: 10m")]), "").await;
    let agent = second.agent("support", Speaks::Modern).await;
    let body = json!({"decision": "approve", "digest": card["digest"]});
    for tool in ["crm__get", "crm__refund"] {
        assert!(agent.call(tool, body.clone()).await.unwrap().is_error());
    }
    assert_eq!(operator.card(text(&card, "id")).await.unwrap().as_ref(), Some(&card));
    assert!(upstream.calls("refund").is_empty() && !held.is_finished());
    held.abort();
}

/// A gateway as a server of another one: each asks by its own policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_through_two_gateways_needs_what_each_of_them_asks_for() {
    let upstream = Upstream::start(Offer::tools(&["get", "refund"])).await;
    let inner = House::start(&policy(&upstream.url, &[("other", PATIENT)]), "").await;
    let outer = policy(&inner.url("other"), &[("support", PATIENT)]);
    let outer = outer.replace(
        "\"}}",
        &format!("\", headers: {{Authorization: \"Bearer {}\"}}}}}}", inner.token("other")),
    );
    let outer =
        outer.replace("[get, refund]", "[crm__get, crm__refund]").replace("[get]", "[crm__get]");
    let outer = House::start(&outer, "").await;
    let agent = outer.agent("support", Speaks::Modern).await;
    let call = |agent: &Agent| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.call("crm__crm__refund", json!({"amount": 7})).await })
    };
    let held = call(&agent);
    let asked = parked(&Approver::of(&outer), 1).await.remove(0);
    assert!(Approver::of(&inner).cards("").await.unwrap().is_empty());
    assert_eq!(Approver::of(&outer).decide(&asked, "approve").await.unwrap().0, 200);
    let asked = parked(&Approver::of(&inner), 1).await.remove(0);
    assert!(upstream.calls("refund").is_empty());
    assert_eq!(Approver::of(&inner).decide(&asked, "approve").await.unwrap().0, 200);
    let told = held.await.unwrap().unwrap();
    assert_eq!(told.says(), r#"{"amount":7}"#, "{}", told.text);
    // What one of them denies does not run, whatever the other one says.
    let held = call(&agent);
    let asked = parked(&Approver::of(&outer), 1).await.remove(0);
    assert_eq!(Approver::of(&outer).decide(&asked, "approve").await.unwrap().0, 200);
    let asked = parked(&Approver::of(&inner), 1).await.remove(0);
    assert_eq!(Approver::of(&inner).decide(&asked, "deny").await.unwrap().0, 200);
    assert!(held.await.unwrap().unwrap().is_error());
    assert_eq!(upstream.calls("refund").len(), 1);
}
