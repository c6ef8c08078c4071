//! Everything at once.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_eight_racing_deciders_exactly_one_decides() {
    let folder = Folder::new();
    let rig = Rig::open(&folder.file(), OnCallerGone::Keep).await;
    for round in 0..10 {
        let mut ticket = rig.call(round).await;
        let before = rig.runs();
        let deciders: Vec<_> = (0..8)
            .map(|number| {
                let (parked, id) = (rig.parked.clone(), ticket.id().to_owned());
                let verdict = if number % 2 == 0 { Verdict::Approve } else { deny("no") };
                let by = operator(&format!("operator-{number}"));
                tokio::spawn(async move { parked.decide(&id, verdict, None, &by).await })
            })
            .collect();
        let mut winners = Vec::new();
        for decider in deciders {
            match decider.await.unwrap() {
                Ok(card) => winners.push(card),
                Err(DecideError::Settled(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(winners.len(), 1);
        let approved = winners[0].state() == State::Approved;
        let ran = matches!(settled(&mut ticket).await, Settlement::Result { .. });
        assert_eq!(ran, approved);
        assert_eq!(rig.runs() - before, usize::from(approved));
    }
}

#[tokio::test]
async fn the_same_decision_again_gets_the_same_answer_and_another_one_the_outcome() {
    let folder = Folder::new();
    let rig = Rig::open(&folder.file(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    assert_eq!(settled(&mut ticket).await, result());
    assert_eq!(rig.approve(ticket.id()).await.state(), State::Done);
    let other = rig.parked.decide(ticket.id(), deny("no"), None, &operator("ann")).await;
    let Err(DecideError::Settled(card)) = other else { panic!("{other:?}") };
    assert_eq!(card.state(), State::Done);
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn a_decision_on_other_arguments_decides_nothing() {
    let folder = Folder::new();
    let rig = Rig::open(&folder.file(), OnCallerGone::Keep).await;
    let ticket = rig.call(7).await;
    let by = operator("ann");
    let wrong = Some(Digest::of(b"{}"));
    let error = rig.parked.decide(ticket.id(), Verdict::Approve, wrong, &by).await.unwrap_err();
    assert!(matches!(error, DecideError::WrongDigest));
    assert_eq!(rig.state(ticket.id()).await, State::Parked);
    let right = Some(ticket.card().asked().digest);
    rig.parked.decide(ticket.id(), Verdict::Approve, right, &by).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approve_deny_leave_repeat_stop_and_expiry_leave_one_outcome() {
    let folder = Folder::new();
    let rig = Arc::new(Rig::open(&folder.file(), OnCallerGone::Keep).await);
    for round in 0..20 {
        let ticket = rig.call(round).await;
        let id = ticket.id().to_owned();
        let before = rig.runs();
        let decide = |verdict: Verdict, name: &str| {
            let (parked, id, by) = (rig.parked.clone(), id.clone(), operator(name));
            tokio::spawn(async move { parked.decide(&id, verdict, None, &by).await.is_ok() })
        };
        let (yes, no) = (decide(Verdict::Approve, "ann"), decide(deny("no"), "bob"));
        let (parked, stopping) = (rig.parked.clone(), round % 3 == 0);
        let stop = tokio::spawn(async move {
            if stopping {
                parked.stop(&[caller("run_a")], "its run was stopped").await.unwrap();
            }
        });
        let again = Arc::clone(&rig);
        let repeat = tokio::spawn(async move { again.call(round).await });
        drop(ticket);
        let (yes, no) = (yes.await.unwrap(), no.await.unwrap());
        stop.await.unwrap();
        assert!(!(yes && no));
        let repeat = repeat.await.unwrap();
        if repeat.id() != id {
            // The first card was over before the repeat came.
            rig.parked.cancel(&caller("run_a"), repeat.id()).await.unwrap();
        }
        rig.until(&id, |card| card.state().is_settled()).await;
        let ran = rig.runs() - before;
        assert!(ran <= usize::from(yes), "ran {ran} times");
    }
}
