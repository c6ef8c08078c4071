//! The gateway dies and comes back.

use super::*;
use tokio::runtime::Runtime;

// One life of a gateway: everything in it is dropped where it stands.
pub(super) fn life<T>(work: impl Future<Output = T>) -> T {
    let runtime = Runtime::new().unwrap();
    let value = runtime.block_on(work);
    drop(runtime);
    value
}

#[test]
fn parked_cards_and_grants_are_back_and_what_ran_is_unknown() {
    let ground = Ground::new(KIND);
    let (waiting, granted, running) = life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
        *rig.answer.lock() = Answer::Never;
        let waiting = rig.call(1).await;
        let granted = rig.call(2).await.id().to_owned();
        rig.until(&granted, Card::unattended).await;
        rig.approve(&granted).await;
        let running = rig.call(3).await;
        rig.approve(running.id()).await;
        rig.until(running.id(), |card| card.state() == State::Executing).await;
        (waiting.id().to_owned(), granted, running.id().to_owned())
    });
    life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
        assert_eq!(rig.parked.parked_count(&caller("run_a").agent), 2);
        let card = rig.card(&waiting).await;
        assert_eq!((card.state(), card.unattended()), (State::Parked, true));
        assert_eq!(rig.state(&running).await, State::Unknown);
        assert_eq!(rig.runs(), 0);

        let mut collector = rig.call(2).await;
        assert_eq!(collector.id(), granted);
        assert_eq!(settled(&mut collector).await, result());
        let mut repeat = rig.call(3).await;
        let Settlement::Unknown { text } = settled(&mut repeat).await else { panic!("known") };
        assert!(text.contains("the gateway restarted while it ran"), "{text}");
        let mut joined = rig.call(1).await;
        assert_eq!(joined.id(), waiting);
        rig.approve(&waiting).await;
        assert_eq!(settled(&mut joined).await, result());
        assert_eq!(rig.runs(), 2);
    });
}

#[test]
fn a_card_whose_caller_must_stay_does_not_outlive_the_gateway() {
    let ground = Ground::new(KIND);
    let id = life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Settle).await;
        let ticket = rig.call(1).await;
        let id = ticket.id().to_owned();
        rig.parked.shutdown().await;
        drop(ticket);
        id
    });
    life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Settle).await;
        assert_eq!(rig.state(&id).await, State::Cancelled);
    });
}

#[test]
fn no_clock_jump_during_a_restart_lengthens_the_time_to_decide() {
    let ground = Ground::new(KIND);
    let id = life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
        let ticket = rig.call(1).await;
        rig.clock.advance(7 * MINUTE);
        rig.parked.shutdown().await;
        ticket.id().to_owned()
    });
    life(async {
        // A day back: three minutes are left, as they were.
        let rig = Rig::open_at(&ground.place(), OnCallerGone::Keep, NOW - 1_440 * MINUTE).await;
        rig.clock.advance(2 * MINUTE);
        rig.parked.sweep().await;
        assert_eq!(rig.state(&id).await, State::Parked);
        rig.clock.advance(MINUTE);
        rig.parked.sweep().await;
        assert_eq!(rig.state(&id).await, State::Expired);
    });
}

#[test]
fn shutdown_keeps_what_waits_and_marks_what_does_not_end() {
    let ground = Ground::new(KIND);
    life(async {
        let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
        *rig.answer.lock() = Answer::Never;
        let waiting = rig.call(1).await;
        let mut running = rig.call(2).await;
        rig.approve(running.id()).await;
        rig.until(running.id(), |card| card.state() == State::Executing).await;
        rig.parked.shutdown().await;
        let Settlement::Unknown { text } = settled(&mut running).await else { panic!("known") };
        assert!(text.contains("the gateway stopped while it ran"), "{text}");
        assert_eq!(rig.state(waiting.id()).await, State::Parked);
        assert!(matches!(rig.try_call(3).await, Err(ParkError::Stopping)));
        rig.approve(waiting.id()).await;
        assert_eq!(rig.runs(), 1);
        assert_eq!(rig.state(waiting.id()).await, State::Approved);
    });
}
