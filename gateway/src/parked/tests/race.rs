//! Everything at once.

use super::*;

async fn decide(parked: Parked, id: String, number: u32) -> Result<Card, DecideError> {
    let digest = parked.live_card(&id).map(|card| card.digest());
    let yes = |digest| Word::approve(digest);
    let word = digest.filter(|_| number.is_multiple_of(2)).map_or_else(|| deny("no"), yes);
    parked.decide(&id, &word, &operator(&format!("operator-{number}")), None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_eight_racing_deciders_exactly_one_decides() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    for round in 0..10 {
        let mut ticket = rig.call(round).await;
        let before = rig.runs();
        let racer =
            |number| tokio::spawn(decide(rig.parked.clone(), ticket.id().to_owned(), number));
        let deciders: Vec<_> = (0..8).map(racer).collect();
        let mut outcomes = Vec::new();
        for decider in deciders {
            outcomes.push(decider.await.unwrap());
        }
        let lost = |outcome: &&Result<_, _>| matches!(outcome, Err(DecideError::Settled(_)));
        assert_eq!(outcomes.iter().filter(lost).count(), 7);
        let won: Vec<_> = outcomes.into_iter().flatten().collect();
        let approved = won[0].state() == State::Approved;
        let ran = matches!(settled(&mut ticket).await, Settlement::Result { .. });
        assert_eq!((won.len(), ran), (1, approved));
        assert_eq!(rig.runs() - before, usize::from(approved));
    }
}

#[tokio::test]
async fn the_same_decision_again_gets_the_same_answer_and_another_one_the_outcome() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    assert_eq!(settled(&mut ticket).await, result());
    assert_eq!(rig.approve(ticket.id()).await.state(), State::Done);
    let other = rig.parked.decide(ticket.id(), &deny("no"), &operator("ann"), None).await;
    let Err(DecideError::Settled(card)) = other else { panic!("{other:?}") };
    assert_eq!(card.state(), State::Done);
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn a_decision_on_other_arguments_decides_nothing() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let ticket = rig.call(7).await;
    let by = operator("ann");
    for wrong in [Word::approve(Digest::of(b"{}")), Word { digest: None, ..yes(7) }] {
        let error = rig.parked.decide(ticket.id(), &wrong, &by, None).await.unwrap_err();
        assert!(matches!(error, DecideError::WrongDigest));
    }
    assert_eq!(rig.state(ticket.id()).await, State::Parked);
    rig.parked.decide(ticket.id(), &yes(7), &by, None).await.unwrap();
}

async fn stop(parked: Parked, stopping: bool) {
    if stopping {
        parked.stop("run_a", "its run was stopped").await.unwrap();
    }
}

async fn repeat(rig: Arc<Rig>, number: u32) -> Option<Ticket> {
    match rig.try_call(number).await {
        Ok(ticket) => Some(ticket),
        Err(ParkError::RunEnded) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approve_deny_leave_repeat_and_stop_leave_one_outcome() {
    let ground = Ground::new(KIND);
    let rig = Arc::new(Rig::open(&ground.place(), OnCallerGone::Keep).await);
    for round in 0..20 {
        let stopping = round % 3 == 0;
        let ticket = rig.call(round).await;
        let id = ticket.id().to_owned();
        let before = rig.runs();
        let yes = tokio::spawn(decide(rig.parked.clone(), id.clone(), 0));
        let no = tokio::spawn(decide(rig.parked.clone(), id.clone(), 1));
        let stop = tokio::spawn(stop(rig.parked.clone(), stopping));
        let repeat = tokio::spawn(repeat(Arc::clone(&rig), round));
        drop(ticket);
        let (yes, no) = (yes.await.unwrap().is_ok(), no.await.unwrap().is_ok());
        stop.await.unwrap();
        assert!(!(yes && no));
        // Kept to the end of the round: an approved call runs only while somebody waits.
        let repeat = repeat.await.unwrap();
        match &repeat {
            // The run was over before the repeat came.
            None => assert!(stopping),
            // The first card was.
            Some(repeat) if repeat.id() != id => {
                rig.parked.cancel(&caller("run_a"), repeat.id()).await.unwrap();
            }
            Some(_) => {}
        }
        rig.until(&id, |card| card.state().is_settled()).await;
        let ran = rig.runs() - before;
        assert!(ran <= usize::from(yes), "ran {ran} times");
        if stopping {
            let live = rig.parked.live(|_| true);
            assert!(live.is_empty(), "a stopped run has a live card: {live:?}");
            let ended = ["run_a".to_owned()];
            assert_eq!(rig.parked.inner.store.revive_runs(&ended).await.unwrap(), 1);
        }
    }
}
