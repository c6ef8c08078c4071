//! The store fails: nothing is parked, nothing is decided, nothing runs.

use super::*;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

/// Holds the write lock of the file, as a full disk or a stuck process would.
struct Blocked(SqliteConnection);

impl Blocked {
    async fn new(file: &Path) -> Self {
        let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
        Self(connection)
    }

    async fn end(self) {
        self.0.close().await.unwrap();
    }
}

#[tokio::test]
async fn without_a_store_nothing_is_parked_and_nothing_is_decided() {
    let folder = Folder::new();
    let rig = Rig::open(&folder.file(), OnCallerGone::Keep).await;
    let mut ticket = rig.call(7).await;
    let blocked = Blocked::new(&folder.file()).await;
    assert!(matches!(rig.try_call(8).await, Err(ParkError::Store(_))));
    let by = operator("ann");
    let decided = rig.parked.decide(ticket.id(), Verdict::Approve, None, &by).await;
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
    let folder = Folder::new();
    let rig = Rig::open(&folder.file(), OnCallerGone::Keep).await;
    let id = rig.call(7).await.id().to_owned();
    rig.until(&id, Card::unattended).await;
    rig.approve(&id).await;
    let blocked = Blocked::new(&folder.file()).await;
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
    let folder = Folder::new();
    let rig = Rig::open(&folder.file(), OnCallerGone::Keep).await;
    let answer = Arc::new(Notify::new());
    *rig.answer.lock() = Answer::Later(Arc::clone(&answer), done());
    let mut ticket = rig.call(7).await;
    rig.approve(ticket.id()).await;
    rig.until(ticket.id(), |card| card.state() == State::Executing).await;
    let blocked = Blocked::new(&folder.file()).await;
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
