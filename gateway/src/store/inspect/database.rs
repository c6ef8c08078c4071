//! A look at a PostgreSQL database.

use super::super::engine::postgres::{GATEWAY_LOCK, connect_options};
use super::super::{Place, StoreFault, StoreSettings, schema};
use super::{COUNT_CARDS, Held, Inspection, Integrity, by_state};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Row as _};

pub(super) async fn inspect(url: &str) -> Result<Inspection, StoreFault> {
    let settings = StoreSettings::at(Place::Postgres(url.to_owned()));
    let spot = settings.place.spot();
    let options = connect_options(url, &settings)?;
    let seen = look(&options.options([("default_transaction_read_only", "on")])).await;
    let seen = seen.map_err(|error| StoreFault::of(&spot, &error))?;
    Ok(Inspection {
        spot,
        schema: seen.schema,
        known: schema::known(),
        integrity: Integrity::NotAsked,
        cards: by_state(&seen.cards),
        bytes: u64::try_from(seen.bytes).unwrap_or_default(),
        journal: seen.journal,
        held: seen.held,
    })
}

struct Seen {
    schema: i64,
    cards: Vec<(String, i64)>,
    bytes: i64,
    journal: String,
    held: Held,
}

async fn look(options: &PgConnectOptions) -> Result<Seen, sqlx::Error> {
    let mut connection = options.connect().await?;
    let schema = schema::postgres(&mut connection).await?;
    let cards = if (1..=schema::known()).contains(&schema) {
        cards(&mut connection).await?
    } else {
        Vec::new()
    };
    let row = sqlx::query(
        "SELECT pg_database_size(current_database()), \
         'fsync ' || current_setting('fsync') || ', PostgreSQL ' || \
         current_setting('server_version')",
    )
    .fetch_one(&mut connection)
    .await?;
    let (bytes, journal) = (row.try_get(0)?, row.try_get(1)?);
    let held = held(&mut connection).await?;
    Ok(Seen { schema, cards, bytes, journal, held })
}

async fn cards(connection: &mut PgConnection) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let rows = sqlx::query(COUNT_CARDS).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

async fn held(connection: &mut PgConnection) -> Result<Held, sqlx::Error> {
    let row = sqlx::query(
        "SELECT 'process ' || pid || COALESCE(' from ' || host(client_addr), '') || ', since ' \
         || to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') \
         FROM pg_locks JOIN pg_stat_activity USING (pid) \
         WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' \
         AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND (classid::bigint << 32 | objid::bigint) = $1 AND objsubid = 1",
    )
    .bind(GATEWAY_LOCK)
    .fetch_optional(connection)
    .await?;
    Ok(match row {
        Some(row) => Held::By(row.try_get(0)?),
        None => Held::Free,
    })
}
