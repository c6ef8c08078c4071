//! A connection of either engine inside a transaction: how statements and works run on it.

use crate::store::row::{Column, Row};
use crate::store::statement::{Gives, Guard, Statement, Value};
use crate::store::work::{Batch, Ran, Work, Wrote};
use bytes::Bytes;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _, TypeInfo as _, ValueRef as _};

/// A connection.
#[derive(Debug)]
pub(in crate::store) enum Session<'a> {
    Sqlite(&'a mut SqliteConnection),
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
        }
    }

    /// Runs a work without committing it.
    pub(in crate::store) async fn run(&mut self, work: &Work) -> Result<Wrote, sqlx::Error> {
        let mut each = Vec::with_capacity(work.batches.len());
        for batch in &work.batches {
            match self.run_batch(batch).await? {
                Some(ran) => each.push(ran),
                None => return Ok(Wrote::Undone),
            }
        }
        let told = work.batches.iter().zip(&each).filter(|(_, ran)| ran.counts());
        let events: Vec<_> = told.flat_map(|(batch, _)| &batch.events).collect();
        for event in events {
            self.execute(event).await?;
        }
        Ok(Wrote::Each(each))
    }

    // `None` if all of the work is to be undone.
    async fn run_batch(&mut self, batch: &Batch) -> Result<Option<Ran>, sqlx::Error> {
        let (mut changed, mut rows) = (0, Vec::new());
        for (at, statement) in batch.statements.iter().enumerate() {
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
        let kind = value.type_info().name().to_owned();
        match kind.as_str() {
            "TEXT" => Ok(Column::Text(row.try_get_unchecked(at)?)),
            "BLOB" => Ok(Column::Bytes(Bytes::from(row.try_get_unchecked::<Vec<u8>, _>(at)?))),
            _ => Ok(Column::Big(row.try_get_unchecked(at)?)),
        }
    };
    let columns = (0..row.len()).map(column).collect::<Result<Vec<_>, sqlx::Error>>()?;
    Ok(Row::new(columns))
}
