//! Runs: found, bounded, ended with all that belongs to them.

use super::*;
use portcullis_policy::ledger::Deadline;

async fn family(store: &Store) {
    // a has b and c, b has d; e stands alone.
    store.ensure_run(&run("run_a")).await.unwrap();
    for (parent, id) in [("run_a", "run_b"), ("run_a", "run_c"), ("run_b", "run_d")] {
        assert!(store.insert_run(&below(parent, id)).await.unwrap());
    }
    let other = AgentName::new("billing").unwrap();
    let alone = RunRow { agent: other, unnamed: false, created_ms: NOW + 5, ..run("run_e") };
    assert!(store.insert_run(&alone).await.unwrap());
}

fn ids(runs: &[RunRow]) -> Vec<&str> {
    runs.iter().map(|run| run.id.as_str()).collect()
}

#[tokio::test]
async fn a_run_comes_back_as_it_was_written() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let whole = RunRow {
        token: Some([7; 32]),
        narrow: Some("{}".to_owned()),
        unattended: true,
        deadline: Some(Deadline { left_ms: 60_000, written_ms: NOW }),
        ..below("run_a", "run_b")
    };
    assert!(store.insert_run(&whole).await.unwrap());
    assert!(!store.insert_run(&whole).await.unwrap());
    assert_eq!(store.run("run_b").await.unwrap(), Some(whole));
    assert_eq!(store.run("run_x").await.unwrap(), None);
}

#[tokio::test]
async fn runs_are_found_by_family_beginning_agent_and_page() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    family(&store).await;
    assert_eq!(ids(&store.subtree("run_a").await.unwrap()), ["run_a", "run_b", "run_c", "run_d"]);
    assert_eq!(ids(&store.subtree("run_b").await.unwrap()), ["run_b", "run_d"]);
    assert_eq!(store.live_runs().await.unwrap().len(), 5);
    let one = store.run_named("run_e").await.unwrap();
    assert!(matches!(one, RunNamed::One(run) if run.id == "run_e"));
    assert_eq!(store.run_named("").await.unwrap(), RunNamed::Several);
    assert_eq!(store.run_named("x").await.unwrap(), RunNamed::None);

    let mut filter =
        RunFilter { agents: vec![AgentName::new("SUPPORT").unwrap()], ..RunFilter::default() };
    filter.limit = 2;
    assert_eq!(ids(&store.list_runs(&filter).await.unwrap()), ["run_a", "run_b"]);
    filter.after = Some(Cursor { created_ms: NOW, id: "run_b".to_owned() });
    assert_eq!(ids(&store.list_runs(&filter).await.unwrap()), ["run_c", "run_d"]);
    assert!(end_runs(&store, &["run_c"], &[]).await);
    let live = RunFilter { parent: Some("run_a".to_owned()), live: true, ..RunFilter::default() };
    assert_eq!(ids(&store.list_runs(&live).await.unwrap()), ["run_b"]);
}

#[tokio::test]
async fn no_run_begins_below_one_that_has_ended_or_is_too_deep() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    family(&store).await;
    assert!(!store.insert_run(&below("run_x", "run_f")).await.unwrap());
    assert!(end_runs(&store, &["run_d"], &[]).await);
    assert!(!store.insert_run(&below("run_d", "run_f")).await.unwrap());
    let mut parent = "run_e".to_owned();
    for depth in 1..=RUN_DEPTH_MAX {
        let id = format!("run_e{depth}");
        assert!(store.insert_run(&below(&parent, &id)).await.unwrap());
        parent = id;
    }
    assert!(!store.insert_run(&below(&parent, "run_f")).await.unwrap());
    assert_eq!(store.subtree("run_e").await.unwrap().len() as u64, RUN_DEPTH_MAX + 1);
}

#[tokio::test]
async fn a_run_ends_with_all_that_is_below_it_or_not_at_all() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    family(&store).await;
    let first = card_of("run_d", "apr_a", 1);
    assert_eq!(store.insert(&first, None, None).await.unwrap(), Inserted::New);
    let before = store.last_event().await.unwrap();
    // A live run is not named; a live card has no step; a step was overtaken.
    assert!(!end_runs(&store, &["run_a", "run_b", "run_d"], &[stopped(&first)]).await);
    assert!(!end_runs(&store, &["run_b", "run_d"], &[]).await);
    let mut overtaken = denied(&first);
    overtaken.card = stopped(&overtaken_card(&first)).card;
    assert!(!end_runs(&store, &["run_b", "run_d"], &[overtaken]).await);
    assert_eq!(store.live_runs().await.unwrap().len(), 5);
    assert_eq!(store.card("apr_a").await.unwrap().unwrap(), first);
    assert_eq!(store.last_event().await.unwrap(), before);

    assert!(end_runs(&store, &["run_b", "run_d"], &[stopped(&first)]).await);
    assert_eq!(ids(&store.live_runs().await.unwrap()), ["run_a", "run_c", "run_e"]);
    assert_eq!(store.run("run_d").await.unwrap().unwrap().ended, Some(end()));
    assert_eq!(store.card("apr_a").await.unwrap().unwrap().state(), State::Stopped);
    let told = store.events(before, 10).await.unwrap();
    let told: Vec<_> = told.iter().map(|told| (&*told.subject, told.state.as_deref())).collect();
    let ended = Some("ended");
    assert_eq!(told, [("run_b", ended), ("run_d", ended), ("apr_a", Some("stopped"))]);
    // Again changes nothing and is fine.
    assert!(end_runs(&store, &["run_b"], &[]).await);
    assert_eq!(store.run("run_b").await.unwrap().unwrap().ended, Some(end()));
}

// The card after a step that the store does not have.
fn overtaken_card(card: &Card) -> Card {
    let (marked, _) = step(card, Event::Mark { left_ms: 1 }, NOW).unwrap();
    marked
}

#[tokio::test]
async fn a_live_run_below_one_that_has_ended_is_not_out_of_reach() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let middle = RunRow { unnamed: true, ended: Some(end()), ..below("run_a", "run_b") };
    store.ensure_run(&middle).await.unwrap();
    let last = below("run_b", "run_c");
    store.ensure_run(&last).await.unwrap();
    assert_eq!(ids(&store.subtree("run_a").await.unwrap()), ["run_a", "run_c"]);
    assert!(!end_runs(&store, &["run_a"], &[]).await);
    assert!(end_runs(&store, &["run_a", "run_c"], &[]).await);
}

#[tokio::test]
async fn only_unnamed_runs_are_revived() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    family(&store).await;
    assert!(end_runs(&store, &["run_a", "run_b", "run_c", "run_d"], &[]).await);
    store.ensure_run(&run("run_a")).await.unwrap();
    assert!(store.run("run_a").await.unwrap().unwrap().ended.is_some());
    let both = ["run_a".to_owned(), "run_b".to_owned()];
    assert_eq!(store.revive_runs(&both).await.unwrap(), 1);
    assert_eq!(store.revive_runs(&both).await.unwrap(), 0);
    assert_eq!(ids(&store.live_runs().await.unwrap()), ["run_a", "run_e"]);
}

#[tokio::test]
async fn a_mark_never_lengthens_the_time_left() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let deadline = |left_ms, written_ms| Deadline { left_ms, written_ms };
    let limited = RunRow { deadline: Some(deadline(100, NOW)), ..below("run_a", "run_b") };
    assert!(store.insert_run(&limited).await.unwrap());
    let mark = |id: &str, deadline| (id.to_owned(), deadline);
    let marks = [mark("run_a", deadline(5, NOW)), mark("run_b", deadline(60, NOW + 40))];
    store.mark_runs(&marks).await.unwrap();
    store.mark_runs(&[mark("run_b", deadline(90, NOW + 50))]).await.unwrap();
    let left = store.run("run_b").await.unwrap().unwrap().deadline;
    assert_eq!(left, Some(deadline(60, NOW + 50)));
    assert_eq!(store.run("run_a").await.unwrap().unwrap().deadline, None);
}
