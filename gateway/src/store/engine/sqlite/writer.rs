//! The one writer: takes what waits, commits it together, answers each.
//!
//! Syncing the disk takes longer than all else, and one sync serves everybody who waits. Each
//! work has a savepoint of its own, so that one that fails takes no other along.

use super::super::session::Session;
use super::super::trouble::Trouble;
use crate::store::fault::StoreFault;
use crate::store::place::Spot;
use crate::store::work::{Work, Wrote};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// Most works that wait for the writer; who comes then waits for a place.
const QUEUE_WORKS_MAX: usize = 1_024;
/// Most works that are committed together.
const GROUP_WORKS_MAX: usize = 256;

/// What the writer starts with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) connection: SqliteConnection,
    /// To connect anew after a failure.
    pub(super) options: SqliteConnectOptions,
    /// Held until the last work is committed.
    pub(super) lock: File,
    pub(super) spot: Spot,
    /// How long a work waits for those before it.
    pub(super) queue: Duration,
    pub(super) trouble: Trouble,
}

/// The way to the writer. The writer ends when this is gone and the queue is empty.
#[derive(Debug)]
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
    commits: Arc<AtomicU64>,
    spot: Spot,
    queue: Duration,
}

#[derive(Debug)]
enum Order {
    Write(Written),
    /// Nothing comes after it.
    Close(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Written {
    work: Work,
    answer: oneshot::Sender<Result<Wrote, StoreFault>>,
    since: Instant,
}

impl Writer {
    pub(super) fn start(start: Start) -> Self {
        let (orders, queued) = mpsc::channel(QUEUE_WORKS_MAX);
        let commits = Arc::new(AtomicU64::new(0));
        let (spot, queue) = (start.spot.clone(), start.queue);
        let desk = Desk {
            connection: Some(start.connection),
            options: start.options,
            commits: Arc::clone(&commits),
            spot: start.spot,
            queue: start.queue,
            trouble: start.trouble,
        };
        tokio::spawn(desk.run(queued, start.lock));
        Self { orders, commits, spot, queue }
    }

    pub(super) async fn write(&self, work: Work) -> Result<Wrote, StoreFault> {
        let late = || StoreFault::unavailable(&self.spot, &"too much waits to be written");
        let ended = || StoreFault::unavailable(&self.spot, &"its writer has ended");
        let place = timeout(self.queue, self.orders.reserve()).await.map_err(|_| late())?;
        let (answer, answered) = oneshot::channel();
        let order = Order::Write(Written { work, answer, since: Instant::now() });
        place.map_err(|_| ended())?.send(order);
        answered.await.map_err(|_| ended())?
    }

    /// Writes what waits, closes the file and gives it free. Nothing is written after that.
    pub(super) async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        // One that has ended is closed.
        if self.orders.send(Order::Close(answer)).await.is_ok() {
            let _ = answered.await;
        }
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

struct Desk {
    // None after a failure that leaves its transaction in doubt.
    connection: Option<SqliteConnection>,
    options: SqliteConnectOptions,
    commits: Arc<AtomicU64>,
    spot: Spot,
    queue: Duration,
    trouble: Trouble,
}

impl Desk {
    async fn run(mut self, mut queued: mpsc::Receiver<Order>, lock: File) {
        let mut orders = Vec::new();
        let mut closes = Vec::new();
        while closes.is_empty() && queued.recv_many(&mut orders, GROUP_WORKS_MAX).await > 0 {
            let (works, answers) = self.in_time(&mut orders, &mut closes);
            let outcomes = self.group(&works).await;
            for (answer, outcome) in answers.into_iter().zip(outcomes) {
                // Who went away takes no answer; the work stays done.
                drop(answer.send(outcome));
            }
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = sqlx::Connection::close(connection).await
        {
            tracing::warn!(%error, "the store was not closed in order; nothing is lost");
        }
        drop(lock);
        for close in closes {
            // Who does not wait does not need to know.
            let _ = close.send(());
        }
    }

    // Works that waited too long are refused: their callers may have given up.
    fn in_time(
        &self,
        orders: &mut Vec<Order>,
        closes: &mut Vec<oneshot::Sender<()>>,
    ) -> (Vec<Work>, Vec<oneshot::Sender<Result<Wrote, StoreFault>>>) {
        let (mut works, mut answers) = (Vec::new(), Vec::new());
        for order in orders.drain(..) {
            let order = match order {
                Order::Write(order) => order,
                Order::Close(answer) => {
                    closes.push(answer);
                    continue;
                }
            };
            if order.since.elapsed() > self.queue {
                let late = StoreFault::unavailable(&self.spot, &"too much waits to be written");
                drop(order.answer.send(Err(late)));
            } else {
                works.push(order.work);
                answers.push(order.answer);
            }
        }
        (works, answers)
    }

    async fn group(&mut self, works: &[Work]) -> Vec<Result<Wrote, StoreFault>> {
        if works.is_empty() {
            return Vec::new();
        }
        match self.commit(works).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let fault = StoreFault::of(&self.spot, &error);
                works.iter().map(|_| Err(fault.clone())).collect()
            }
        }
    }

    async fn commit(
        &mut self,
        works: &[Work],
    ) -> Result<Vec<Result<Wrote, StoreFault>>, sqlx::Error> {
        // Taken, so that any way out but the good one leaves none.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.options.clone().create_if_missing(false).connect().await?,
        };
        let outcomes = self.transact(&mut connection, works).await;
        if outcomes.is_err() && connection.execute("ROLLBACK").await.is_err() {
            return outcomes;
        }
        self.connection = Some(connection);
        outcomes
    }

    async fn transact(
        &self,
        connection: &mut SqliteConnection,
        works: &[Work],
    ) -> Result<Vec<Result<Wrote, StoreFault>>, sqlx::Error> {
        // Immediate: a reader that turns writer half way could not wait for the lock.
        connection.execute("BEGIN IMMEDIATE").await?;
        let mut outcomes = Vec::with_capacity(works.len());
        for work in works {
            outcomes.push(self.one(connection, work).await?);
        }
        let commit = self.trouble.before_commit()?;
        connection.execute("COMMIT").await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.trouble.after_commit(commit)?;
        Ok(outcomes)
    }

    async fn one(
        &self,
        connection: &mut SqliteConnection,
        work: &Work,
    ) -> Result<Result<Wrote, StoreFault>, sqlx::Error> {
        connection.execute("SAVEPOINT work").await?;
        let outcome = Session::Sqlite(connection).run(work, &self.trouble).await;
        if !matches!(outcome, Ok(Wrote::Each(_))) {
            let back = connection.execute("ROLLBACK TO work").await;
            if let (Err(error), Err(_)) = (&outcome, back) {
                // Such a failure ended the whole transaction.
                tracing::error!(%error, "a transaction was broken off");
                return outcome.map(Ok);
            }
        }
        connection.execute("RELEASE work").await?;
        Ok(outcome.map_err(|error| StoreFault::of(&self.spot, &error)))
    }
}
