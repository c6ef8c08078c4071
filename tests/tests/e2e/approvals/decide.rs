//! Edited arguments, several approvers, the caller's own user.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edited_arguments_run_and_proposed_decided_and_sent_ones_are_kept_apart() {
    let (house, upstream) = open("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = call(&agent, json!({"note": "ü", "amount": 90}));
    let parked = house.parked(1).await.remove(0);
    for (wrong, said) in [
        (json!({"amount": 4711}), "`/amount`"),
        (json!({"note": "no amount"}), "required"),
        (json!([1]), "not an object"),
    ] {
        let (status, answer) =
            decide(&house, "anna", &parked, ("approve", json!({"arguments": wrong}))).await;
        let text = answer["error"]["message"].as_str().unwrap();
        assert_eq!(
            (status, answer["error"]["code"].as_str()),
            (400, Some("arguments")),
            "{answer}"
        );
        assert!(text.contains(said) && !text.contains("4711"), "{text}");
    }
    let edited = json!({"arguments": {"note": "less", "amount": 45}});
    let (status, answer) = decide(&house, "anna", &parked, ("approve", edited.clone())).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(held.await.unwrap().says(), r#"{"amount":45,"note":"less"}"#);
    assert_eq!(upstream.calls("refund"), [r#"{"amount":45,"note":"less"}"#]);
    let after = until(&house, &parked["id"], "done").await;
    assert_eq!(after["arguments"], r#"{"amount":45,"note":"less"}"#);
    assert_eq!(after["edit"]["asked"], parked["arguments"]);
    assert_eq!(after["edit"]["askedDigest"], parked["digest"]);
    assert_eq!(after["edit"]["by"], "anna");
    // The same again is the same answer; another edit is another decision.
    assert_eq!(decide(&house, "anna", &parked, ("approve", edited)).await.0, 200);
    let other = json!({"arguments": {"amount": 1}});
    assert_eq!(decide(&house, "anna", &parked, ("approve", other)).await.0, 409);
    let line = house.audit().into_iter().find(|line| line["kind"] == "decision").unwrap();
    assert_eq!((&line["arguments"], &line["edited"]), (&parked["digest"], &after["digest"]));
    let sent = house.audit().into_iter().find(|line| line["kind"] == "intent").unwrap();
    assert_eq!(sent["arguments"], after["digest"]);
    // The identical repeat asks for what it asked for, not for what was made of it.
    let again = call(&agent, json!({"note": "ü", "amount": 90}));
    assert_eq!(house.parked(1).await[0]["digest"], parked["digest"]);
    again.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_several_approvers_must_approve_what_both_saw() {
    let approval = "  approval: {approvers: {anyOf: [human], count: 2}}\n";
    let (house, upstream) = open(approval).await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 7);
    let first = house.parked(1).await.remove(0);
    assert_eq!((&first["needed"], first["votes"].as_array().unwrap().len()), (&json!(2), 0));
    let yes = || ("approve", json!({}));
    let (status, voted) = decide(&house, "anna", &first, yes()).await;
    assert_eq!((status, voted["state"].as_str()), (200, Some("parked")), "{voted}");
    assert_eq!(voted["votes"][0]["by"], "anna");
    // Once more does not count twice.
    let (status, again) = decide(&house, "anna", &first, yes()).await;
    assert_eq!((status, again["votes"].as_array().unwrap().len()), (200, 1), "{again}");
    assert!(upstream.calls("refund").is_empty());
    // An edit takes back what was said of other arguments.
    let edit = ("approve", json!({"arguments": {"amount": 6}}));
    let (status, edited) = decide(&house, "bert", &first, edit).await;
    assert_eq!((status, edited["votes"][0]["by"].as_str()), (200, Some("bert")), "{edited}");
    assert_eq!(decide(&house, "anna", &first, yes()).await.1["error"]["code"], "wrong_digest");
    let (status, done) = decide(&house, "anna", &edited, yes()).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(held.await.unwrap().says(), r#"{"amount":6}"#);
    // Both stand by it, however often they say so.
    assert_eq!(decide(&house, "bert", &edited, yes()).await.0, 200);
    assert_eq!(decide(&house, "bert", &edited, ("deny", json!({}))).await.0, 409);

    let held = refund(&agent, 8);
    let second = house.parked(1).await.remove(0);
    decide(&house, "anna", &second, yes()).await;
    assert_eq!(decide(&house, "bert", &second, ("deny", json!({"reason": "no"}))).await.0, 200);
    assert!(held.await.unwrap().says().contains("denied by the operator: no"));
    assert_eq!(upstream.calls("refund").len(), 1);
    // It does not stand for later calls: each needs two.
    let standing = json!({"standing": {"covers": "tool", "lasts": "run"}});
    let held = refund(&agent, 9);
    let third = house.parked(1).await.remove(0);
    let (status, refused) = decide(&house, "anna", &third, ("approve", standing)).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (400, Some("standing")), "{refused}");
    held.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_user_decides_no_other_approver_does() {
    let (house, upstream) = open("  approval: {approvers: [user], user: bert}\n").await;
    let agent = house.agent("support", Speaks::Legacy("2025-11-25")).await;
    let held = refund(&agent, 7);
    let card = house.parked(1).await.remove(0);
    assert_eq!(card["user"], "bert");
    let (status, refused) = decide(&house, "anna", &card, ("approve", json!({}))).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (403, Some("not_approver")));
    assert_eq!(house.decide(&card, "approve", None).await.0, 403, "nor the operator");
    assert!(upstream.calls("refund").is_empty());
    let (status, done) = decide(&house, "bert", &card, ("approve", json!({}))).await;
    assert_eq!((status, done["decision"]["role"].as_str()), (200, Some("user")), "{done}");
    assert_eq!(held.await.unwrap().says(), r#"{"amount":7}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_exact_decision_decides() {
    let (house, upstream) = open("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 7);
    let card = house.parked(1).await.remove(0);
    let digest = card["digest"].as_str().unwrap();
    let path = format!("/v1/approvals/{}/decision", card["id"].as_str().unwrap());
    let other = format!("sha256:{}", "0".repeat(64));
    for body in [
        json!({}),
        json!({"decision": "approve"}),
        json!({"decision": "Approve", "digest": digest}),
        json!({"decision": "approved", "digest": digest}),
        json!({"decision": true, "digest": digest}),
        json!({"decision": "approve", "digest": other}),
        json!({"decision": "deny", "digest": other}),
        json!({"decision": "approve", "digest": digest.to_uppercase()}),
        json!({"decision": "approve", "digest": digest, "Arguments": {}}),
        json!({"decision": "approve", "digest": digest, "by": "root"}),
        json!({"decision": "approve", "digest": digest, "reason": "because"}),
        json!({"decision": "approve", "digest": digest, "id": card["id"]}),
        json!({"decision": "deny", "digest": digest, "arguments": {"amount": 1}}),
        json!({"decision": "deny", "standing": {"covers": "tool", "lasts": "run"}}),
        json!({"decision": "approve", "digest": digest, "standing": {"covers": "all", "lasts": "run"}}),
        json!({"decision": "approve", "digest": digest, "standing": {"covers": "tool"}}),
        json!({"decision": "approve", "digest": digest, "standing": {"covers": "tool", "lasts": "8d"}}),
        json!({"decision": "approve", "digest": digest, "standing": {"covers": "tool", "lasts": "run", "of": "agent"}}),
    ] {
        let (status, answer) = house.api("POST", &path, Some(body.clone())).await;
        assert_eq!(status, 400, "{body}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().len() > 10, "{answer}");
    }
    assert_eq!(super::card(&house, &card["id"]).await["state"], "parked");
    assert!(upstream.calls("refund").is_empty());
    let raw = format!("{{\"decision\":\"deny\",\"decision\":\"approve\",\"digest\":\"{digest}\"}}");
    let sent = reqwest::Client::new().post(format!("{}{path}", house.admin));
    let sent = sent.bearer_auth(admin_token("anna")).header("content-type", "application/json");
    assert_eq!(sent.body(raw).send().await.unwrap().status(), 400);
    held.abort();
}
