//! How writes fail and end.

use super::*;
use crate::store::ground::{Failure, Kind, When};
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

#[tokio::test]
async fn a_caller_that_goes_away_does_not_undo_its_work() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    {
        let card = card("apr_a", 1);
        let mut insert = pin!(store.insert(&card, None, None));
        assert!(insert.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    while store.card("apr_a").await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_work_that_fails_takes_no_other_along() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    // Ten works queue together, and one statement in their midst fails.
    store.plan(When::Statement(7), Failure::Broken);
    let inserts = (0..10).map(|number| {
        let store = store.clone();
        let card = card(&format!("apr_{number}"), number);
        tokio::spawn(async move { store.insert(&card, None, None).await })
    });
    let mut failed = 0;
    for insert in inserts.collect::<Vec<_>>() {
        failed += usize::from(insert.await.unwrap().is_err());
    }
    assert!(store.struck());
    assert_eq!(failed, 1);
    assert_eq!(store.unsettled().await.unwrap().len(), 9);
}

#[tokio::test]
async fn after_any_failure_nothing_took_place_and_the_next_write_does() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let first = card("apr_a", 1);
    let changes = [denied(&first)];
    for failure in Failure::ALL {
        for when in [When::Statement(0), When::Statement(3), When::Commit(0)] {
            store.plan(when, failure);
            let fault = store.insert(&first, Some(&run("run_a")), None).await.unwrap_err();
            let corrupt = matches!(fault, StoreFault::Corrupt { .. });
            assert_eq!(corrupt, KIND == Kind::Sqlite && failure == Failure::Corrupt, "{fault}");
            assert_eq!(store.card("apr_a").await.unwrap(), None);
            assert_eq!(store.run("run_a").await.unwrap(), None);
        }
    }
    assert_eq!(add(&store, &first).await, Inserted::New);
    store.plan(When::Commit(0), Failure::Full);
    assert!(store.commit(&changes).await.is_err());
    assert_eq!(store.card("apr_a").await.unwrap().unwrap(), first);
    assert_eq!(store.commit(&changes).await.unwrap(), [true]);
}
