//! That one gateway uses a database: a lock for as long as a connection of its own lives, and a
//! number that grows with each gateway that takes the lock.
//!
//! The lock alone would not do: the server may give it away before its last holder notices. So
//! every transaction asks for the number as well, see `WRITERS_LOCK`.

use crate::store::fault::StoreFault;
use crate::store::place::Spot;
use crate::store::schema;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// The lock of the gateway that uses the database.
pub(in crate::store) const GATEWAY_LOCK: i64 = 0x706f_7274_6375_0001;
/// The lock that all transactions share, and that who takes the database over has alone for a
/// moment.
pub(super) const WRITERS_LOCK: i64 = 0x706f_7274_6375_0002;
/// How long a gateway that is just ending keeps the next one waiting.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often the lock is asked for meanwhile.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// How often the connection is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The hold on a database. It ends when this is gone.
#[derive(Debug)]
pub(super) struct Hold {
    epoch: watch::Receiver<Option<i64>>,
    keeper: AbortHandle,
}

struct Keeper {
    options: PgConnectOptions,
    connection: PgConnection,
    epoch: watch::Sender<Option<i64>>,
}

impl Hold {
    /// Takes hold of the database and brings its schema up to date.
    pub(super) async fn take(options: &PgConnectOptions, spot: &Spot) -> Result<Self, StoreFault> {
        let failed = |error: sqlx::Error| StoreFault::of(spot, &error);
        let mut connection = options.connect().await.map_err(failed)?;
        let end = Instant::now() + LOCK_WAIT;
        while !lock(&mut connection).await.map_err(failed)? {
            if Instant::now() >= end {
                return Err(StoreFault::InUse { spot: spot.clone() });
            }
            sleep(LOCK_PAUSE).await;
        }
        schema::bring_postgres(spot, &mut connection).await?;
        let epoch = next_epoch(&mut connection).await.map_err(failed)?;
        let (sender, receiver) = watch::channel(Some(epoch));
        let keeper = Keeper { options: options.clone(), connection, epoch: sender };
        let task = tokio::spawn(keeper.run());
        Ok(Self { epoch: receiver, keeper: task.abort_handle() })
    }

    /// The number to write with; `None` while the hold is lost.
    pub(super) fn epoch(&self) -> Option<i64> {
        *self.epoch.borrow()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Keeper {
    async fn run(mut self) {
        loop {
            sleep(LOOK).await;
            if matches!(timeout(ANSWER_MAX, self.connection.ping()).await, Ok(Ok(()))) {
                continue;
            }
            self.epoch.send_replace(None);
            tracing::error!(
                "the hold on the database was lost; nothing is written until it is back"
            );
            self.regain().await;
            tracing::info!("the hold on the database is back");
        }
    }

    async fn regain(&mut self) {
        loop {
            match timeout(ANSWER_MAX, again(&self.options)).await {
                Ok(Ok(Some((connection, epoch)))) => {
                    self.connection = connection;
                    self.epoch.send_replace(Some(epoch));
                    return;
                }
                Ok(Ok(None) | Err(_)) | Err(_) => sleep(LOOK).await,
            }
        }
    }
}

async fn again(options: &PgConnectOptions) -> Result<Option<(PgConnection, i64)>, sqlx::Error> {
    let mut connection = options.connect().await?;
    if !lock(&mut connection).await? {
        return Ok(None);
    }
    let epoch = next_epoch(&mut connection).await?;
    Ok(Some((connection, epoch)))
}

async fn lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let lock = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(GATEWAY_LOCK);
    lock.fetch_one(connection).await?.try_get(0)
}

// Waits until no transaction of an earlier holder is under way; those that come later find the
// new number.
async fn next_epoch(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let alone = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(WRITERS_LOCK);
    alone.execute(&mut *transaction).await?;
    let row = sqlx::query("UPDATE holds SET epoch = epoch + 1 RETURNING epoch")
        .fetch_one(&mut *transaction)
        .await?;
    let epoch = row.try_get(0)?;
    transaction.commit().await?;
    Ok(epoch)
}
