//! A caller that left and comes back.

use super::*;
use portcullis_policy::ledger::Outcome;

#[tokio::test]
async fn an_approval_waits_for_the_identical_repeat_and_is_used_once() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let ticket = rig.call(7).await;
    let id = ticket.id().to_owned();
    drop(ticket);
    rig.until(&id, Card::unattended).await;
    rig.approve(&id).await;
    rig.parked.sweep().await;
    assert_eq!((rig.state(&id).await, rig.runs()), (State::Approved, 0));
    let mut repeat = rig.call(7).await;
    assert_eq!((repeat.id(), repeat.joined()), (&*id, true));
    assert_eq!(settled(&mut repeat).await, result());
    repeat.delivered(Reached::Surely).await;
    assert_eq!(rig.runs(), 1);
    assert_ne!(rig.call(7).await.id(), id);
}

#[tokio::test]
async fn an_approval_that_nobody_collects_lapses() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let id = rig.call(7).await.id().to_owned();
    rig.until(&id, Card::unattended).await;
    rig.approve(&id).await;
    rig.clock.advance(10 * MINUTE);
    rig.parked.sweep().await;
    assert_eq!(rig.state(&id).await, State::Lapsed);
    let mut collector = rig.parked.attach(&caller("run_a"), &id).await.unwrap();
    let Settlement::NotRun { text, .. } = settled(&mut collector).await else { panic!("ran") };
    assert!(text.contains("nobody collected it in 10m"), "{text}");
    let repeat = rig.call(7).await;
    assert_ne!(repeat.id(), id);
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn an_overdue_approval_does_not_run_even_before_the_sweep_comes() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let id = rig.call(7).await.id().to_owned();
    rig.until(&id, Card::unattended).await;
    rig.approve(&id).await;
    rig.clock.advance(10 * MINUTE);
    let mut collector = rig.parked.attach(&caller("run_a"), &id).await.unwrap();
    let Settlement::NotRun { state, .. } = settled(&mut collector).await else { panic!("ran") };
    assert_eq!((state, rig.runs()), (State::Lapsed, 0));
}

#[tokio::test]
async fn the_policy_may_end_the_card_of_a_caller_that_left() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Settle).await;
    let id = rig.call(7).await.id().to_owned();
    rig.until(&id, |card| card.state() == State::Cancelled).await;
    // A caller that was told how to collect did not leave.
    let told = rig.call(7).await;
    let id = told.id().to_owned();
    told.told_pending();
    rig.until(&id, Card::unattended).await;
    assert_eq!(rig.state(&id).await, State::Parked);
}

#[tokio::test]
async fn an_answer_that_nobody_got_is_handed_out_once() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let answer = Arc::new(Notify::new());
    *rig.answer.lock() = Answer::Later(Arc::clone(&answer), done());
    let ticket = rig.call(7).await;
    let id = ticket.id().to_owned();
    rig.approve(&id).await;
    rig.until(&id, |card| card.state() == State::Executing).await;
    rig.parked.sweep().await;
    while rig.runs() == 0 {
        tokio::task::yield_now().await;
    }
    drop(ticket);
    rig.until(&id, Card::unattended).await;
    answer.notify_one();
    rig.until(&id, |card| card.state() == State::Done).await;
    // Failing to write it to one repeat keeps it for the next.
    drop(rig.call(7).await);
    let mut repeat = rig.call(7).await;
    assert_eq!(repeat.id(), id);
    assert_eq!(settled(&mut repeat).await, result());
    repeat.delivered(Reached::Surely).await;
    assert_eq!(rig.runs(), 1);
    let mut again = rig.parked.attach(&caller("run_a"), &id).await.unwrap();
    let Settlement::NotKept { text } = settled(&mut again).await else { panic!("kept") };
    assert!(text.contains("handed over before"), "{text}");
    assert_ne!(rig.call(7).await.id(), id);
}

#[tokio::test]
async fn an_answer_is_kept_as_long_and_as_large_as_the_settings_say() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    settled(&mut ticket).await;
    let id = ticket.id().to_owned();
    drop(ticket);
    rig.clock.advance(10 * MINUTE);
    assert_ne!(rig.call(7).await.id(), id);

    let raw = Bytes::from(vec![b' '; KEPT_BYTES_MAX + 1]);
    *rig.answer.lock() = Answer::Now(Executed::Result { raw, is_error: false });
    let mut large = rig.call(8).await;
    rig.approve(large.id()).await;
    assert!(matches!(settled(&mut large).await, Settlement::Result { .. }));
    drop(large);
    let mut repeat = rig.call(8).await;
    let Settlement::NotKept { text } = settled(&mut repeat).await else { panic!("kept") };
    assert!(text.contains("its answer of 1048577 bytes was not kept"), "{text}");
}

#[tokio::test]
async fn a_denial_is_said_once_more_and_then_may_be_asked_for_again() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    let id = ticket.id().to_owned();
    rig.parked.decide(&id, &deny("no"), &operator("ann"), None).await.unwrap();
    let denial = settled(&mut ticket).await;
    ticket.delivered(Reached::Surely).await;
    let mut repeat = rig.call(7).await;
    assert_eq!(repeat.id(), id);
    assert_eq!(settled(&mut repeat).await, denial);
    repeat.delivered(Reached::Surely).await;
    assert_ne!(rig.call(7).await.id(), id);
}

#[tokio::test]
async fn a_foreign_id_answers_as_an_unknown_one() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let ticket = rig.call(7).await;
    let foreign = rig.parked.attach(&caller("run_b"), ticket.id()).await.unwrap_err();
    let unknown = rig.parked.attach(&caller("run_b"), "apr_x").await.unwrap_err();
    assert_eq!(foreign.to_string(), unknown.to_string());
    assert!(rig.parked.attach(&caller("run_a"), ticket.id()).await.is_ok());
}

#[tokio::test]
async fn a_repeat_waits_for_the_answer_that_is_being_written() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    let id = ticket.id().to_owned();
    rig.approve(&id).await;
    settled(&mut ticket).await;
    let repeat = rig.call(7);
    tokio::pin!(repeat);
    // It looks, finds the answer on its way and waits.
    for _ in 0..50 {
        tokio::select! {
            biased;
            _ = &mut repeat => panic!("did not wait"),
            () = tokio::task::yield_now() => {}
        }
    }
    let (repeat, ()) = tokio::join!(repeat, ticket.delivered(Reached::Surely));
    assert_ne!(repeat.id(), id);
}

#[tokio::test]
async fn nothing_is_sent_for_a_caller_that_leaves_as_its_call_starts() {
    let ground = Ground::new(KIND);
    let waiting = Arc::new(Mutex::new(None));
    let leaving = Arc::clone(&waiting);
    let rig = Rig::with(&ground.place(), OnCallerGone::Keep, NOW, move |settings| {
        let leave = move |card: &Card| {
            let starts = card.state() == State::Executing;
            drop(starts.then(|| leaving.lock().take()));
        };
        settings.witness = Witness::new(leave);
    })
    .await;
    let ticket = rig.call(7).await;
    let id = ticket.id().to_owned();
    *waiting.lock() = Some(ticket);
    rig.approve(&id).await;
    rig.until(&id, |card| card.state() == State::Done).await;
    assert_eq!(rig.card(&id).await.outcome(), Some(Outcome::NotSent));
    let mut repeat = rig.call(7).await;
    let Settlement::NotRun { text, .. } = settled(&mut repeat).await else { panic!("ran") };
    assert!(text.contains("its caller left just before it was sent. It did not run."), "{text}");
    assert_eq!(rig.runs(), 0);
}
