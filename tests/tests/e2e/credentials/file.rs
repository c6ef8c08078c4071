//! The token file, followed while the gateway runs and read again after it did not.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_file_is_followed() {
    let (house, _upstream) = open_with("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let other = house.agent("other", Speaks::Modern).await;
    let held = refund(&agent, 3);
    house.parked(1).await;
    let lists = |agent: &Agent| {
        let agent = agent.clone();
        async move { agent.request("tools/list", json!({})).await.unwrap().status }
    };
    // Broken: what was good before still counts.
    house.folder.write("tokens.yaml", "agents:\n  - {agent: other, sha: 1}\n");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!((lists(&agent).await, lists(&other).await), (200, 200));
    let entry = |agent: &str| {
        let hash = Digest::of(token(agent).as_bytes()).hex();
        format!("  - {{agent: {agent}, sha256: \"{hash}\"}}\n")
    };
    house.folder.write("tokens.yaml", &format!("agents:\n{}", entry("other")));
    let told = tokio::time::timeout(Duration::from_secs(3), held).await.expect("still held");
    assert!(told.unwrap().unwrap().says().contains("its credential was removed"));
    assert_eq!((lists(&agent).await, lists(&other).await), (401, 200));
    // And back again, with a run of its own again.
    house.folder.write("tokens.yaml", &format!("agents:\n{}{}", entry("other"), entry("support")));
    for _ in 0..60 {
        if lists(&agent).await == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let held = refund(&agent, 4);
    let cards = house.parked(1).await;
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":4}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_credential_left_open_ends_though_it_ended_while_no_gateway_was_there() {
    let (house, _upstream) = open_with("").await;
    let (_, short) = make(&house, json!({"agent": "other", "expires": "3s"})).await;
    let expiring = Agent::connect(&house.url("other"), &short, Speaks::Modern).await.unwrap();
    let listed = house.agent("support", Speaks::Modern).await;
    let held = [refund(&expiring, 1), refund(&listed, 2)];
    let cards = house.parked(2).await;
    let run = cards.iter().find(|card| card["agent"] == "support").unwrap()["run"].clone();
    let below = json!({"agent": "other", "parent": run});
    let below = house.api("POST", "/v1/runs", Some(below)).await.1["token"].clone();
    let folder = house.stop().await;
    drop(held);
    // One is taken out of the file, and the time of the other passes.
    let hash = Digest::of(token("a1").as_bytes()).hex();
    folder.write("tokens.yaml", &format!("agents:\n  - {{agent: a1, sha256: \"{hash}\"}}\n"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let house = House::from(folder).await.unwrap();
    let mut states = Vec::new();
    for _ in 0..100 {
        let (_, list) = house.api("GET", "/v1/approvals", None).await;
        let items = list["items"].as_array().unwrap();
        states = items.iter().map(|card| card["state"].as_str().unwrap().to_owned()).collect();
        if states.iter().all(|state| state == "stopped") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(states, ["stopped", "stopped"]);
    let url = house.url("other");
    assert!(Agent::connect(&url, below.as_str().unwrap(), Speaks::Modern).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_changes_hands_takes_nothing_along() {
    let (house, upstream) = open_with("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 3);
    let cards = house.parked(1).await;
    let hash = Digest::of(token("support").as_bytes()).hex();
    house
        .folder
        .write("tokens.yaml", &format!("agents:\n  - {{agent: other, sha256: \"{hash}\"}}\n"));
    let told = tokio::time::timeout(Duration::from_secs(3), held).await.expect("still held");
    assert!(told.unwrap().unwrap().says().contains("its credential was removed"));
    let other = Agent::connect(&house.url("other"), &token("support"), Speaks::Modern).await;
    let held = refund(&other.unwrap(), 3);
    let fresh = house.parked(1).await;
    assert_eq!(fresh[0]["agent"], "other");
    assert_ne!((&fresh[0]["id"], &fresh[0]["run"]), (&cards[0]["id"], &cards[0]["run"]));
    assert_eq!(house.decide(&fresh[0], "approve", None).await.0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":3}"#);
    assert_eq!(upstream.calls("refund").len(), 1);
}
