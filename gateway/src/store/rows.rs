//! The statements. Each names the version it replaces or changes nothing.

use super::{
    Change, Filter, Kept, KeptKind, LIST_ITEMS_MAX, Named, PRUNE_ROWS_MAX, Standing, Store,
    StoreFault,
};
use bytes::Bytes;
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, State};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite};

pub(super) async fn insert(store: &Store, card: &Card) -> Result<bool, StoreFault> {
    let done = sqlx::query(
        "INSERT INTO cards (id, version, state, agent, run, key, doc, created_ms, updated_ms) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(card.id())
    .bind(big(card.version()))
    .bind(card.state().as_str())
    .bind(card.asked().agent.as_str().to_ascii_lowercase())
    .bind(&card.asked().run)
    .bind(card.asked().key().hex())
    .bind(card.write().map_err(|error| store.damaged(&error))?)
    .bind(big(card.created_ms()))
    .bind(big(card.updated_ms()))
    .execute(&store.writer)
    .await
    .map_err(|error| store.fault(&error))?;
    Ok(done.rows_affected() == 1)
}

pub(super) async fn commit(store: &Store, changes: &[Change]) -> Result<Vec<bool>, StoreFault> {
    let mut records = Vec::with_capacity(changes.len());
    for change in changes {
        records.push(change.card.write().map_err(|error| store.damaged(&error))?);
    }
    let work = async {
        // Immediate: a reader that turns writer half way could not wait for the lock.
        let mut transaction = store.writer.begin_with("BEGIN IMMEDIATE").await?;
        let mut counted = Vec::with_capacity(changes.len());
        for (change, record) in changes.iter().zip(records) {
            let card = &change.card;
            let done = sqlx::query(
                "UPDATE cards SET version = ?, state = ?, doc = ?, updated_ms = ? \
                 WHERE id = ? AND version = ?",
            )
            .bind(big(card.version()))
            .bind(card.state().as_str())
            .bind(record)
            .bind(big(card.updated_ms()))
            .bind(card.id())
            .bind(big(card.version().saturating_sub(1)))
            .execute(&mut *transaction)
            .await?;
            let counts = done.rows_affected() == 1;
            if let (true, Some(kept)) = (counts, &change.kept) {
                sqlx::query(
                    "INSERT INTO results (card_id, kind, bytes, expires_ms, delivered) \
                     VALUES (?, ?, ?, ?, ?)",
                )
                .bind(card.id())
                .bind(kept.kind.as_str())
                .bind(&*kept.bytes)
                .bind(big(kept.expires_ms))
                .bind(i64::from(kept.delivered))
                .execute(&mut *transaction)
                .await?;
            }
            counted.push(counts);
        }
        transaction.commit().await?;
        Ok(counted)
    };
    work.await.map_err(|error: sqlx::Error| store.fault(&error))
}

pub(super) async fn card(store: &Store, id: &str) -> Result<Option<Card>, StoreFault> {
    let row = sqlx::query("SELECT version, state, doc FROM cards WHERE id = ?")
        .bind(id)
        .fetch_optional(&store.readers)
        .await
        .map_err(|error| store.fault(&error))?;
    row.map(|row| read(store, &row)).transpose()
}

pub(super) async fn named(store: &Store, prefix: &str) -> Result<Named, StoreFault> {
    let prefix = prefix.strip_prefix("apr_").unwrap_or(prefix);
    let rows =
        sqlx::query("SELECT version, state, doc FROM cards WHERE id >= ? AND id < ? LIMIT 2")
            .bind(format!("apr_{prefix}"))
            // Ids are ASCII, so everything that starts with the prefix sorts before this.
            .bind(format!("apr_{prefix}\u{7f}"))
            .fetch_all(&store.readers)
            .await
            .map_err(|error| store.fault(&error))?;
    match rows.as_slice() {
        [] => Ok(Named::None),
        [row] => Ok(Named::One(Box::new(read(store, row)?))),
        _ => Ok(Named::Several),
    }
}

pub(super) async fn live(store: &Store, key: Digest) -> Result<Option<Card>, StoreFault> {
    let row = sqlx::query(
        "SELECT version, state, doc FROM cards \
         WHERE key = ? AND state IN ('parked', 'approved', 'executing')",
    )
    .bind(key.hex())
    .fetch_optional(&store.readers)
    .await
    .map_err(|error| store.fault(&error))?;
    row.map(|row| read(store, &row)).transpose()
}

pub(super) async fn undelivered(
    store: &Store,
    key: Digest,
    now_ms: u64,
) -> Result<Option<(Card, Kept)>, StoreFault> {
    let row = sqlx::query(
        "SELECT version, state, doc, kind, bytes, expires_ms, delivered \
         FROM cards JOIN results ON results.card_id = cards.id \
         WHERE key = ? AND delivered = 0 AND expires_ms > ? ORDER BY updated_ms DESC LIMIT 1",
    )
    .bind(key.hex())
    .bind(big(now_ms))
    .fetch_optional(&store.readers)
    .await
    .map_err(|error| store.fault(&error))?;
    row.map(|row| Ok((read(store, &row)?, read_kept(store, &row)?))).transpose()
}

pub(super) async fn kept(store: &Store, id: &str) -> Result<Option<Kept>, StoreFault> {
    let row =
        sqlx::query("SELECT kind, bytes, expires_ms, delivered FROM results WHERE card_id = ?")
            .bind(id)
            .fetch_optional(&store.readers)
            .await
            .map_err(|error| store.fault(&error))?;
    row.map(|row| read_kept(store, &row)).transpose()
}

pub(super) async fn deliver(store: &Store, id: &str) -> Result<(), StoreFault> {
    sqlx::query("UPDATE results SET delivered = 1 WHERE card_id = ? AND delivered = 0")
        .bind(id)
        .execute(&store.writer)
        .await
        .map_err(|error| store.fault(&error))?;
    Ok(())
}

pub(super) async fn list(store: &Store, filter: &Filter) -> Result<Vec<Card>, StoreFault> {
    let mut query =
        QueryBuilder::<Sqlite>::new("SELECT version, state, doc FROM cards WHERE 1 = 1");
    if !filter.states.is_empty() {
        query.push(" AND state IN (");
        let mut states = query.separated(", ");
        for state in &filter.states {
            states.push_bind(state.as_str());
        }
        query.push(")");
    }
    if let Some(agent) = &filter.agent {
        query.push(" AND agent = ").push_bind(agent.as_str().to_ascii_lowercase());
    }
    if !filter.runs.is_empty() {
        query.push(" AND run IN (");
        let mut runs = query.separated(", ");
        for run in &filter.runs {
            runs.push_bind(run.as_str());
        }
        query.push(")");
    }
    if let Some(after) = &filter.after {
        query.push(" AND (created_ms, id) > (").push_bind(big(after.created_ms));
        query.push(", ").push_bind(after.id.as_str()).push(")");
    }
    let limit = if filter.limit == 0 { LIST_ITEMS_MAX } else { filter.limit.min(LIST_ITEMS_MAX) };
    query.push(" ORDER BY created_ms, id LIMIT ").push_bind(i64::from(limit));
    let rows =
        query.build().fetch_all(&store.readers).await.map_err(|error| store.fault(&error))?;
    rows.iter().map(|row| read(store, row)).collect()
}

pub(super) async fn unsettled(store: &Store) -> Result<Vec<Card>, StoreFault> {
    let rows = sqlx::query(
        "SELECT version, state, doc FROM cards WHERE state IN ('parked', 'approved', 'executing')",
    )
    .fetch_all(&store.readers)
    .await
    .map_err(|error| store.fault(&error))?;
    rows.iter().map(|row| read(store, row)).collect()
}

pub(super) async fn standing(store: &Store) -> Result<Vec<Standing>, StoreFault> {
    let rows = sqlx::query(
        "SELECT id, version, state FROM cards WHERE state IN ('parked', 'approved', 'executing')",
    )
    .fetch_all(&store.readers)
    .await
    .map_err(|error| store.fault(&error))?;
    let stand = |row: &SqliteRow| {
        let id: String = row.try_get("id").map_err(|error| store.fault(&error))?;
        let version: i64 = row.try_get("version").map_err(|error| store.fault(&error))?;
        let state: &str = row.try_get("state").map_err(|error| store.fault(&error))?;
        let state = State::parse(state)
            .ok_or_else(|| store.corrupt(format!("card `{id}` has the state `{state}`")))?;
        Ok(Standing { id, version: u64::try_from(version).unwrap_or_default(), state })
    };
    rows.iter().map(stand).collect()
}

pub(super) async fn prune(store: &Store, now_ms: u64, cards_ms: u64) -> Result<u64, StoreFault> {
    let results = sqlx::query(
        "DELETE FROM results WHERE card_id IN \
         (SELECT card_id FROM results WHERE expires_ms <= ? LIMIT ?)",
    )
    .bind(big(now_ms))
    .bind(PRUNE_ROWS_MAX)
    .execute(&store.writer)
    .await
    .map_err(|error| store.fault(&error))?;
    let cards = sqlx::query(
        "DELETE FROM cards WHERE id IN (SELECT id FROM cards \
         WHERE state NOT IN ('parked', 'approved', 'executing') AND updated_ms < ? LIMIT ?)",
    )
    .bind(big(cards_ms))
    .bind(PRUNE_ROWS_MAX)
    .execute(&store.writer)
    .await
    .map_err(|error| store.fault(&error))?;
    Ok(results.rows_affected() + cards.rows_affected())
}

fn read(store: &Store, row: &SqliteRow) -> Result<Card, StoreFault> {
    let columns = (|| {
        Ok((
            row.try_get::<i64, _>("version")?,
            row.try_get::<&str, _>("state")?,
            row.try_get::<&str, _>("doc")?,
        ))
    })();
    let (version, state, record) = columns.map_err(|error: sqlx::Error| store.fault(&error))?;
    let card = Card::read(record).map_err(|error| store.damaged(&error))?;
    if big(card.version()) != version || State::parse(state) != Some(card.state()) {
        return Err(
            store.corrupt(format!("the row of card `{}` does not match its record", card.id()))
        );
    }
    Ok(card)
}

fn read_kept(store: &Store, row: &SqliteRow) -> Result<Kept, StoreFault> {
    let columns = (|| {
        Ok((
            row.try_get::<&str, _>("kind")?,
            row.try_get::<&[u8], _>("bytes")?,
            row.try_get::<i64, _>("expires_ms")?,
            row.try_get::<i64, _>("delivered")?,
        ))
    })();
    let (kind, bytes, expires_ms, delivered) =
        columns.map_err(|error: sqlx::Error| store.fault(&error))?;
    let Some(kind) = KeptKind::parse(kind) else {
        return Err(store.corrupt(format!("`{kind}` is no kind of answer")));
    };
    Ok(Kept {
        kind,
        bytes: Bytes::copy_from_slice(bytes),
        expires_ms: u64::try_from(expires_ms).unwrap_or_default(),
        delivered: delivered != 0,
    })
}

// BIGINT is signed; a wall time beyond it is the far future either way.
fn big(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
