//! Events: of what counts, in the order of commits.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn what_counts_is_told_once_and_what_is_silent_is_not() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    assert_eq!(store.last_event().await.unwrap(), 0);
    let first = card("apr_a", 1);
    add(&store, &first).await;
    add(&store, &first).await;
    let (marked, _) = step(&first, Event::Mark { left_ms: 1 }, NOW + 9).unwrap();
    let silent =
        Change { card: marked.clone(), kept: None, decided: false, given: None, silent: true };
    store.commit(&[silent]).await.unwrap();
    store.commit(&[denied(&first), denied(&marked)]).await.unwrap();
    let told = store.events(0, 10).await.unwrap();
    let run = EventRow {
        id: told[0].id,
        at_ms: NOW,
        kind: "run".to_owned(),
        subject: "run_a".to_owned(),
        agent: Some("Support".to_owned()),
        run: Some("run_a".to_owned()),
        state: Some("live".to_owned()),
        version: None,
    };
    let card = |at: usize, state: &str, version, at_ms| EventRow {
        id: told[at].id,
        at_ms,
        kind: "card".to_owned(),
        subject: "apr_a".to_owned(),
        state: Some(state.to_owned()),
        version: Some(version),
        ..run.clone()
    };
    assert_eq!(told, [run.clone(), card(1, "parked", 1, NOW + 1), card(2, "denied", 3, NOW)]);
    let last = told.last().unwrap().id;
    assert_eq!(store.last_event().await.unwrap(), last);
    assert_eq!(store.events(told[0].id, 1).await.unwrap(), told[1..2]);
    assert!(store.events(last, 10).await.unwrap().is_empty());
}

// Reads on from the last event seen, as whoever watches does.
async fn follow(store: Store, done: std::sync::Arc<AtomicBool>) -> Vec<i64> {
    let mut seen = Vec::new();
    loop {
        let over = done.load(Ordering::SeqCst);
        let after = seen.last().copied().unwrap_or_default();
        let told = store.events(after, EVENTS_MAX).await.unwrap();
        if over && told.is_empty() {
            return seen;
        }
        seen.extend(told.iter().map(|told| told.id));
    }
}

async fn write(store: Store, writer: u32) {
    for round in 0..20 {
        let number = writer * 100 + round;
        add(&store, &card(&format!("apr_{number}"), number)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_follows_the_events_misses_none_however_many_write() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let follower = tokio::spawn(follow(store.clone(), std::sync::Arc::clone(&done)));
    let writers = (0..8).map(|writer| tokio::spawn(write(store.clone(), writer)));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let all: Vec<_> =
        store.events(0, EVENTS_MAX).await.unwrap().iter().map(|told| told.id).collect();
    assert_eq!(all.len(), 161);
    assert_eq!(follower.await.unwrap(), all);
}
