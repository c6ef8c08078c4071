//! Pruning takes what is old and nothing else.

use super::*;

#[tokio::test]
async fn only_what_is_old_goes() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    add(&store, &first).await;
    add(&store, &card("apr_b", 2)).await;
    store.commit(&[denied(&first)]).await.unwrap();
    let done = RunRow { ended: Some(RunEnd { at_ms: NOW, why: String::new() }), ..run("run_c") };
    // Ended and named; ended with a live run below; ended and unnamed.
    for run in
        [RunRow { unnamed: false, ..done.clone() }, RunRow { id: "run_d".to_owned(), ..done }]
    {
        store.ensure_run(&run).await.unwrap();
    }
    store.ensure_run(&below("run_a", "run_e")).await.unwrap();
    store.count("key", 1_000, NOW).await.unwrap();
    store.end_session(&[1; 32], NOW + 1_000).await.unwrap();

    let nothing = Retention { now_ms: NOW, cards_before_ms: NOW, events_before_ms: NOW };
    assert_eq!(store.prune(&nothing).await.unwrap(), Pruned::default());
    let before_ms = NOW + 1_000;
    let all =
        Retention { now_ms: before_ms, cards_before_ms: before_ms, events_before_ms: before_ms };
    let pruned = store.prune(&all).await.unwrap();
    let expected = Pruned {
        results: 1,
        cards: 1,
        runs: 1,
        counters: 1,
        sessions: 1,
        events: pruned.events,
        ..Pruned::default()
    };
    assert_eq!(pruned, expected);
    // The last event stays, so that who asks for the latest hears of it.
    assert!(pruned.events > 0);
    assert_eq!(store.events(0, 10).await.unwrap().len(), 1);
    assert!(store.run("run_c").await.unwrap().is_none());
    assert!(store.run("run_d").await.unwrap().is_some());
    assert!(store.card("apr_b").await.unwrap().is_some());
    assert!(store.decisions("apr_a").await.unwrap().is_empty());
    assert_eq!(store.prune(&all).await.unwrap(), Pruned::default());
}
