//! Many at once.

use super::*;

async fn commit(store: Store, change: Change) -> bool {
    store.commit(&[change]).await.unwrap()[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_eight_steps_on_one_card_exactly_one_counts() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    for round in 0..10 {
        let card = card(&format!("apr_{round}"), round);
        add(&store, &card).await;
        let deciders = (0..8).map(|number| {
            let (store, change) = (store.clone(), denied_by(&card, &format!("operator-{number}")));
            tokio::spawn(commit(store, change))
        });
        let mut counted = 0;
        for decider in deciders.collect::<Vec<_>>() {
            counted += usize::from(decider.await.unwrap());
        }
        assert_eq!(counted, 1);
        assert_eq!(store.decisions(card.id()).await.unwrap().len(), 1);
    }
}

// Reads what belongs to a run and ends it, again and again until it counts.
async fn stop(store: Store, id: String) {
    loop {
        let runs: Vec<String> =
            store.subtree(&id).await.unwrap().into_iter().map(|run| run.id).collect();
        let filter =
            Filter { states: vec![State::Parked], runs: runs.clone(), ..Filter::default() };
        let cards = store.list(&filter).await.unwrap();
        let changes: Vec<_> = cards.iter().map(stopped).collect();
        if store.end_runs(&runs, &end(), &changes).await.unwrap() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_card_or_a_run_that_races_the_end_is_stopped_with_it_or_refused() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    for round in 0..40 {
        let id = format!("run_{round}");
        store.ensure_run(&run(&id)).await.unwrap();
        let (card_id, child) = (format!("apr_{round}"), format!("run_{round}c"));
        let new = card_of(&id, &card_id, round);
        let (parking, starting) = (store.clone(), store.clone());
        let row = below(&id, &child);
        let stopping = tokio::spawn(stop(store.clone(), id.clone()));
        let park = tokio::spawn(async move { parking.insert(&new, None, None).await.unwrap() });
        let start = tokio::spawn(async move { starting.insert_run(&row).await.unwrap() });
        stopping.await.unwrap();
        let (inserted, started) = (park.await.unwrap(), start.await.unwrap());
        let card = store.card(&card_id).await.unwrap();
        match inserted {
            Inserted::New => assert_eq!(card.unwrap().state(), State::Stopped),
            Inserted::RunEnded => assert_eq!(card, None),
            Inserted::Duplicate | Inserted::GrantEnded => panic!("there is one card"),
        }
        let below = store.run(&child).await.unwrap();
        assert_eq!(below.map(|run| run.ended), started.then(|| Some(end())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_count_is_a_number_of_its_own() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let counting = (0..50).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.count("key", 60_000, NOW).await.unwrap() })
    });
    let mut counts = Vec::new();
    for count in counting.collect::<Vec<_>>() {
        counts.push(count.await.unwrap());
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ends_that_overlap_end_each_run_once() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let ids: Vec<String> = (0..20).map(|number| format!("run_{number}")).collect();
    for id in &ids {
        store.ensure_run(&run(id)).await.unwrap();
    }
    let before = store.last_event().await.unwrap();
    let ending = (0..4).map(|turn| {
        let (store, mut ids) = (store.clone(), ids.clone());
        ids.rotate_left(turn * 5);
        tokio::spawn(async move { store.end_runs(&ids, &end(), &[]).await.unwrap() })
    });
    for ended in ending.collect::<Vec<_>>() {
        assert!(ended.await.unwrap());
    }
    assert_eq!(store.events(before, 100).await.unwrap().len(), 20);
    assert!(store.live_runs().await.unwrap().is_empty());
}
