//! Which engine holds, where its address comes from, and that no password is ever shown.

use super::*;

const SECRET: &str = "s3cret";
const SEAL: &str = "\nseal: {keyFile: seal.json}";

fn url() -> String {
    format!("postgres://gate:{SECRET}@db.example/cards?sslpassword={SECRET}")
}

fn postgres(config: &Config) -> &PostgresUrl {
    match &config.store.place {
        StorePlace::Postgres(url) => url,
        StorePlace::Sqlite(file) => panic!("{}", file.display()),
    }
}

fn load(folder: &Folder, spec: &str, pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let path = folder.write("gateway.yaml", &gateway(&format!("{spec}{SEAL}")));
    Config::load(Some(&path), &env(pairs))
}

#[test]
fn the_url_comes_from_the_file_a_variable_or_another_file() {
    let folder = Folder::new("postgres");
    let file = folder.write("secrets/url", &format!("{}\n", url()));
    let url = url();
    let literal = format!("store: {{postgres: {{url: \"{url}\"}}}}");
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], UrlSource, usize);
    let cases: [Case<'_>; 4] = [
        (&literal, &[], UrlSource::Literal, 1),
        (
            "store: {postgres: {url: {fromEnv: URL}}}",
            &[("URL", &url)],
            UrlSource::Env("URL".to_owned()),
            0,
        ),
        ("store: {postgres: {url: {fromFile: secrets/url}}}", &[], UrlSource::File(file), 0),
        (
            "store: {sqlite: state.db}",
            &[("PORTCULLIS_STORE_POSTGRES_URL", &url)],
            UrlSource::Env("PORTCULLIS_STORE_POSTGRES_URL".to_owned()),
            0,
        ),
    ];
    for (spec, pairs, from, warnings) in cases {
        let config = load(&folder, spec, pairs).unwrap();
        let read = postgres(&config);
        assert_eq!(read.reveal(), url);
        assert_eq!(read.shown(), "db.example:5432/cards");
        assert_eq!(*read.from(), from);
        let codes: Vec<&str> = config.warnings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, vec!["password_in_file"; warnings], "{spec}");
        let printed = config.effective_yaml();
        assert!(printed.contains("db.example:5432/cards"), "{printed}");
        for shown in [printed, format!("{config:?}"), read.to_string()] {
            assert!(!shown.contains(SECRET) && !shown.contains("gate:"), "{shown}");
        }
    }
}

#[test]
fn the_environment_chooses_the_engine() {
    let folder = Folder::new("engine");
    let postgres = "store: {postgres: {url: \"postgres://db.example/cards\"}}";
    let sqlite = ("PORTCULLIS_STORE_SQLITE", "x.db");
    let config = load(&folder, postgres, &[sqlite]).unwrap();
    assert_eq!(config.store.place, StorePlace::Sqlite(folder.0.join(".portcullis/x.db")));
    let both = [sqlite, ("PORTCULLIS_STORE_POSTGRES_URL", "postgres://db.example/cards")];
    let said = load(&folder, "runs: {}", &both).unwrap_err().to_string();
    assert!(said.contains("has one engine"), "{said}");
}

#[test]
fn an_empty_source_of_the_url_is_named() {
    let folder = Folder::new("empty-url");
    folder.write("url", "\n");
    let file = load(&folder, "store: {postgres: {url: {fromFile: url}}}", &[]).unwrap_err();
    assert!(file.to_string().contains("empty-url"), "{file}");
    let spec = "store: {postgres: {url: {fromEnv: URL}}}";
    let variable = load(&folder, spec, &[("URL", "")]).unwrap_err().to_string();
    assert!(variable.contains("the variable `URL` is empty"), "{variable}");
}

#[test]
fn messages_about_store_and_runs() {
    let folder = Folder::new("store-messages");
    let cases = [
        (
            "two engines",
            gateway("store: {sqlite: a, postgres: {url: \"postgres://a/b\"}}\nseal: {keyFile: k}"),
        ),
        ("postgres, other url", gateway("store: {postgres: {url: \"mysql://u:secret@a\"}}")),
        (
            "postgres, half a password",
            gateway("store: {postgres: {url: \"postgres://u:se/cret@a\"}}"),
        ),
        ("postgres, no user", gateway("store: {postgres: {url: \"postgres://u:secret/a\"}}")),
        ("postgres, no host", gateway("store: {postgres: {url: \"postgres:///a\"}}")),
        ("postgres without url", gateway("store: {postgres: {}}")),
        ("postgres, two sources", gateway("store: {postgres: {url: {fromEnv: A, fromFile: b}}}")),
        ("postgres, other source", gateway("store: {postgres: {url: {fromVault: A}}}")),
        (
            "variable not set",
            gateway("store: {postgres: {url: {fromEnv: NOWHERE}}}\nseal: {keyFile: k}"),
        ),
        (
            "file not there",
            gateway("store: {postgres: {url: {fromFile: nowhere}}}\nseal: {keyFile: k}"),
        ),
        ("postgres without key", gateway("store: {postgres: {url: \"postgres://a/b\"}}")),
        ("cards kept too short", gateway("store: {retain: {cards: 1h}}")),
        ("events kept too long", gateway("store: {retain: {events: 999d}}")),
        ("results", gateway("store: {retain: {results: 1h}}")),
        ("runs", gateway("runs: {ttl: 2h, ttlMax: 1h}")),
        ("runs without end", gateway("runs: {ttlMax: 31d}")),
        ("key file", gateway("seal: {keyfile: x}")),
    ];
    insta::assert_snapshot!(said(&folder, &cases));
}

#[test]
fn no_message_repeats_a_part_of_a_password() {
    let folder = Folder::new("messages-of-urls");
    for bad in [
        "postgres://u:s3cret/x@db/cards",
        "postgres://u:s3cret?x@db/cards",
        "postgres://u:s3cret#x@db/cards",
        "postgres://u:s3cret/cards",
        "mysql://u:s3cret@db/cards",
        "postgres://u:s3cret@/cards",
        "postgres://u:s3cret@db:99999/cards",
        "postgres://u:s3cret ä@db/cards",
    ] {
        let spec = "store: {postgres: {url: {fromEnv: URL}}}";
        let said = load(&folder, spec, &[("URL", bad)]).unwrap_err().to_string();
        assert!(said.contains("`store.postgres.url`") && !said.contains(SECRET), "{said}");
    }
    let socket = [("URL", "postgresql:///cards?host=/run/postgresql")];
    let config = load(&folder, "store: {postgres: {url: {fromEnv: URL}}}", &socket).unwrap();
    assert_eq!(postgres(&config).shown(), "/run/postgresql/cards");
}

#[test]
fn what_is_printed_of_postgres_loads_again() {
    let folder = Folder::new("postgres-again");
    let spec = "store: {postgres: {url: \"postgres://db.example:5433/cards\"}}";
    let first = load(&folder, spec, &[]).unwrap();
    let printed = first.effective_yaml();
    let path = folder.write("again.yaml", &printed);
    assert_eq!(Config::load(Some(&path), &env(&[])).unwrap().effective_yaml(), printed);
    assert_eq!(first.warnings, [], "there is no password in it");
}
