//! PostgreSQL: a pool of connections, a transaction for each work, one gateway at a time.

mod hold;

use super::session::Session;
use super::trouble::Trouble;
use crate::store::StoreSettings;
use crate::store::fault::StoreFault;
use crate::store::place::{Place, Spot};
use crate::store::row::Row;
use crate::store::statement::Statement;
use crate::store::work::{Work, Wrote};
use hold::{Hold, WRITERS_LOCK};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgPool, Row as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(in crate::store) use hold::GATEWAY_LOCK;

/// Most times that a work is tried which the server broke off in favour of another one.
const ATTEMPTS_MAX: usize = 5;
/// How long a statement may take, and a transaction may wait for us.
const STATEMENT_MAX: Duration = Duration::from_secs(30);

/// An open database.
#[derive(Debug)]
pub(in crate::store) struct Postgres {
    desk: Desk,
    hold: Hold,
}

// What a work needs that outlives its caller.
#[derive(Debug, Clone)]
struct Desk {
    pool: PgPool,
    spot: Spot,
    commits: Arc<AtomicU64>,
    trouble: Trouble,
}

enum Broken {
    Sql(sqlx::Error),
    /// Another gateway took the database over.
    Taken,
}

impl From<sqlx::Error> for Broken {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl Postgres {
    pub(in crate::store) async fn open(
        url: &str,
        settings: &StoreSettings,
        trouble: Trouble,
    ) -> Result<Self, StoreFault> {
        let spot = settings.place.spot();
        let options = connect_options(url, settings)?;
        let hold = Hold::take(&options, &spot).await?;
        let pool = PgPoolOptions::new()
            .max_connections(settings.readers.max(1).saturating_mul(2))
            .acquire_timeout(settings.queue)
            .connect_lazy_with(options);
        let commits = Arc::new(AtomicU64::new(0));
        Ok(Self { desk: Desk { pool, spot, commits, trouble }, hold })
    }

    pub(super) async fn read(&self, statement: &Statement) -> Result<Vec<Row>, StoreFault> {
        let failed = |error: sqlx::Error| StoreFault::of(&self.desk.spot, &error);
        let mut connection = self.desk.pool.acquire().await.map_err(failed)?;
        let done = Session::Postgres(&mut connection).execute(statement).await.map_err(failed)?;
        Ok(done.rows)
    }

    pub(super) async fn write(&self, work: Work) -> Result<Wrote, StoreFault> {
        let Some(epoch) = self.hold.epoch() else { return Err(self.desk.taken()) };
        let (desk, spot) = (self.desk.clone(), self.desk.spot.clone());
        // A task of its own, so that a caller that goes away does not break it off. It ends by
        // itself: every statement has its limit.
        let task = tokio::spawn(async move { desk.write(&work, epoch).await });
        task.await.unwrap_or_else(|error| Err(StoreFault::unavailable(&spot, &error)))
    }

    /// Closes the connections. What holds the database for this gateway goes with the last clone.
    pub(super) async fn close(&self) {
        self.desk.pool.close().await;
    }

    pub(super) fn commits(&self) -> u64 {
        self.desk.commits.load(Ordering::Relaxed)
    }

    pub(super) async fn clock_offset_ms(&self) -> Result<i64, StoreFault> {
        let before = wall_ms();
        let row =
            sqlx::query("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now")
                .fetch_one(&self.desk.pool)
                .await;
        let theirs: Result<i64, _> = row.and_then(|row| row.try_get("now"));
        let theirs = theirs.map_err(|error| StoreFault::of(&self.desk.spot, &error))?;
        // It was read half way between the question and the answer, as far as we can tell.
        let ours = before.midpoint(wall_ms());
        Ok(theirs.saturating_sub(ours))
    }
}

impl Desk {
    async fn write(&self, work: &Work, epoch: i64) -> Result<Wrote, StoreFault> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.transact(work, epoch).await {
                Ok(wrote) => return Ok(wrote),
                Err(Broken::Taken) => return Err(self.taken()),
                Err(Broken::Sql(error)) if attempts < ATTEMPTS_MAX && gave_way(&error) => {}
                Err(Broken::Sql(error)) => return Err(StoreFault::of(&self.spot, &error)),
            }
        }
    }

    async fn transact(&self, work: &Work, epoch: i64) -> Result<Wrote, Broken> {
        // Shared by all that write: who takes the database over waits for them to end, and those
        // that come later find its epoch.
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock_shared({WRITERS_LOCK})");
        let mut transaction = self.pool.begin_with(AssertSqlSafe(begin)).await?;
        let ours = sqlx::query("SELECT 1 FROM holds WHERE epoch = $1").bind(epoch);
        if ours.fetch_optional(&mut *transaction).await?.is_none() {
            return Err(Broken::Taken);
        }
        let wrote = Session::Postgres(&mut transaction).run(work, &self.trouble).await?;
        match wrote {
            Wrote::Each(_) => {
                let commit = self.trouble.before_commit()?;
                transaction.commit().await?;
                self.commits.fetch_add(1, Ordering::Relaxed);
                self.trouble.after_commit(commit)?;
            }
            Wrote::Undone => transaction.rollback().await?,
        }
        Ok(wrote)
    }

    fn taken(&self) -> StoreFault {
        let cause = "the connection that holds it was lost, and another gateway may have it; it \
                     is asked for again";
        StoreFault::unavailable(&self.spot, &cause)
    }
}

/// How to connect, for whatever purpose.
pub(in crate::store) fn connect_options(
    url: &str,
    settings: &StoreSettings,
) -> Result<PgConnectOptions, StoreFault> {
    let spot = Place::Postgres(url.to_owned()).spot();
    let options: PgConnectOptions = url.parse().map_err(|error| StoreFault::of(&spot, &error))?;
    let statement_ms = STATEMENT_MAX.as_millis().to_string();
    let lock_ms = settings.busy.as_millis().max(1).to_string();
    Ok(options
        .application_name("portcullis")
        .options([
            ("default_transaction_isolation", "read committed"),
            ("synchronous_commit", "on"),
            ("statement_timeout", &statement_ms),
            ("lock_timeout", &lock_ms),
            ("idle_in_transaction_session_timeout", &statement_ms),
            // So that the server lets go of what a gateway held whose machine is gone.
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ])
        .disable_statement_logging())
}

// Deadlock or conflict: the server undid all of it, so it may be done again.
fn gave_way(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    matches!(code.as_deref(), Some("40P01" | "40001"))
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
