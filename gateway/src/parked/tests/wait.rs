//! A caller that waits.

use super::*;

#[tokio::test]
async fn an_approved_call_runs_once_and_answers_its_caller() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    assert!(!ticket.joined());
    assert_eq!(rig.parked.parked_count(&caller("run_a").agent), 1);
    let card = rig.card(ticket.id()).await;
    assert_eq!(card.asked().arguments, r#"{"id":7}"#);
    assert_eq!(card.asked().rule, "support.agents.json:12");
    rig.approve(ticket.id()).await;
    let mut heard = Vec::new();
    while let TicketEvent::Progress(params) = ticket.next().await {
        heard.push(params);
    }
    assert!(heard.len() <= 1);
    assert_eq!(settled(&mut ticket).await, result());
    assert_eq!(rig.parked.parked_count(&caller("run_a").agent), 0);
    ticket.delivered(Reached::Surely).await;
    assert_eq!(rig.runs(), 1);
    // Delivered, so the next identical call asks anew.
    assert!(!rig.call(7).await.joined());
}

#[tokio::test]
async fn a_decision_before_the_waiter_listens_is_not_lost() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut changes = rig.parked.changes();
    let parked = rig.parked.clone();
    let decider = tokio::spawn(async move {
        changes.changed().await.unwrap();
        let cards = parked.list(&Filter::default()).await.unwrap();
        parked.decide(cards[0].id(), &deny("not today."), &operator("ann"), None).await.unwrap();
    });
    let mut ticket = rig.call(7).await;
    decider.await.unwrap();
    let text = "`crm__refund` was denied by the operator: not today. It did not run.".to_owned();
    assert_eq!(settled(&mut ticket).await, Settlement::NotRun { state: State::Denied, text });
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn identical_calls_share_a_card_an_execution_and_the_answer() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let (first, second) = tokio::join!(rig.call(7), rig.call(7));
    let (mut first, mut second) = (first, second);
    assert_eq!(first.id(), second.id());
    assert_ne!(first.joined(), second.joined());
    assert_ne!(rig.call(8).await.id(), first.id());
    rig.approve(first.id()).await;
    assert_eq!(settled(&mut first).await, result());
    assert_eq!(settled(&mut second).await, result());
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn a_limit_of_parked_calls_refuses_at_once_and_lets_repeats_join() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut tickets = Vec::new();
    for id in 0..20 {
        tickets.push(rig.call(id).await);
    }
    let Err(ParkError::Full(refusal)) = rig.try_call(20).await else { panic!("parked") };
    assert!(refusal.text.contains("20 calls that wait for approval"), "{refusal}");
    assert!(rig.call(0).await.joined());
    let all = Filter::default();
    assert_eq!(rig.parked.list(&all).await.unwrap().len(), 20);
    rig.parked.decide(tickets[3].id(), &deny(""), &operator("ann"), None).await.unwrap();
    assert!(!rig.call(20).await.joined());
}

#[tokio::test]
async fn nobody_decides_and_the_call_expires_whatever_the_wall_clock_says() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    rig.clock.jump(NOW + 100 * MINUTE);
    rig.parked.sweep().await;
    assert_eq!(rig.state(ticket.id()).await, State::Parked);
    rig.clock.jump(0);
    rig.clock.advance(10 * MINUTE);
    rig.parked.sweep().await;
    let text = "`crm__refund`: nobody decided in 10m; it did not run.".to_owned();
    assert_eq!(settled(&mut ticket).await, Settlement::NotRun { state: State::Expired, text });
}

#[tokio::test]
async fn a_decision_after_the_time_to_decide_decides_nothing() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let ticket = rig.call(7).await;
    rig.clock.advance(10 * MINUTE);
    let late = rig.try_approve(ticket.id()).await;
    let Err(DecideError::Settled(card)) = late else { panic!("{late:?}") };
    assert_eq!(card.state(), State::Expired);
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn a_changed_tool_voids_the_approval() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    *rig.fresh.lock() = Arc::new(scope(OnCallerGone::Keep, "Pays back twice"));
    rig.approve(ticket.id()).await;
    let Settlement::NotRun { state, text } = settled(&mut ticket).await else { panic!("ran") };
    assert_eq!(state, State::Revoked);
    assert!(text.contains("changed the tool's definition"), "{text}");
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn a_call_that_breaks_inside_is_unknown_and_its_caller_hears_it() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    *rig.answer.lock() = Answer::Panic;
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    let Settlement::Unknown { text } = settled(&mut ticket).await else { panic!("known") };
    assert!(text.contains("outcome unknown, it may have run"), "{text}");
}

#[tokio::test]
async fn what_was_not_sent_says_so() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    *rig.answer.lock() = Answer::Now(Executed::NotSent { text: "crm is unreachable".to_owned() });
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    let text = "`crm__refund` was approved but not sent: crm is unreachable. It did not run.";
    let expected = Settlement::NotRun { state: State::Done, text: text.to_owned() };
    assert_eq!(settled(&mut ticket).await, expected);
}

#[tokio::test]
async fn stopping_a_run_settles_its_calls_and_no_others() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    *rig.answer.lock() = Answer::Never;
    let mut running = rig.call(1).await;
    rig.approve(running.id()).await;
    rig.until(running.id(), |card| card.state() == State::Executing).await;
    let mut waiting = rig.call(2).await;
    let other = rig.park(&caller("run_b"), request(&rig.scope, 2)).await.unwrap();
    let stopped = rig.parked.stop("run_a", "its run was stopped").await.unwrap();
    assert_eq!(stopped.cards.len(), 2);
    let Settlement::Unknown { text } = settled(&mut running).await else { panic!("known") };
    assert!(text.contains("its run was stopped while it ran"), "{text}");
    let Settlement::NotRun { state, .. } = settled(&mut waiting).await else { panic!("ran") };
    assert_eq!(state, State::Stopped);
    assert_eq!(rig.state(other.id()).await, State::Parked);
}

#[tokio::test]
async fn a_cancelled_call_never_runs() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    assert!(matches!(
        rig.parked.cancel(&caller("run_b"), ticket.id()).await,
        Err(AttachError::Unknown)
    ));
    rig.parked.cancel(&caller("run_a"), ticket.id()).await.unwrap();
    let late = rig.try_approve(ticket.id()).await;
    assert!(matches!(late, Err(DecideError::Settled(_))));
    let Settlement::NotRun { state, .. } = settled(&mut ticket).await else { panic!("ran") };
    assert_eq!((state, rig.runs()), (State::Cancelled, 0));
}

#[tokio::test]
async fn time_passes_without_anybody_asking_and_stops_with_the_gateway() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    rig.clock.advance(10 * MINUTE);
    let Settlement::NotRun { state, .. } = settled(&mut ticket).await else { panic!("ran") };
    assert_eq!(state, State::Expired);
    rig.parked.shutdown().await;
    assert!(rig.parked.inner.tasks.is_idle());
}

#[tokio::test]
async fn every_step_of_a_card_is_witnessed() {
    let ground = Ground::new(KIND);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let witness = Arc::clone(&seen);
    let rig = Rig::with(&ground.place(), OnCallerGone::Keep, NOW, move |settings| {
        settings.witness =
            Witness::new(move |card| witness.lock().push((card.version(), card.state())));
    })
    .await;
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    settled(&mut ticket).await;
    rig.until(ticket.id(), |card| card.state().is_settled()).await;
    rig.parked.shutdown().await;
    let mut seen = seen.lock().clone();
    seen.sort_unstable();
    let life = [State::Parked, State::Approved, State::Executing, State::Done];
    // Repairs of a card's clock take versions of their own, so only their order is certain.
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "{seen:?}");
    assert_eq!(seen.iter().map(|(_, state)| *state).collect::<Vec<_>>(), life);
}
