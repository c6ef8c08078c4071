//! What those who watch are told: what stands, then what happens; no gap, nothing twice.

use super::*;
use std::collections::BTreeMap;

/// An event as it came.
#[derive(Debug, Clone)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

/// A stream of events.
struct Stream {
    response: reqwest::Response,
    text: String,
}

impl Stream {
    async fn open(house: &House, who: &str, last: Option<&str>) -> Self {
        let (status, stream) = Self::try_open(house, who, last).await;
        assert_eq!(status, 200);
        stream
    }

    async fn try_open(house: &House, who: &str, last: Option<&str>) -> (u16, Self) {
        let request = reqwest::Client::new().get(format!("{}/v1/events", house.admin));
        let mut request = request.bearer_auth(admin_token(who));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), Self { response, text: String::new() })
    }

    async fn next(&mut self) -> Event {
        tokio::time::timeout(Duration::from_secs(20), self.read()).await.expect("an event is due")
    }

    async fn read(&mut self) -> Event {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    event.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()))
                };
                if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                    let data = serde_json::from_str(&data).unwrap();
                    return Event { id, name: field("event: ").unwrap_or_default(), data };
                }
            }
            let chunk = self.response.chunk().await.unwrap().expect("the stream goes on");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads until the card is in that state; returns all that was told of cards.
    async fn until(&mut self, id: &Value, state: &str) -> Vec<Event> {
        let mut told = Vec::new();
        loop {
            let event = self.next().await;
            let done = event.data["id"] == *id && event.data["state"] == state;
            told.push(event);
            if done {
                return told;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_comes_first_and_then_each_step_once() {
    let (house, _upstream) = open("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let first = refund(&agent, 1);
    let before = house.parked(1).await.remove(0);
    let mut stream = Stream::open(&house, "anna", None).await;
    let snapshot = stream.next().await;
    assert_eq!(snapshot.name, "snapshot");
    assert_eq!(snapshot.data["approvals"][0]["id"], before["id"], "{snapshot:?}");
    assert_eq!(snapshot.data["approvals"][0]["arguments"], before["arguments"]);
    assert_eq!(snapshot.data["runs"][0]["agent"], "support");
    let second = refund(&agent, 2);
    let cards = house.parked(2).await;
    house.decide(&cards[1], "deny", Some("no")).await;
    house.decide(&cards[0], "approve", None).await;
    let told = stream.until(&before["id"], "done").await;
    let states: Vec<_> = told
        .iter()
        .filter(|event| event.name == "card" && event.data["id"] == before["id"])
        .map(|event| event.data["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["approved", "executing", "done"]);
    let states: Vec<_> = told
        .iter()
        .filter(|event| event.data["id"] == cards[1]["id"])
        .map(|event| event.data["state"].as_str().unwrap().to_owned())
        .collect();
    assert!(states.starts_with(&["parked".to_owned(), "denied".to_owned()]), "{states:?}");
    first.await.unwrap();
    second.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_misses_nothing_and_sees_nothing_twice_also_after_a_restart() {
    let (house, _upstream) = open("").await;
    let mut stream = Stream::open(&house, "anna", None).await;
    let mut last = stream.next().await.id;
    let mut steps: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut house = house;
    for round in 0..4_u32 {
        let agent = house.agent("support", Speaks::Modern).await;
        let held = refund(&agent, round);
        let card = house.parked(1).await.remove(0);
        // Away while it is decided and runs.
        drop(stream);
        house.decide(&card, "approve", None).await;
        held.await.unwrap();
        until(&house, &card["id"], "done").await;
        if round == 1 {
            house = House::from(house.stop().await).await.unwrap();
        }
        stream = Stream::open(&house, "anna", Some(&last)).await;
        for event in stream.until(&card["id"], "done").await {
            assert_ne!(event.name, "snapshot", "{event:?}");
            assert!(seen.insert(event.id.clone()), "{event:?} came twice");
            last.clone_from(&event.id);
            if event.name == "card" {
                let versions = steps.entry(event.data["id"].to_string()).or_default();
                versions.push(event.data["version"].as_u64().unwrap());
            }
        }
    }
    assert_eq!(steps.len(), 4);
    for versions in steps.values() {
        let whole: Vec<u64> = (1..=versions.len() as u64).collect();
        assert_eq!(*versions, whole, "each step of a card, in order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harness_hears_of_its_own_agents_alone_and_no_place_of_another_is_taken() {
    let (house, _upstream) = open("").await;
    let (support, other) =
        (house.agent("support", Speaks::Modern).await, house.agent("other", Speaks::Modern).await);
    let foreign = refund(&other, 1);
    house.parked(1).await;
    let mut stream = Stream::open(&house, "hugo", None).await;
    let snapshot = stream.next().await;
    assert_eq!(snapshot.data["approvals"], json!([]), "{snapshot:?}");
    assert!(!snapshot.data.to_string().contains("other"));
    let second = refund(&other, 2);
    house.parked(2).await;
    let own = refund(&support, 3);
    let card = house.parked(3).await.remove(2);
    let told = stream.until(&card["id"], "parked").await;
    assert!(told.iter().all(|event| !event.data.to_string().contains("other")), "{told:?}");
    // A place is good for whom it was made, and nobody makes one up.
    let mine = told.last().unwrap().id.clone();
    for (who, place) in [("anna", mine.as_str()), ("hugo", "7"), ("hugo", "x")] {
        assert_eq!(Stream::try_open(&house, who, Some(place)).await.0, 400, "{who} {place}");
    }
    for held in [foreign, second, own] {
        held.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_is_waited_for_by_its_version() {
    let (house, _upstream) = open("").await;
    let agent = house.agent("support", Speaks::Modern).await;
    let held = refund(&agent, 1);
    let parked = house.parked(1).await.remove(0);
    let path = format!("/v1/approvals/{}", parked["id"].as_str().unwrap());
    let waiting = format!("{path}?wait=20");
    let (waited, _) = tokio::join!(house.api("GET", &waiting, None), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        house.decide(&parked, "deny", Some("no")).await
    });
    assert_eq!(waited.1["state"], "denied", "{waited:?}");
    // What was seen is over already, or will never change: no wait.
    let since = format!("{path}?wait=20&since={}", parked["version"]);
    assert_eq!(house.api("GET", &since, None).await.1["state"], "denied");
    assert_eq!(house.api("GET", &format!("{path}?wait=20"), None).await.1["state"], "denied");
    held.await.unwrap();
}
