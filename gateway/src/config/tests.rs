//! What an operator writes, and what the gateway understands or answers.

mod store;

use super::*;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A folder of its own that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portcullis-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn gateway(spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: portcullis.dev/v1\nkind: Gateway\nspec:\n{spec}")
}

const FULL: &str = r#"listen: {agents: "127.0.0.1:1", admin: "127.0.0.1:2", observe: "[::1]:3"}
publicUrl: {agents: "https://gateway.example/", admin: "http://admin.example:8080"}
stateDir: state
policy: {dirs: [policy, more], strict: true}
store: {sqlite: cards.db, retain: {cards: 30d, events: 1d}}
seal: {keyFile: /etc/portcullis/seal.json}
runs: {ttl: 30m, ttlMax: 2h}
audit: {dir: /var/log/audit, durability: disk}
auth: {loopbackWithoutToken: true, tokenFile: t.yaml}
admin:
  principals:
    - name: ann
      role: approver
      sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    - name: ci
      role: harness
      agents: [support]
      alsoApprover: true
      sha256: 1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
approval: {unattended: true, hold: {default: 20s, clients: {claude-code: 55s}}, resultKeep: 1h}
limits: {requestBytes: 1MiB, resultBytes: 2GiB, jsonDepth: 32, batch: 8, connections: 5, toolsPerServer: 7}
"#;

#[test]
fn every_key_is_read() {
    let folder = Folder::new("every-key");
    let path = folder.write("gateway.yaml", &gateway(FULL));
    let config = Config::load(Some(&path), &env(&[])).unwrap();
    assert_eq!(config.listen.observe.to_string(), "[::1]:3");
    assert_eq!(config.public_url.agents, "https://gateway.example");
    assert_eq!(config.policy.dirs, [folder.0.join("policy"), folder.0.join("more")]);
    assert_eq!(config.store.place, StorePlace::Sqlite(folder.0.join("state/cards.db")));
    assert_eq!(config.store.retain.cards, Duration::from_secs(30 * 24 * 3_600));
    assert_eq!(config.store.retain.events, Duration::from_secs(24 * 3_600));
    assert_eq!(config.seal.key_file, Path::new("/etc/portcullis/seal.json"));
    let hour = Duration::from_secs(3_600);
    assert_eq!(config.runs, Runs { ttl: hour / 2, ttl_max: hour * 2 });
    assert_eq!(config.audit.dir, Path::new("/var/log/audit"));
    assert_eq!(config.audit.durability, Durability::Disk);
    assert_eq!(config.auth.token_file, folder.0.join("t.yaml"));
    assert!(config.policy.strict && config.auth.loopback_without_token);
    assert_eq!(config.principals[0].role, Role::Approver);
    assert_eq!(config.principals[0].sha256[..2], [0x01, 0x23]);
    let agents = vec![AgentName::new("support").unwrap()];
    assert_eq!(config.principals[1].role, Role::Harness { agents, also_approver: true });
    assert_eq!(config.approval.hold_clients["claude-code"], Duration::from_secs(55));
    assert_eq!(config.limits.result_bytes, 2 << 30);
    assert_eq!(config.warnings, []);
}

#[test]
fn without_a_file_the_defaults_hold() {
    let config = Config::load(None, &env(&[])).unwrap();
    insta::assert_snapshot!(config.effective_yaml());
}

#[test]
fn what_is_printed_loads_again() {
    let folder = Folder::new("again");
    let path = folder.write("gateway.yaml", &gateway(FULL));
    let first = Config::load(Some(&path), &env(&[])).unwrap();
    let printed = first.effective_yaml();
    assert!(!printed.contains("0123456789abcdef"), "hashes of tokens stay out");
    let hash = "ab".repeat(32);
    let (before, after) = printed.split_once("hidden").unwrap();
    let again = format!("{before}{hash}{}", after.replace("hidden", &hash.replace('a', "c")));
    let path = folder.write("again.yaml", &again);
    let second = Config::load(Some(&path), &env(&[])).unwrap();
    assert_eq!(second.effective_yaml(), printed);
}

#[test]
fn the_environment_goes_first() {
    let folder = Folder::new("environment");
    let path = folder.write("gateway.yaml", &gateway("limits: {batch: 2}"));
    let env = env(&[
        ("PORTCULLIS_LISTEN_AGENTS", "127.0.0.1:9"),
        ("PORTCULLIS_PUBLIC_URL_AGENTS", "https://a.example"),
        ("PORTCULLIS_LIMITS_BATCH", "3"),
        ("PORTCULLIS_LIMITS_REQUEST_BYTES", "8MiB"),
        ("PORTCULLIS_AUTH_LOOPBACK_WITHOUT_TOKEN", "true"),
        ("PORTCULLIS_APPROVAL_HOLD_DEFAULT", "9s"),
        ("PORTCULLIS_POLICY_DIRS", "a:/b"),
        ("PORTCULLIS_SERVICE_HOST", "10.0.0.1"),
        ("PORTCULLIS_LISTEN_AGENT", "127.0.0.1:8"),
    ]);
    let config = Config::load(Some(&path), &env).unwrap();
    assert_eq!(config.listen.agents.port(), 9);
    assert_eq!(config.public_url.agents, "https://a.example");
    assert_eq!((config.limits.batch, config.limits.request_bytes), (3, 8 << 20));
    assert!(config.auth.loopback_without_token);
    assert_eq!(config.approval.hold, Duration::from_secs(9));
    assert_eq!(config.policy.dirs, [folder.0.join("a"), PathBuf::from("/b")]);
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["PORTCULLIS_LISTEN_AGENT: warning: `PORTCULLIS_LISTEN_AGENT` is no setting and has no \
          effect; did you mean `PORTCULLIS_LISTEN_AGENTS`? [unknown_variable]"]
    );
}

#[test]
fn messages() {
    let folder = Folder::new("messages");
    let cases = [
        ("misspelt key", gateway("listen: {agent: \"127.0.0.1:1\"}")),
        ("misspelt section", gateway("limit: {}")),
        ("foreign", gateway("policy: {foreign: []}")),
        ("kind", gateway("limits: {}").replace("Gateway", "Agent")),
        ("empty", String::new()),
        ("null", gateway("listen:")),
        ("two documents", format!("{}---\n{}", gateway("limits: {}"), gateway("limits: {}"))),
        ("address", gateway("listen: {agents: localhost}")),
        ("same address", gateway("listen: {agents: \"127.0.0.1:1\", admin: \"127.0.0.1:1\"}")),
        ("every address", gateway("listen: {agents: \"0.0.0.0:7777\"}")),
        ("url", gateway("publicUrl: {agents: gateway.example}")),
        ("url with a path", gateway("publicUrl: {agents: \"https://a/b\"}")),
        ("yes", gateway("policy: {strict: yes}")),
        ("no folder", gateway("policy: {dirs: []}")),
        ("folder as text", gateway("policy: {dirs: policy}")),
        ("durability", gateway("audit: {durability: fsync}")),
        ("size without unit", gateway("limits: {requestBytes: 4096}")),
        ("size in other units", gateway("limits: {requestBytes: 4MB}")),
        ("size out of range", gateway("limits: {requestBytes: 1B}")),
        ("count", gateway("limits: {jsonDepth: 500}")),
        ("time", gateway("approval: {hold: {default: 50}}")),
        ("time of a client", gateway("approval: {hold: {clients: {x: 5h}}}")),
        ("role", gateway(&principal("name: a, role: aprover"))),
        ("harness without agents", gateway(&principal("name: a, role: harness"))),
        ("approver with agents", gateway(&principal("name: a, role: approver, agents: [b]"))),
        (
            "approver also approver",
            gateway(&principal("name: a, role: approver, alsoApprover: true")),
        ),
        (
            "also approver",
            gateway(&principal("name: a, role: harness, agents: [b], alsoApprover: 1")),
        ),
        ("hash", gateway(&principal("name: a, role: viewer")).replace("ab", "x")),
        ("empty name", gateway(&principal("name: \"\", role: viewer"))),
    ];
    let mut page = said(&folder, &cases);
    let bad = env(&[("PORTCULLIS_LIMITS_BATCH", "x"), ("PORTCULLIS_STATE_DIR", "")]);
    writeln!(page, "# environment\n{}", Config::load(None, &bad).unwrap_err()).unwrap();
    let missing = Config::load(Some(Path::new("nowhere/gateway.yaml")), &env(&[])).unwrap_err();
    writeln!(page, "\n# no such file\n{missing}").unwrap();
    insta::assert_snapshot!(page);
}

/// What is answered to each of these files.
fn said(folder: &Folder, cases: &[(&str, String)]) -> String {
    let mut page = String::new();
    for (title, text) in cases {
        let path = folder.write("gateway.yaml", text);
        let said = Config::load(Some(&path), &env(&[])).unwrap_err().to_string();
        writeln!(page, "# {title}\n{}\n", said.replace(&format!("{}/", folder.0.display()), ""))
            .unwrap();
    }
    page
}

fn principal(start: &str) -> String {
    format!("admin: {{principals: [{{{start}, sha256: {}}}]}}", "ab".repeat(32))
}

#[test]
fn tokens_are_hashes_with_an_end() {
    let folder = Folder::new("tokens");
    let hash = "0f".repeat(32);
    let text = format!(
        "agents:\n  - {{agent: support, sha256: {hash}, expires: 2027-01-31T01:00:00.5+01:00}}\n  \
         - {{agent: other, sha256: {}}}\n",
        "f0".repeat(32)
    );
    let path = folder.write("tokens.yaml", &text);
    let read = tokens(&path).unwrap();
    assert_eq!(read[0].agent, AgentName::new("support").unwrap());
    assert_eq!(read[0].sha256, [0x0f; 32]);
    assert_eq!(read[0].expires_ms, Some(1_801_353_600_500));
    assert_eq!(read[1].expires_ms, None);
    let mut page = String::new();
    let cases = [
        ("misspelt", text.replace("expires", "expire")),
        ("hash", text.replace("0f0f", "")),
        ("end", text.replace("T01", " 01")),
        ("twice", text.replace("f0f0", "0f0f").replace(&"f0".repeat(30), &"0f".repeat(30))),
        ("name", text.replace("other", "a/b")),
        ("empty", String::new()),
    ];
    for (title, text) in cases {
        let said = tokens(&folder.write("tokens.yaml", &text)).unwrap_err().to_string();
        writeln!(page, "# {title}\n{}\n", said.replace(&format!("{}/", folder.0.display()), ""))
            .unwrap();
    }
    insta::assert_snapshot!(page);
}

#[test]
fn times_are_those_of_the_calendar() {
    let ms = super::tokens::rfc3339_ms;
    assert_eq!(ms("1970-01-01T00:00:00Z"), Some(0));
    assert_eq!(ms("2000-02-29T23:59:59Z"), Some(951_868_799_000));
    assert_eq!(ms("1969-12-31T23:59:59.999Z"), Some(-1));
    assert_eq!(ms("2026-11-30T12:00:00-05:30"), Some(1_796_059_800_000));
    for bad in [
        "2027-01-31",
        "2027-02-29T00:00:00Z",
        "2027-13-01T00:00:00Z",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:00:00",
        "2027-1-1T00:00:00Z",
        "2027-01-01T00:00:00.Z",
        "",
        "Z",
        "2027-01-01T00:00:00+25:00",
        "2027-01-01T00:00:00ä00:00",
    ] {
        assert_eq!(ms(bad), None, "{bad}");
    }
}

#[test]
fn policy_files_come_in_order_and_alone() {
    let folder = Folder::new("files");
    for name in ["b.yaml", "a.yml", ".hidden.yaml", "note.txt"] {
        folder.write(name, "x: y\n");
    }
    let set = policy_files(std::slice::from_ref(&folder.0)).unwrap();
    let names: Vec<&str> =
        set.files.iter().map(|(name, _)| name.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a.yml", "b.yaml"]);
    assert_eq!(set.warnings, []);
}

#[test]
fn policy_that_others_can_change_is_reported() {
    let (folder, elsewhere) = (Folder::new("others"), Folder::new("elsewhere"));
    let path = folder.write("a.yaml", "x: y\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    symlink(elsewhere.write("out.yaml", "x: y\n"), folder.0.join("b.yaml")).unwrap();
    folder.write("below/c.yaml", "x: y\n");
    let set = policy_files(std::slice::from_ref(&folder.0)).unwrap();
    let mut codes: Vec<&str> = set.warnings.iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["folder_not_read", "outside_folder", "world_writable"]);
}

#[test]
fn a_missing_or_empty_folder_is_an_error() {
    let folder = Folder::new("empty");
    let said = |dir: &Path| {
        let said = policy_files(&[dir.to_owned()]).unwrap_err().to_string();
        said.replace(&folder.0.display().to_string(), "DIR")
    };
    assert_eq!(said(&folder.0), "DIR: the folder has no `*.yaml` file; write a policy into it");
    assert_eq!(
        said(&folder.0.join("no")),
        "DIR/no: no such file or directory; make the folder or name another in `policy.dirs`"
    );
    fs::write(folder.0.join("a.yaml"), [0x61, 0xff]).unwrap();
    assert_eq!(said(&folder.0), "DIR/a.yaml: byte 1 is not UTF-8; save the file as UTF-8");
}

/// The findings of a policy that is shipped, without notes.
fn shipped(files: &[PathBuf]) -> (portcullis_policy::definition::Definition, Vec<String>) {
    let texts: Vec<String> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let sources: Vec<_> = files
        .iter()
        .zip(&texts)
        .map(|(path, text)| portcullis_policy::source::SourceFile {
            name: path.display().to_string().into(),
            text,
        })
        .collect();
    let (set, found) = portcullis_policy::source::read(&sources);
    let serious = found.iter().filter(|finding| finding.severity > Severity::Note);
    (set, serious.map(ToString::to_string).collect())
}

fn shipped_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

#[test]
fn the_quickstart_loads() {
    let path = shipped_folder().join("quickstart/gateway.yaml");
    let config = Config::load(Some(&path), &env(&[])).unwrap();
    assert_eq!(config.warnings, []);
    let set = policy_files(&config.policy.dirs).unwrap();
    let paths: Vec<PathBuf> = set.files.iter().map(|(name, _)| PathBuf::from(&**name)).collect();
    let (definition, found) = shipped(&paths);
    assert_eq!(found, Vec::<String>::new());
    let agents: Vec<&str> = definition.agents.keys().map(AgentName::as_str).collect();
    assert_eq!(agents, ["assistant", "support"]);
    assert_eq!(definition.servers.len(), 2);
}

#[test]
fn every_example_loads() {
    let set = policy_files(&[shipped_folder().join("examples")]).unwrap();
    assert!(set.files.len() >= 2);
    for (name, _) in &set.files {
        let (definition, found) = shipped(&[PathBuf::from(&**name)]);
        assert_eq!(found, Vec::<String>::new(), "{name}");
        assert!(!definition.agents.is_empty() && !definition.servers.is_empty(), "{name}");
    }
}
