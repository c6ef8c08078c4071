//! Cards, their steps, their answers and their decisions.

use super::*;

#[tokio::test]
async fn an_identical_call_has_one_live_card() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    assert_eq!(add(&store, &first).await, Inserted::New);
    assert_eq!(add(&store, &card("apr_b", 1)).await, Inserted::Duplicate);
    assert_eq!(store.live(first.asked().key()).await.unwrap().unwrap(), first);
    assert_eq!(store.commit(&[denied(&first)]).await.unwrap(), [true]);
    assert_eq!(store.live(first.asked().key()).await.unwrap(), None);
    assert_eq!(add(&store, &card("apr_b", 1)).await, Inserted::New);
}

#[tokio::test]
async fn a_step_counts_only_on_the_version_it_was_made_from() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    add(&store, &first).await;
    let change = denied(&first);
    let again = [change.clone(), change.clone()];
    assert_eq!(store.commit(&again).await.unwrap(), [true, false]);
    assert_eq!(store.commit(std::slice::from_ref(&change)).await.unwrap(), [false]);
    assert_eq!(store.card("apr_a").await.unwrap().unwrap(), change.card);
}

#[tokio::test]
async fn a_kept_answer_ends_with_its_time_or_its_delivery() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    let key = first.asked().key();
    add(&store, &first).await;
    store.commit(&[denied(&first)]).await.unwrap();
    assert!(store.undelivered(key, (NOW, 0)).await.unwrap().is_some());
    assert!(store.undelivered(key, (NOW + 10, 0)).await.unwrap().is_none());
    store.deliver("apr_a").await.unwrap();
    assert!(store.undelivered(key, (NOW, 0)).await.unwrap().is_none());
    assert!(store.kept("apr_a").await.unwrap().unwrap().delivered);
    let old = Retention { now_ms: NOW + 10, cards_before_ms: 0, events_before_ms: 0 };
    assert_eq!(store.prune(&old).await.unwrap(), Pruned { results: 1, ..Pruned::default() });
    let old = Retention { cards_before_ms: NOW + 1, ..old };
    assert_eq!(store.prune(&old).await.unwrap(), Pruned { cards: 1, ..Pruned::default() });
    assert_eq!(store.card("apr_a").await.unwrap(), None);
}

#[tokio::test]
async fn lists_are_filtered_and_go_on_where_they_ended() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    for (id, number) in [("apr_ax", 1), ("apr_ay", 2), ("apr_bz", 3)] {
        add(&store, &card(id, number)).await;
    }
    store.commit(&[denied(&card("apr_ay", 2))]).await.unwrap();
    let ids = |cards: Vec<Card>| cards.iter().map(|card| card.id().to_owned()).collect::<Vec<_>>();
    let mut filter = Filter { states: vec![State::Parked], limit: 1, ..Filter::default() };
    filter.agents = vec![AgentName::new("SUPPORT").unwrap()];
    filter.runs = vec!["run_a".to_owned()];
    assert_eq!(ids(store.list(&filter).await.unwrap()), ["apr_ax"]);
    filter.after = Some(Cursor { created_ms: NOW + 1, id: "apr_ax".to_owned() });
    assert_eq!(ids(store.list(&filter).await.unwrap()), ["apr_bz"]);
    filter.runs = vec!["run_b".to_owned()];
    assert!(store.list(&filter).await.unwrap().is_empty());
    assert_eq!(ids(store.unsettled().await.unwrap()), ["apr_ax", "apr_bz"]);

    assert_eq!(store.named("a").await.unwrap(), Named::Several);
    assert_eq!(store.named("apr_c").await.unwrap(), Named::None);
    assert!(matches!(store.named("bz").await.unwrap(), Named::One(card) if card.id() == "apr_bz"));
}

#[tokio::test]
async fn a_card_needs_a_live_run_and_revives_none() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    assert_eq!(store.insert(&first, None, None).await.unwrap(), Inserted::RunEnded);
    assert_eq!(add(&store, &first).await, Inserted::New);
    assert_eq!(store.insert(&card("apr_b", 2), None, None).await.unwrap(), Inserted::New);
    let steps = [stopped(&first), stopped(&card("apr_b", 2))];
    assert!(end_runs(&store, &["run_a"], &steps).await);
    assert_eq!(add(&store, &card("apr_c", 3)).await, Inserted::RunEnded);
    assert_eq!(store.run("run_a").await.unwrap().unwrap().ended, Some(end()));
    assert_eq!(store.card("apr_c").await.unwrap(), None);
}

#[tokio::test]
async fn a_decision_is_on_record_if_its_step_counts() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    add(&store, &first).await;
    let change = denied_by(&first, "ann\0");
    let late = denied_by(&first, "bob");
    assert_eq!(store.commit(&[change.clone(), late]).await.unwrap(), [true, false]);
    let expected = DecisionRow {
        card: "apr_a".to_owned(),
        version: 2,
        // No text holds a NUL on either engine.
        name: "ann\u{fffd}".to_owned(),
        role: "human".to_owned(),
        verdict: "deny".to_owned(),
        reason: "no".to_owned(),
        digest: first.asked().digest,
        at_ms: NOW,
    };
    assert_eq!(store.decisions("apr_a").await.unwrap(), [expected]);
    assert_eq!(store.card("apr_a").await.unwrap().unwrap(), change.card);
}
