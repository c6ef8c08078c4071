use super::*;
use crate::parked::tests::Folder;
use bytes::Bytes;
use portcullis_policy::canonical::Digest;
use portcullis_policy::definition::{Approver, OnCallerGone};
use portcullis_policy::ledger::{Asked, Card, Decider, Event, State, Verdict, step};
use portcullis_policy::name::{AgentName, ServerName, ToolName};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

const NOW: u64 = 1_800_000_000_000;

fn card(id: &str, number: u32) -> Card {
    let arguments = format!(r#"{{"id":{number}}}"#);
    let asked = Asked {
        agent: AgentName::new("Support").unwrap(),
        run: "run_a".to_owned(),
        server: ServerName::new("crm").unwrap(),
        tool: ToolName::new("refund").unwrap(),
        exposed: "crm__refund".to_owned(),
        digest: Digest::of(arguments.as_bytes()),
        arguments,
        secret: Vec::new(),
        definition: Digest::of(b"definition"),
        generation: 1,
        rule: "support.agents.json:12".to_owned(),
        approvers: vec![Approver::Human],
        on_caller_gone: OnCallerGone::Keep,
        decide_within_ms: 600_000,
        use_within_ms: 600_000,
    };
    Card::new(id.to_owned(), asked, NOW + u64::from(number))
}

fn denied(card: &Card) -> Change {
    let by = Decider { name: "ann".to_owned(), role: Approver::Human };
    let verdict = Verdict::Deny { reason: "no".to_owned() };
    let (card, _) = step(card, Event::Decide { verdict, by }, NOW).unwrap();
    let kept = Kept {
        kind: KeptKind::Text,
        bytes: Bytes::from_static(b"denied"),
        expires_ms: NOW + 10,
        delivered: false,
    };
    Change { card, kept: Some(kept), decided: true, silent: false }
}

async fn add(store: &Store, card: &Card) -> Inserted {
    store.insert(card, Some(&run("run_a"))).await.unwrap()
}

fn run(id: &str) -> RunRow {
    RunRow {
        id: id.to_owned(),
        agent: AgentName::new("Support").unwrap(),
        parent: None,
        unnamed: true,
        token: None,
        narrow: None,
        unattended: false,
        created_ms: NOW,
        created_by: "support".to_owned(),
        deadline: None,
        ended: None,
    }
}

async fn raw(folder: &Folder, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn open(folder: &Folder) -> Store {
    Store::open(&StoreSettings::new(folder.file())).await.unwrap()
}

#[tokio::test]
async fn an_identical_call_has_one_live_card() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let first = card("apr_a", 1);
    assert_eq!(add(&store, &first).await, Inserted::New);
    assert_eq!(add(&store, &card("apr_b", 1)).await, Inserted::Duplicate);
    assert_eq!(store.live(first.asked().key()).await.unwrap().unwrap(), first);
    assert_eq!(store.commit(&[denied(&first)]).await.unwrap(), [true]);
    assert_eq!(store.live(first.asked().key()).await.unwrap(), None);
    assert_eq!(add(&store, &card("apr_b", 1)).await, Inserted::New);
}

#[tokio::test]
async fn a_step_counts_only_on_the_version_it_was_made_from() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let first = card("apr_a", 1);
    add(&store, &first).await;
    let change = denied(&first);
    let again = [change.clone(), change.clone()];
    assert_eq!(store.commit(&again).await.unwrap(), [true, false]);
    assert_eq!(store.commit(std::slice::from_ref(&change)).await.unwrap(), [false]);
    assert_eq!(store.card("apr_a").await.unwrap().unwrap(), change.card);
}

#[tokio::test]
async fn a_kept_answer_ends_with_its_time_or_its_delivery() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let first = card("apr_a", 1);
    let key = first.asked().key();
    add(&store, &first).await;
    store.commit(&[denied(&first)]).await.unwrap();
    assert!(store.undelivered(key, NOW).await.unwrap().is_some());
    assert!(store.undelivered(key, NOW + 10).await.unwrap().is_none());
    store.deliver("apr_a").await.unwrap();
    assert!(store.undelivered(key, NOW).await.unwrap().is_none());
    assert!(store.kept("apr_a").await.unwrap().unwrap().delivered);
    let old = Retention { now_ms: NOW + 10, cards_before_ms: 0, events_before_ms: 0 };
    assert_eq!(store.prune(&old).await.unwrap(), Pruned { results: 1, ..Pruned::default() });
    let old = Retention { cards_before_ms: NOW + 1, ..old };
    assert_eq!(store.prune(&old).await.unwrap(), Pruned { cards: 1, ..Pruned::default() });
    assert_eq!(store.card("apr_a").await.unwrap(), None);
}

#[tokio::test]
async fn lists_are_filtered_and_go_on_where_they_ended() {
    let folder = Folder::new();
    let store = open(&folder).await;
    for (id, number) in [("apr_ax", 1), ("apr_ay", 2), ("apr_bz", 3)] {
        add(&store, &card(id, number)).await;
    }
    store.commit(&[denied(&card("apr_ay", 2))]).await.unwrap();
    let ids = |cards: Vec<Card>| cards.iter().map(|card| card.id().to_owned()).collect::<Vec<_>>();
    let mut filter = Filter { states: vec![State::Parked], limit: 1, ..Filter::default() };
    filter.agent = Some(AgentName::new("SUPPORT").unwrap());
    filter.runs = vec!["run_a".to_owned()];
    assert_eq!(ids(store.list(&filter).await.unwrap()), ["apr_ax"]);
    filter.after = Some(Cursor { created_ms: NOW + 1, id: "apr_ax".to_owned() });
    assert_eq!(ids(store.list(&filter).await.unwrap()), ["apr_bz"]);
    filter.runs = vec!["run_b".to_owned()];
    assert!(store.list(&filter).await.unwrap().is_empty());
    assert_eq!(ids(store.unsettled().await.unwrap()), ["apr_ax", "apr_bz"]);

    assert_eq!(store.named("a").await.unwrap(), Named::Several);
    assert_eq!(store.named("apr_c").await.unwrap(), Named::None);
    assert!(matches!(store.named("bz").await.unwrap(), Named::One(card) if card.id() == "apr_bz"));
}

#[tokio::test]
async fn a_file_is_of_one_gateway_at_a_time_and_private() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let second = Store::open(&StoreSettings::new(folder.file())).await.unwrap_err();
    assert!(matches!(second, StoreFault::InUse { .. }));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for file in ["state.db", "state.db-wal"] {
            let mode = folder.file().with_file_name(file).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}");
        }
    }
    drop(store);
    open(&folder).await;
}

#[tokio::test]
async fn a_newer_a_damaged_and_a_missing_file_are_refused_and_told_apart() {
    let folder = Folder::new();
    let store = open(&folder).await;
    add(&store, &card("apr_a", 1)).await;
    raw(&folder, "UPDATE cards SET doc = replace(doc, '7', '8'), state = 'approved'").await;
    assert!(matches!(store.card("apr_a").await, Err(StoreFault::Corrupt { .. })));
    let later = "INSERT INTO _sqlx_migrations VALUES (99990101000000, 'later', 0, 1, x'00', 0)";
    raw(&folder, later).await;
    drop(store);
    let newer = Store::open(&StoreSettings::new(folder.file())).await.unwrap_err();
    assert!(matches!(newer, StoreFault::NewerSchema { found: 99_990_101_000_000, .. }), "{newer}");

    let damaged = Folder::new();
    std::fs::write(damaged.file(), vec![b'x'; 8_192]).unwrap();
    let fault = Store::open(&StoreSettings::new(damaged.file())).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Corrupt { .. }), "{fault}");

    let missing = folder.file().with_file_name("none").join("state.db");
    let fault = Store::open(&StoreSettings::new(missing)).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault}");
}

#[test]
fn faults_say_what_to_do() {
    let (spot, cause) = (Spot::File("state.db".to_owned()), "disk I/O error".to_owned());
    let faults = [
        StoreFault::Unavailable { spot: spot.clone(), cause: cause.clone() },
        StoreFault::Corrupt { spot: spot.clone(), cause },
        StoreFault::NewerSchema { spot: spot.clone(), found: 2, known: 1 },
        StoreFault::InUse { spot },
    ];
    let expected = "\
the state file `state.db` cannot be used: disk I/O error; check that its folder exists, can be written and has free space
the state file `state.db` is damaged: disk I/O error; stop the gateway and restore the file from a backup, or move it away to start without parked calls
the state file `state.db` has schema 2, and this version of the gateway knows schemas up to 1; start the version that wrote it or a newer one
the state file `state.db` is in use by another gateway; stop that one, or give this one another state folder";
    assert_eq!(faults.map(|fault| fault.to_string()).join("\n"), expected);
}
