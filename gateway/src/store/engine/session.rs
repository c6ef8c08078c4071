//! A connection of either engine inside a transaction: how statements and works run on it.

use super::trouble::Trouble;
use crate::store::row::{Column, Row};
use crate::store::statement::{Gives, Guard, Lock, Statement, Value};
use crate::store::work::{Batch, Ran, Work, Wrote};
use bytes::Bytes;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _, TypeInfo as _, ValueRef as _};
use std::borrow::Cow;

/// The lock that a transaction takes before its first event and keeps to its end.
const EVENTS_LOCK: i64 = 0x706f_7274_6375_0003;

/// A connection.
#[derive(Debug)]
pub(in crate::store) enum Session<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

/// What a statement did.
#[derive(Debug, Default)]
pub(in crate::store) struct Done {
    pub(in crate::store) count: u64,
    pub(in crate::store) rows: Vec<Row>,
}

impl Session<'_> {
    /// Runs one statement.
    pub(in crate::store) async fn execute(
        &mut self,
        statement: &Statement,
    ) -> Result<Done, sqlx::Error> {
        match self {
            Self::Sqlite(connection) => on_sqlite(connection, statement).await,
            Self::Postgres(connection) => on_postgres(connection, statement).await,
        }
    }

    // Whoever tells of something numbers it and is seen before the next one numbers. SQLite has
    // one writer, so that is so there.
    async fn order_events(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(connection) => {
                let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(EVENTS_LOCK);
                lock.execute(&mut **connection).await.map(drop)
            }
        }
    }

    /// Runs a work without committing it.
    pub(in crate::store) async fn run(
        &mut self,
        work: &Work,
        trouble: &Trouble,
    ) -> Result<Wrote, sqlx::Error> {
        let mut each = Vec::with_capacity(work.batches.len());
        for batch in &work.batches {
            match self.run_batch(batch, trouble).await? {
                Some(ran) => each.push(ran),
                None => return Ok(Wrote::Undone),
            }
        }
        let told = work.batches.iter().zip(&each).filter(|(_, ran)| ran.counts());
        let events: Vec<_> = told.flat_map(|(batch, _)| &batch.events).collect();
        if !events.is_empty() {
            self.order_events().await?;
        }
        for event in events {
            trouble.statement()?;
            self.execute(event).await?;
        }
        Ok(Wrote::Each(each))
    }

    // `None` if all of the work is to be undone.
    async fn run_batch(
        &mut self,
        batch: &Batch,
        trouble: &Trouble,
    ) -> Result<Option<Ran>, sqlx::Error> {
        let (mut changed, mut rows) = (0, Vec::new());
        for (at, statement) in batch.statements.iter().enumerate() {
            trouble.statement()?;
            let done = self.execute(statement).await?;
            match (statement.guard, done.count) {
                (Guard::OrSkip, 0) => return Ok(Some(Ran::Skipped(at))),
                (Guard::OrUndo, 0) | (Guard::NoneOrUndo, 1..) => return Ok(None),
                (Guard::Any | Guard::OrSkip | Guard::OrUndo | Guard::NoneOrUndo, _) => {}
            }
            if statement.gives == Gives::Count {
                changed += done.count;
            }
            rows.extend(done.rows);
        }
        Ok(Some(Ran::Whole { changed, rows }))
    }
}

async fn on_sqlite(
    connection: &mut SqliteConnection,
    statement: &Statement,
) -> Result<Done, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(statement.sql.clone()));
    for value in &statement.values {
        query = match value {
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Big(number) => query.bind(*number),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
        };
    }
    match statement.gives {
        Gives::Count => {
            let count = query.execute(connection).await?.rows_affected();
            Ok(Done { count, rows: Vec::new() })
        }
        Gives::Rows => {
            let rows = query.fetch_all(connection).await?;
            let rows = rows.iter().map(of_sqlite).collect::<Result<Vec<_>, _>>()?;
            Ok(Done { count: rows.len().try_into().unwrap_or(u64::MAX), rows })
        }
    }
}

fn of_sqlite(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let column = |at: usize| {
        let value = row.try_get_raw(at)?;
        if value.is_null() {
            return Ok(Column::Null);
        }
        match value.type_info().name() {
            "TEXT" => Ok(Column::Text(row.try_get_unchecked(at)?)),
            "BLOB" => Ok(Column::Bytes(Bytes::from(row.try_get_unchecked::<Vec<u8>, _>(at)?))),
            _ => Ok(Column::Big(row.try_get_unchecked(at)?)),
        }
    };
    let columns = (0..row.len()).map(column).collect::<Result<Vec<_>, sqlx::Error>>()?;
    Ok(Row::new(columns))
}

async fn on_postgres(
    connection: &mut PgConnection,
    statement: &Statement,
) -> Result<Done, sqlx::Error> {
    let sql = match statement.lock {
        Lock::Free => statement.sql.clone(),
        Lock::Shared => Cow::Owned(format!("{} FOR SHARE", statement.sql)),
    };
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for value in &statement.values {
        query = match value {
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Big(number) => query.bind(*number),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
        };
    }
    match statement.gives {
        Gives::Count => {
            let count = query.execute(connection).await?.rows_affected();
            Ok(Done { count, rows: Vec::new() })
        }
        Gives::Rows => {
            let rows = query.fetch_all(connection).await?;
            let rows = rows.iter().map(of_postgres).collect::<Result<Vec<_>, _>>()?;
            Ok(Done { count: rows.len().try_into().unwrap_or(u64::MAX), rows })
        }
    }
}

fn of_postgres(row: &PgRow) -> Result<Row, sqlx::Error> {
    let column = |at: usize| {
        let value = row.try_get_raw(at)?;
        if value.is_null() {
            return Ok(Column::Null);
        }
        match value.type_info().name() {
            "TEXT" => Ok(Column::Text(row.try_get(at)?)),
            "BYTEA" => Ok(Column::Bytes(Bytes::from(row.try_get::<Vec<u8>, _>(at)?))),
            _ => Ok(Column::Big(row.try_get(at)?)),
        }
    };
    let columns = (0..row.len()).map(column).collect::<Result<Vec<_>, sqlx::Error>>()?;
    Ok(Row::new(columns))
}
