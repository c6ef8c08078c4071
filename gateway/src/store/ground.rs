//! Where a test's store is: a folder, or a database of its own. Either goes with the test.

use super::{Place, Store, StoreSettings};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use std::path::PathBuf;

pub(crate) use super::engine::trouble::{Failure, When};

/// Which engine a suite runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A place of a test's own.
#[derive(Debug)]
pub(crate) struct Ground {
    folder: PathBuf,
    name: String,
    kind: Kind,
}

impl Ground {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let name = format!("portcullis_{:x}", u64::from_ne_bytes(random));
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir(&folder).unwrap();
        if kind == Kind::Postgres {
            on_server(format!("CREATE DATABASE {name}"));
        }
        Self { folder, name, kind }
    }

    /// The file of a store on SQLite.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("state.db")
    }

    pub(crate) fn place(&self) -> Place {
        match self.kind {
            Kind::Sqlite => Place::Sqlite(self.file()),
            Kind::Postgres => Place::Postgres(with_database(&server(), &self.name)),
        }
    }

    pub(crate) fn settings(&self) -> StoreSettings {
        StoreSettings::at(self.place())
    }

    /// A connection beside the store's own, of a test on PostgreSQL.
    pub(crate) async fn connect(&self) -> PgConnection {
        let options: PgConnectOptions = server().parse().unwrap();
        PgConnection::connect_with(&options.database(&self.name)).await.unwrap()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        if self.kind == Kind::Postgres {
            on_server(format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

fn server() -> String {
    std::env::var("PORTCULLIS_TEST_POSTGRES").expect(
        "PORTCULLIS_TEST_POSTGRES is not set: it names a PostgreSQL server for tests; run them \
         through `tests/postgres/with COMMAND`, which starts one",
    )
}

fn with_database(url: &str, name: &str) -> String {
    let (server, _) = url.rsplit_once('/').expect("the URL of a server ends in a database");
    format!("{server}/{name}")
}

// In a runtime of its own, since tests begin and end outside of any.
fn on_server(sql: String) {
    let work = async move {
        let mut connection = PgConnection::connect(&server()).await.unwrap();
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    };
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work);
    };
    std::thread::scope(|threads| threads.spawn(run).join().unwrap());
}

impl Store {
    /// Plans one failure of what is written from now on.
    pub(crate) fn plan(&self, when: When, failure: Failure) {
        self.trouble.plan(when, failure);
    }

    /// True once the planned failure happened.
    pub(crate) fn struck(&self) -> bool {
        self.trouble.struck()
    }
}
