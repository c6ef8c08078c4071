//! Who may do what, cell for cell.

use super::*;

/// A token of an admin that the test's configuration names.
fn admin_token(name: &str) -> String {
    format!("pcl_admin_{}", Digest::of(name.as_bytes()).short(43))
}

fn principals() -> String {
    let entry = |name: &str, role: &str| {
        let hash = Digest::of(admin_token(name).as_bytes());
        format!("      - {{name: {name}, {role}, sha256: \"{}\"}}\n", hash.hex())
    };
    format!(
        "  admin:\n    principals:\n{}{}{}{}{}{}",
        entry("vera", "role: viewer"),
        entry("anna", "role: approver"),
        entry("hugo", "role: harness, agents: [support]"),
        entry("hedy", "role: harness, agents: [support], alsoApprover: true"),
        entry("hank", "role: harness, agents: [other]"),
        entry("olga", "role: operator"),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_credential_may_do_what_its_class_may_and_nothing_more() {
    let (house, upstream) = open_with(&principals()).await;
    let run = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
    let run_token = run["token"].as_str().unwrap().to_owned();
    let agent = house.agent("support", Speaks::Modern).await;
    // Names of credentials, in the order of the columns below.
    let who: Vec<(&str, String)> = ["vera", "anna", "hugo", "hedy", "hank", "olga"]
        .map(|name| (name, admin_token(name)))
        .into_iter()
        .chain([("agent", token("support")), ("run", run_token), ("nobody", String::new())])
        .collect();
    // 200 done, 403 not for this role, 404 not for these eyes, 401 not for this listener.
    let cells: [(&str, [u16; 9]); 12] = [
        ("read cards", [200, 200, 200, 200, 200, 200, 401, 401, 401]),
        ("read one card", [200, 200, 200, 200, 404, 200, 401, 401, 401]),
        ("read agents", [200, 200, 200, 200, 200, 200, 401, 401, 401]),
        ("read diagnostics", [200, 200, 403, 403, 403, 200, 401, 401, 401]),
        ("decide", [403, 200, 403, 200, 403, 200, 401, 401, 401]),
        ("read runs", [200, 200, 200, 200, 200, 200, 401, 401, 401]),
        ("read one run", [200, 200, 200, 200, 404, 200, 401, 401, 401]),
        ("start a run", [403, 403, 201, 201, 403, 201, 401, 401, 401]),
        ("stop a run", [403, 403, 200, 200, 404, 200, 401, 401, 401]),
        ("read tokens", [200, 200, 403, 403, 403, 200, 401, 401, 401]),
        ("make a token", [403, 403, 403, 403, 403, 201, 401, 401, 401]),
        ("revoke a token", [403, 403, 403, 403, 403, 200, 401, 401, 401]),
    ];
    let mut wrong = Vec::new();
    let mut amount = 0;
    for (what, due) in cells {
        for ((name, credential), due) in who.iter().zip(due) {
            // Another call each time: a repeat would collect what the one before left.
            amount += 1;
            let status = attempt(&house, (&agent, amount), what, credential).await;
            // Who fails too often is told to wait, whatever the credential.
            let status = if status == 429 { 401 } else { status };
            if status != due {
                wrong.push(format!("{name} may not {what}: {status}, not {due}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Three were allowed to decide, and nothing else ran.
    assert_eq!(upstream.calls("refund").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harness_sees_and_starts_its_own_agents_alone() {
    let (house, _upstream) = open_with(&principals()).await;
    let hugo = admin_token("hugo");
    let foreign = house.api("POST", "/v1/runs", Some(json!({"agent": "other"}))).await.1;
    let own = house.api("POST", "/v1/runs", Some(json!({"agent": "support"}))).await.1;
    let (_, list) = house.api_as(&hugo, "GET", "/v1/runs", None).await;
    let listed: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|i| &i["run"]).collect();
    assert!(listed.contains(&&own["run"]) && !listed.contains(&&foreign["run"]), "{list}");
    // A run of another agent is no parent, exactly as one that does not exist.
    let below = |parent: &Value| Some(json!({"agent": "support", "parent": parent}));
    let hidden = house.api_as(&hugo, "POST", "/v1/runs", below(&foreign["run"])).await;
    let nothing = json!("run_aaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_eq!(hidden, house.api_as(&hugo, "POST", "/v1/runs", below(&nothing)).await);
    assert_eq!(hidden.0, 404);
    assert_eq!(house.api_as(&hugo, "POST", "/v1/runs", below(&own["run"])).await.0, 201);
    let run = |body: Value| house.api_as(&hugo, "POST", "/v1/runs", Some(body));
    let odd = [
        json!({"agent": "support", "parentAgent": "other"}),
        json!({"agent": "nobody-at-all"}),
        json!({"agent": "other"}),
    ];
    for body in odd {
        assert_eq!(run(body.clone()).await.0, 403, "{body}");
    }
    for body in [json!({}), json!({"agent": "support", "scope": "*"}), json!({"agent": 7})] {
        assert_eq!(run(body.clone()).await.0, 400, "{body}");
    }
    assert_eq!(run(json!({"agent": "support", "narrow": {"tools": null}})).await.0, 400);
}

async fn attempt(
    house: &House,
    (agent, amount): (&Agent, u32),
    what: &str,
    credential: &str,
) -> u16 {
    let as_one = |method: &'static str, path: String, body: Option<Value>| async move {
        house.api_as(credential, method, &path, body).await.0
    };
    match what {
        "read cards" => as_one("GET", "/v1/approvals".to_owned(), None).await,
        "read agents" => as_one("GET", "/v1/agents".to_owned(), None).await,
        "read diagnostics" => as_one("GET", "/v1/diagnostics".to_owned(), None).await,
        "read runs" => as_one("GET", "/v1/runs".to_owned(), None).await,
        "read tokens" => as_one("GET", "/v1/tokens".to_owned(), None).await,
        "start a run" => {
            as_one("POST", "/v1/runs".to_owned(), Some(json!({"agent": "support"}))).await
        }
        "make a token" => {
            as_one("POST", "/v1/tokens".to_owned(), Some(json!({"agent": "support"}))).await
        }
        "read one run" | "stop a run" => {
            let body = Some(json!({"agent": "support"}));
            let run = house.api("POST", "/v1/runs", body).await.1;
            let path = format!("/v1/runs/{}", run["run"].as_str().unwrap());
            let method = if what == "stop a run" { "DELETE" } else { "GET" };
            as_one(method, path, None).await
        }
        "revoke a token" => {
            let body = Some(json!({"agent": "support"}));
            let made = house.api("POST", "/v1/tokens", body).await.1;
            as_one("DELETE", format!("/v1/tokens/{}", made["id"].as_str().unwrap()), None).await
        }
        "read one card" | "decide" => {
            let held = refund(agent, amount);
            let card = house.parked(1).await.remove(0);
            let path = format!("/v1/approvals/{}", card["id"].as_str().unwrap());
            let status = if what == "decide" {
                let body = json!({"decision": "approve", "digest": card["digest"]});
                as_one("POST", format!("{path}/decision"), Some(body)).await
            } else {
                as_one("GET", path, None).await
            };
            if status != 200 || what == "read one card" {
                house.decide(&card, "deny", None).await;
            }
            held.await.unwrap().unwrap();
            status
        }
        _ => panic!("{what}"),
    }
}
