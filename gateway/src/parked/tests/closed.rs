//! The store fails: nothing is parked, nothing is decided, nothing runs.

use super::*;
use crate::store::ground::Kind;
use crate::store::{Change, Inserted};
use portcullis_policy::ledger::{Asked, Event, step};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

/// Holds what every write needs, as a full disk or a stuck process would.
struct Blocked(Connection);

enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Blocked {
    async fn new(ground: &Ground) -> Self {
        match KIND {
            Kind::Sqlite => {
                let options = SqliteConnectOptions::new().filename(ground.file());
                let mut connection = options.connect().await.unwrap();
                connection.execute("BEGIN IMMEDIATE").await.unwrap();
                Self(Connection::Sqlite(connection))
            }
            Kind::Postgres => {
                let mut connection = ground.connect().await;
                connection.execute("BEGIN; LOCK TABLE cards IN EXCLUSIVE MODE").await.unwrap();
                Self(Connection::Postgres(connection))
            }
        }
    }

    async fn end(self) {
        match self.0 {
            Connection::Sqlite(connection) => connection.close().await.unwrap(),
            Connection::Postgres(connection) => connection.close().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn without_a_store_nothing_is_parked_and_nothing_is_decided() {
    let ground = Ground::new(KIND);
    let rig = Rig::impatient(&ground.place()).await;
    let mut ticket = rig.call(7).await;
    let blocked = Blocked::new(&ground).await;
    assert!(matches!(rig.try_call(8).await, Err(ParkError::Store(_))));
    let by = operator("ann");
    let decided = rig.parked.decide(ticket.id(), &yes(7), &by, None).await;
    assert!(matches!(decided, Err(DecideError::Store(_))), "{decided:?}");
    assert_eq!((rig.state(ticket.id()).await, rig.runs()), (State::Parked, 0));
    assert_eq!(rig.parked.parked_count(&caller("run_a").agent), 1);
    blocked.end().await;
    rig.approve(ticket.id()).await;
    assert_eq!(settled(&mut ticket).await, result());
    assert!(!rig.call(8).await.joined());
}

#[tokio::test]
async fn an_approval_that_cannot_be_used_up_does_not_run_until_it_can() {
    let ground = Ground::new(KIND);
    let rig = Rig::impatient(&ground.place()).await;
    let id = rig.call(7).await.id().to_owned();
    rig.until(&id, Card::unattended).await;
    rig.approve(&id).await;
    let blocked = Blocked::new(&ground).await;
    let mut repeat = rig.call(7).await;
    rig.parked.sweep().await;
    assert_eq!((rig.state(&id).await, rig.runs()), (State::Approved, 0));
    blocked.end().await;
    rig.parked.sweep().await;
    assert_eq!(settled(&mut repeat).await, result());
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn a_call_whose_end_is_not_stored_answers_its_caller_and_is_stored_later() {
    let ground = Ground::new(KIND);
    let rig = Rig::impatient(&ground.place()).await;
    let answer = Arc::new(Notify::new());
    *rig.answer.lock() = Answer::Later(Arc::clone(&answer), done());
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    rig.until(ticket.id(), |card| card.state() == State::Executing).await;
    let blocked = Blocked::new(&ground).await;
    answer.notify_one();
    assert_eq!(settled(&mut ticket).await, result());
    assert_eq!(rig.state(ticket.id()).await, State::Executing);
    rig.parked.sweep().await;
    assert_eq!(rig.state(ticket.id()).await, State::Executing);
    blocked.end().await;
    rig.parked.sweep().await;
    assert_eq!(rig.state(ticket.id()).await, State::Done);
    assert_eq!(rig.runs(), 1);
}

// What a commit leaves behind that took place although it said it did not.
async fn behind(rig: &Rig, card: &Card, events: Vec<Event>) {
    let mut at = card.clone();
    for event in events {
        at = step(&at, event, NOW).unwrap().0;
        let decided = at.decision().is_some() && at.state() != State::Executing;
        let change = Change { card: at.clone(), kept: None, decided, given: None, silent: false };
        assert_eq!(rig.parked.inner.store.commit(&[change]).await.unwrap(), [true]);
    }
}

fn approve(id: u32) -> Event {
    Event::Decide { word: yes(id), by: operator("ann") }
}

#[tokio::test]
async fn a_card_that_memory_does_not_know_is_found_and_can_be_decided() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Settle).await;
    let asked = Asked::new(&caller("run_a").agent, "run_a", &[], &request(&rig.scope, 7));
    let card = Card::new("apr_lost".to_owned(), asked, NOW);
    rig.call(8).await;
    let inserted = rig.parked.inner.store.insert(&card, None, None).await.unwrap();
    assert_eq!(inserted, Inserted::New);
    rig.parked.sweep().await;
    assert!(rig.card("apr_lost").await.unattended());
    assert_eq!(rig.parked.parked_count(&caller("run_a").agent), 1);
    rig.approve("apr_lost").await;
    let mut repeat = rig.call(7).await;
    assert_eq!(settled(&mut repeat).await, result());
}

#[tokio::test]
async fn what_the_store_settled_or_started_unseen_reaches_the_waiters() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let (mut denied, mut started) = (rig.call(1).await, rig.call(2).await);
    let deny = Event::Decide { word: deny("no"), by: operator("ann") };
    behind(&rig, &denied.card(), vec![deny]).await;
    behind(&rig, &started.card(), vec![approve(2), Event::Execute]).await;
    let mut approved = rig.call(3).await;
    behind(&rig, &approved.card(), vec![approve(3)]).await;
    rig.parked.sweep().await;
    let Settlement::NotRun { state, .. } = settled(&mut denied).await else { panic!("ran") };
    assert_eq!(state, State::Denied);
    assert!(matches!(settled(&mut started).await, Settlement::Unknown { .. }));
    assert_eq!(settled(&mut approved).await, result());
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let ground = Ground::new(KIND);
    let rig = Rig::open(&ground.place(), OnCallerGone::Keep).await;
    let ticket = rig.call(7).await;
    let settled = DecideError::Settled(Box::new(Card::clone(&ticket.card()))).to_string();
    let texts = [
        settled.replace(ticket.id(), "apr_x"),
        DecideError::WrongDigest.to_string(),
        DecideError::NotApprover(Approver::Human).to_string(),
        DecideError::Unknown.to_string(),
        ParkError::Stopping.to_string(),
    ];
    let expected = "approval `apr_x` is parked already
the digest is not that of the card; read the card again and decide on what it shows
the policy does not let the operator decide this call
there is no such approval
the gateway is shutting down";
    assert_eq!(texts.join("\n"), expected);
}
