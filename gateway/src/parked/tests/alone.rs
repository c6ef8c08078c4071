//! Calls that run without a caller that waits: tasks, and what a standing approval covers.

use super::restart::life;
use super::*;
use crate::store::Change;
use portcullis_policy::ledger::{Covers, Event, Standing, Whose, step};

async fn follow(rig: &Rig, id: u32) -> String {
    let origin = Origin { task: true, ..rig.origin() };
    rig.park(&caller("run_a"), request(&rig.scope, id)).await.unwrap().told_pending();
    let request = request(&rig.scope, id);
    let ticket = rig.parked.park(&caller("run_a"), request, origin).await.unwrap();
    let id = ticket.id().to_owned();
    ticket.told_pending();
    id
}

#[tokio::test]
async fn a_task_runs_when_it_is_approved_and_its_answer_can_be_had_again_and_again() {
    let ground = Ground::new(KIND);
    // Its caller does not stay, whatever the policy says of callers that leave.
    let rig = Rig::open(&ground.place(), OnCallerGone::Settle).await;
    let id = follow(&rig, 1).await;
    assert!(rig.card(&id).await.is_task());
    rig.approve(&id).await;
    rig.until(&id, |card| card.state() == State::Done).await;
    for _ in 0..2 {
        let (card, settlement) = rig.parked.poll(&caller("run_a"), &id).await.unwrap();
        assert_eq!((card.state(), settlement), (State::Done, Some(result())));
    }
    let foreign = rig.parked.poll(&caller("run_b"), &id).await.unwrap_err();
    let nothing = rig.parked.poll(&caller("run_a"), "apr_nothing").await.unwrap_err();
    assert_eq!(foreign.to_string(), nothing.to_string());
    assert_eq!(rig.runs(), 1);
}

#[test]
fn an_approved_task_runs_after_a_restart_and_one_that_ran_is_never_run_again() {
    let ground = Ground::new(KIND);
    let (approved, running) = life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
        *rig.answer.lock() = Answer::Never;
        let running = follow(&rig, 1).await;
        rig.approve(&running).await;
        rig.until(&running, |card| card.state() == State::Executing).await;
        let approved = follow(&rig, 2).await;
        // Decided behind the back of what would start it.
        let card = rig.card(&approved).await;
        let event = Event::Decide { word: yes(2), by: operator("ann") };
        let (card, _) = step(&card, event, NOW).unwrap();
        let change = Change { card, kept: None, decided: true, given: None, silent: false };
        assert_eq!(rig.parked.inner.store.commit(&[change]).await.unwrap(), [true]);
        (approved, running)
    });
    life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
        rig.until(&approved, |card| card.state() == State::Done).await;
        assert_eq!(rig.state(&running).await, State::Unknown);
        assert_eq!(rig.runs(), 1);
    });
}

#[tokio::test]
async fn nothing_runs_before_what_judges_it_is_there() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    rig.parked.inner.begun.store(false, Ordering::SeqCst);
    let id = follow(&rig, 1).await;
    rig.approve(&id).await;
    rig.parked.sweep().await;
    assert_eq!((rig.state(&id).await, rig.runs()), (State::Approved, 0));
    rig.parked.begin();
    rig.until(&id, |card| card.state() == State::Done).await;
}

#[tokio::test]
async fn a_call_that_becomes_a_task_after_its_approval_runs_at_once() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let ticket = rig.call(1).await;
    let id = ticket.id().to_owned();
    drop(ticket);
    rig.until(&id, Card::unattended).await;
    rig.approve(&id).await;
    assert_eq!((rig.state(&id).await, rig.runs()), (State::Approved, 0));
    let (card, settlement) = rig.parked.poll(&caller("run_a"), &id).await.unwrap();
    assert!(card.is_task() && settlement.is_none_or(|settlement| settlement == result()));
    rig.until(&id, |card| card.state() == State::Done).await;
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn what_a_standing_approval_covers_runs_at_once_and_ends_with_it() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(1).await;
    let standing = Standing { covers: Covers::Tool, lasts_ms: Some(MINUTE), of: Whose::Run };
    let word = Word { standing: Some(standing), ..yes(1) };
    rig.parked.decide(ticket.id(), &word, &operator("ann"), Some("gra_a")).await.unwrap();
    assert_eq!(settled(&mut ticket).await, result());
    let mut covered = rig.call(2).await;
    assert_eq!(settled(&mut covered).await, result());
    assert_eq!(rig.starts.lock().last(), Some(&(State::Executing, 1)), "with a decision on record");
    // Another run asks, and so does this one when the time is over.
    let other = rig.park(&caller("run_b"), request(&rig.scope, 3)).await.unwrap();
    assert_eq!(rig.state(other.id()).await, State::Parked);
    rig.clock.advance(MINUTE);
    let late = rig.call(4).await;
    assert_eq!((rig.state(late.id()).await, rig.runs()), (State::Parked, 2));
    // It is judged anew like any other, and a tool that changed is not what was approved.
    let word = Word { standing: Some(standing), ..yes(4) };
    *rig.fresh.lock() = Arc::new(scope(OnCallerGone::Keep, "Pays back twice"));
    let mut late = late;
    rig.parked.decide(late.id(), &word, &operator("ann"), Some("gra_b")).await.unwrap();
    let Settlement::NotRun { state, .. } = settled(&mut late).await else { panic!("it ran") };
    assert_eq!((state, rig.runs()), (State::Revoked, 2));
}
