//! Runs end with all below them, by whatever way, and with nothing beside them.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_run_ends_all_below_it_and_nothing_beside_it() {
    for speaks in ERAS {
        let (house, upstream) = open().await;
        let top = start(&house, json!({"agent": "support"})).await;
        let below = start(&house, json!({"agent": "a1", "parent": top.run})).await;
        let deep = start(&house, json!({"agent": "a1", "parent": below.run})).await;
        let beside = start(&house, json!({"agent": "a1"})).await;
        let mut agents = Vec::new();
        for run in [&top, &below, &deep, &beside] {
            agents.push(connect(run, speaks.clone()).await);
        }
        // The same call in each: four runs, four cards.
        let held: Vec<_> = agents.iter().map(|agent| refund(agent, 7)).collect();
        let cards = house.parked(4).await;
        let of = |run: &str| cards.iter().find(|card| card["run"] == *run).unwrap();
        assert_eq!(
            of(&deep.run)["parents"],
            json!([{"agent": "a1", "run": below.run}, {"agent": "support", "run": top.run}])
        );
        let path = format!("/v1/runs/{}?why=enough", top.run);
        let (status, ended) = house.api("DELETE", &path, None).await;
        assert_eq!(status, 200, "{ended}");
        // All of it is settled when the answer is there.
        let (_, list) = house.api("GET", "/v1/approvals", None).await;
        for card in list["items"].as_array().unwrap() {
            let due = if card["run"] == *beside.run { "parked" } else { "stopped" };
            assert_eq!(card["state"], due, "{card}");
        }
        assert_eq!(ended["settled"].as_array().unwrap().len(), 3, "{ended}");
        assert_eq!(ended["ended"].as_array().unwrap().len(), 3, "{ended}");
        for (at, held) in held.into_iter().enumerate() {
            if at == 3 {
                assert!(!held.is_finished());
                assert_eq!(house.decide(of(&beside.run), "approve", None).await.0, 200);
                assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":7}"#);
                continue;
            }
            let answer = held.await.unwrap().unwrap();
            assert!(answer.is_error() && answer.says().contains("enough"), "{}", answer.text);
            assert!(answer.says().contains("did not run"), "{}", answer.text);
        }
        for run in [&top, &below, &deep] {
            assert_eq!(status_at(&run.url, &run.token).await.0, 401);
            let (_, shown) = house.api("GET", &format!("/v1/runs/{}", run.run), None).await;
            assert_eq!((&shown["state"], &shown["why"]), (&json!("ended"), &json!("enough")));
        }
        assert_eq!(upstream.calls("refund"), [r#"{"amount":7}"#]);
        // What is over stays over: no new run below it, and nothing more to end.
        let body = json!({"agent": "a1", "parent": top.run});
        assert_eq!(house.api("POST", "/v1/runs", Some(body)).await.0, 404);
        let (_, again) = house.api("DELETE", &path, None).await;
        assert_eq!(again["ended"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_runs_is_cancelled_with_its_run() {
    for speaks in ERAS {
        let offer = Offer::tools(&["get", "refund"]).behave(Behave::Hang);
        let (house, upstream) = open_with(offer, "").await;
        let run = start(&house, json!({"agent": "support"})).await;
        let agent = connect(&run, speaks).await;
        let auto = call(&agent, "crm__get", json!({}));
        let asked = refund(&agent, 3);
        let cards = house.parked(1).await;
        assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
        until(|| upstream.calls("get").len() == 1 && upstream.calls("refund").len() == 1).await;
        let began = Instant::now();
        let (status, ended) = house.api("DELETE", &format!("/v1/runs/{}", run.run), None).await;
        assert_eq!((status, began.elapsed() < Duration::from_secs(4)), (200, true), "{ended}");
        // It may have run, and says so; nobody repeats it.
        assert_eq!(ended["settled"][0]["state"], "unknown", "{ended}");
        let told = asked.await.unwrap().unwrap();
        assert!(told.says().contains("may have run"), "{}", told.text);
        // The other one is over as well: its connection ends without an answer to it.
        let cut = tokio::time::timeout(Duration::from_secs(2), auto).await.expect("it hangs on");
        assert!(cut.unwrap().is_ok_and(|answer| answer.result().is_null()));
        assert_eq!(upstream.calls("refund").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_its_time() {
    let (house, upstream) = open().await;
    let run = start(&house, json!({"agent": "support", "ttl": "1s"})).await;
    let below = start(&house, json!({"agent": "a1", "parent": run.run, "ttl": "1h"})).await;
    let agent = connect(&below, Speaks::Modern).await;
    let held = refund(&agent, 9);
    let told = tokio::time::timeout(Duration::from_secs(8), held).await.expect("it was not ended");
    let told = told.unwrap().unwrap();
    assert!(told.says().contains("its time was over"), "{}", told.text);
    assert_eq!(status_at(&run.url, &run.token).await.0, 401);
    assert_eq!(status_at(&below.url, &below.token).await.0, 401);
    assert!(upstream.calls("refund").is_empty());
    for (ttl, status) in [("25h", 400), ("0s", 400), ("soon", 400), ("24h", 201)] {
        let body = json!({"agent": "support", "ttl": ttl});
        assert_eq!(house.api("POST", "/v1/runs", Some(body)).await.0, status, "{ttl}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_survive_a_restart_and_what_ended_stays_ended() {
    let (house, upstream) = open().await;
    let narrow = json!({"tools": [{"server": "crm", "allow": ["refund"]}]});
    let live = start(&house, json!({"agent": "support", "narrow": narrow})).await;
    let over = start(&house, json!({"agent": "support"})).await;
    assert_eq!(house.api("DELETE", &format!("/v1/runs/{}", over.run), None).await.0, 200);
    let agent = connect(&live, Speaks::Modern).await;
    let held = refund(&agent, 4);
    house.parked(1).await;
    let folder = house.stop().await;
    drop(held);
    let house = House::from(folder).await.unwrap();
    let here = |run: &Started| format!("{}/a/support/r/{}/mcp", house.agents, run.run);
    assert_eq!(status_at(&here(&over), &over.token).await.0, 401);
    let agent = Agent::connect(&here(&live), &live.token, Speaks::Modern).await.unwrap();
    assert!(!agent.tools().await.unwrap().contains(&"crm__get".to_owned()));
    let held = refund(&agent, 4);
    let cards = house.parked(1).await;
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":4}"#);
    assert_eq!(upstream.calls("refund").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_goes_on_without_its_caller_and_a_start_that_races_it_leaves_nothing() {
    let (house, _upstream) = open().await;
    for round in 0..12 {
        let top = start(&house, json!({"agent": "support"})).await;
        let agent = connect(&top, Speaks::Modern).await;
        let path = format!("/v1/runs/{}", top.run);
        let starting = async {
            let mut made = Vec::new();
            for _ in 0..3 {
                let body = json!({"agent": "a1", "parent": top.run});
                let (status, answer) = house.api("POST", "/v1/runs", Some(body)).await;
                assert!(matches!(status, 201 | 404), "{status} {answer}");
                made.extend(answer["token"].as_str().map(ToOwned::to_owned));
            }
            made
        };
        let stopping = async {
            // Half of the callers do not wait for the answer.
            if round % 2 == 0 {
                ask_and_leave(&house, &path, 2 + round).await;
            } else {
                house.api("DELETE", &path, None).await;
            }
        };
        let (made, ()) = tokio::join!(starting, stopping);
        let url = format!("{}/a/a1/mcp", house.agents);
        for _ in 0..50 {
            if agent.request("tools/list", json!({})).await.unwrap().status == 401 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Who hung up before the stop began has stopped nothing. One that began goes on to its
        // end, and never leaves half of it.
        if status_at(&top.url, &top.token).await.0 == 200 {
            assert_eq!(round % 2, 0);
            for token in &made {
                assert_eq!(status_at(&url, token).await.0, 200, "half of it was ended");
            }
            assert_eq!(house.api("DELETE", &path, None).await.0, 200);
        }
        assert_eq!(status_at(&top.url, &top.token).await.0, 401);
        for token in made {
            assert_eq!(status_at(&url, &token).await.0, 401, "a run outlived its parent");
        }
        let (_, live) = house.api("GET", &format!("/v1/runs?parent={}", top.run), None).await;
        assert_eq!(live["items"], json!([]), "{live}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_of_a_credential_ends_with_it_alone() {
    let (house, _upstream) = open().await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 5);
    let cards = house.parked(1).await;
    let path = format!("/v1/runs/{}", cards[0]["run"].as_str().unwrap());
    let (status, told) = house.api("DELETE", &path, None).await;
    assert_eq!(status, 409, "{told}");
    assert!(told.to_string().contains("revoke the token"), "{told}");
    assert!(!held.is_finished());
    // A beginning that is empty stands for nothing.
    assert_eq!(house.api("DELETE", "/v1/runs/run_", None).await.0, 404);
    assert_eq!(house.decide(&cards[0], "approve", None).await.0, 200);
    assert_eq!(held.await.unwrap().unwrap().says(), r#"{"amount":5}"#);
}

async fn until(done: impl Fn() -> bool) {
    for _ in 0..200 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it did not come to that");
}

/// Sends a request to the admin listener whole, and hangs up.
async fn ask_and_leave(house: &House, path: &str, patience: u64) {
    use tokio::io::AsyncWriteExt as _;
    let token = std::fs::read_to_string(house.folder.path().join("state/admin.token")).unwrap();
    let host = house.admin.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let head = format!(
        "DELETE {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Long enough to be heard, often too short for the answer.
    tokio::time::sleep(Duration::from_millis(patience)).await;
}
