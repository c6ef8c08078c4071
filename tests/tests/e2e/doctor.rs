//! `portcullis doctor` and `portcullis backup` on real folders with real faults.

use portcullis_tests::agent::Speaks;
use portcullis_tests::house::{Folder, House, binary};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// A user that owns nothing; root may do what permissions forbid.
const NOBODY: u32 = 65_534;

fn policy(upstream: &Upstream) -> String {
    format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund]}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    )
}

/// A gateway of its own with one parked call.
async fn running() -> (House, Upstream) {
    let upstream = Upstream::start(Offer::tools(&["refund"])).await;
    let house = House::start(&policy(&upstream), "  approval: {hold: {default: 1s}}\n").await;
    let agent = house.agent("support", Speaks::Modern).await;
    agent.call("crm__refund", json!({"amount": 70})).await.unwrap();
    house.parked(1).await;
    (house, upstream)
}

/// Stops a gateway and waits until its store is closed, which nobody else waits for.
async fn stopped(house: House) -> Folder {
    let folder = house.stop().await;
    let store = folder.path().join("state/state.db");
    let closed = || {
        let lock = fs::File::open(store.with_extension("db.lock")).unwrap();
        lock.try_lock().is_ok() && !store.with_extension("db-wal").exists()
    };
    for _ in 0..200 {
        if closed() {
            return folder;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the store was not closed")
}

fn portcullis(folder: &Folder, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(args).current_dir(folder.path()).env_clear().output().unwrap()
}

fn doctor(folder: &Folder) -> (i32, Value) {
    examined(&portcullis(folder, &["doctor", "--config", "gateway.yaml", "--json"]))
}

fn examined(output: &Output) -> (i32, Value) {
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), report)
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{report}"))
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_gateway_is_healthy_running_or_not() {
    let (house, _upstream) = running().await;
    let (code, report) = doctor(&house.folder);
    assert_eq!((code, &report["failed"]), (0, &json!(0)), "{report}");
    let found = check(&report, "store")["found"].as_str().unwrap();
    assert!(found.contains("1 parked") && found.contains("in use by"), "{found}");
    assert_eq!(check(&report, "key file")["verdict"], "ok");
    let folder = stopped(house).await;
    let (code, report) = doctor(&folder);
    assert_eq!((code, &report["failed"]), (0, &json!(0)), "{report}");
    let found = check(&report, "store")["found"].as_str().unwrap();
    assert!(found.contains("1 parked") && found.contains("no gateway has it"), "{found}");
    let audit = check(&report, "audit")["found"].as_str().unwrap();
    assert!(audit.contains("the last record is"), "{audit}");
    let text = portcullis(&folder, &["doctor", "--config", "gateway.yaml"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("ok       store ") && text.contains("0 failed"), "{text}");
    let again = House::from(folder).await.unwrap();
    again.parked(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doors_of_a_running_gateway_are_knocked_at() {
    let (house, upstream) = running().await;
    let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
    let listen = [
        ("PORTCULLIS_LISTEN_AGENTS", address(&house.agents)),
        ("PORTCULLIS_LISTEN_ADMIN", address(&house.admin)),
        ("PORTCULLIS_LISTEN_OBSERVE", address(&house.observe)),
    ];
    let examine = |folder: &Folder, other: Option<(&str, String)>| {
        let mut command = Command::new(binary());
        command.args(["doctor", "--config", "gateway.yaml", "--json"]).current_dir(folder.path());
        command.env_clear().envs(listen.clone()).envs(other);
        let (code, report) = examined(&command.output().unwrap());
        (code, check(&report, "listener")["found"].clone(), report)
    };
    let (code, found, report) = examine(&house.folder, None);
    assert_eq!((code, found), (0, json!("it accepts connections")), "{report}");
    assert_eq!(check(&report, "health")["found"], "ready");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let elsewhere = ("PORTCULLIS_LISTEN_AGENTS", free.to_string());
    let (code, found, report) = examine(&house.folder, Some(elsewhere));
    assert_eq!(code, 1, "{report}");
    assert!(found.as_str().unwrap().contains("nobody answers here"), "{found}");
    let folder = stopped(house).await;
    let (code, found, _) = examine(&folder, None);
    assert_eq!((code, found), (0, json!("free; no gateway runs")));
    let taken = upstream.url.split('/').nth(2).unwrap().to_owned();
    let (code, found, report) = examine(&folder, Some(("PORTCULLIS_LISTEN_AGENTS", taken)));
    assert_eq!((code, &report["warnings"]), (0, &json!(1)), "{report}");
    assert!(found.as_str().unwrap().contains("something answers here"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_before_its_first_start_is_in_order() {
    let upstream = Upstream::start(Offer::tools(&["refund"])).await;
    let folder = House::folder(&policy(&upstream), "");
    let (code, report) = doctor(&folder);
    assert_eq!((code, &report["failed"]), (0, &json!(0)), "{report}");
    assert!(!folder.path().join("state").exists(), "it makes nothing");
    folder.write("gateway.yaml", "kind: [");
    let (code, report) = doctor(&folder);
    assert_eq!((code, &check(&report, "configuration")["verdict"]), (78, &json!("failed")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_has_its_name_and_its_remedy() {
    let (house, _upstream) = running().await;
    let folder = stopped(house).await;
    let state = folder.path().join("state");
    let (store, key, token) =
        (state.join("state.db"), state.join("keys/seal.json"), state.join("admin.token"));
    let whole = fs::read(&store).unwrap();
    type Fault<'a> = (&'a str, &'a str, &'a str, Box<dyn Fn() + 'a>);
    let faults: Vec<Fault<'_>> = vec![
        (
            "store",
            "this is no database",
            "restore it",
            Box::new(|| fs::write(&store, "x".repeat(9_000)).unwrap()),
        ),
        (
            "store",
            "it is damaged",
            "restore it",
            Box::new(|| {
                let mut broken = whole.clone();
                // Past the first page, where the tables are.
                let len = broken.len();
                broken[4_096 * 2..len].fill(0xa5);
                fs::write(&store, broken).unwrap();
            }),
        ),
        ("store", "the file is gone", "restore it", Box::new(|| fs::remove_file(&store).unwrap())),
        ("store", "others can read", "chmod 600", Box::new(|| mode(&store, 0o644))),
        ("key file", "others can read it", "chmod 600", Box::new(|| mode(&key, 0o644))),
        ("key file", "line 1", "restore it", Box::new(|| fs::write(&key, "{").unwrap())),
        (
            "admin token",
            "others can read it",
            "replace what is in it",
            Box::new(|| mode(&token, 0o640)),
        ),
        (
            "admin token",
            "no regular file",
            "move it away",
            Box::new(|| fs::write(&token, "x").unwrap()),
        ),
        ("state folder", "others can change", "chmod 700", Box::new(|| mode(&state, 0o777))),
        ("audit", "others can change", "chmod 700", Box::new(|| mode(&state.join("audit"), 0o772))),
        (
            "token file",
            "others can add tokens",
            "chmod 600",
            Box::new(|| mode(&folder.path().join("tokens.yaml"), 0o666)),
        ),
    ];
    let copy = Folder::new();
    for (name, found, remedy, harm) in &faults {
        keep(&state, copy.path());
        harm();
        let (code, report) = doctor(&folder);
        let check = check(&report, name);
        assert_eq!((code, &check["verdict"]), (1, &json!("failed")), "{found}: {report}");
        assert!(check["found"].as_str().unwrap().contains(found), "{found}: {check}");
        assert!(check["remedy"].as_str().unwrap().contains(remedy), "{remedy}: {check}");
        fs::remove_dir_all(&state).unwrap();
        keep(copy.path(), &state);
        mode(&folder.path().join("tokens.yaml"), 0o644);
    }
    assert_eq!(doctor(&folder).0, 0);
}

/// Copies a folder with its permissions.
fn keep(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_user_may_not_touch_is_said_so() {
    let (house, _upstream) = running().await;
    let folder = stopped(house).await;
    let state = folder.path().join("state");
    let root = fs::metadata(folder.path()).unwrap();
    let is_root = std::os::unix::fs::MetadataExt::uid(&root) == 0;
    // The program has to be where any user may run it.
    let program = folder.path().join("portcullis");
    fs::copy(binary(), &program).unwrap();
    let examine = || {
        let mut command = Command::new(&program);
        command.args(["doctor", "--config", "gateway.yaml", "--json"]).current_dir(folder.path());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        examined(&command.env_clear().output().unwrap())
    };
    mode(folder.path(), 0o755);
    if is_root {
        for entry in fs::read_dir(&state).unwrap() {
            chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        for path in ["", "keys/seal.json", "audit"] {
            chown(state.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    assert_eq!(examine().0, 0);
    mode(&state, 0o500);
    let (code, report) = examine();
    let check_ = check(&report, "state folder");
    assert_eq!((code, &check_["verdict"]), (1, &json!("failed")), "{report}");
    assert!(check_["found"].as_str().unwrap().contains("cannot be written"), "{check_}");
    mode(&state, 0o700);
    for (name, file) in [("store", "state.db"), ("key file", "keys/seal.json")] {
        mode(&state.join(file), 0o000);
        let (code, report) = examine();
        let check = check(&report, name);
        assert_eq!((code, &check["verdict"]), (1, &json!("failed")), "{name}: {report}");
        assert!(check["found"].as_str().unwrap().contains("permission denied"), "{check}");
        assert!(check["remedy"].as_str().unwrap().contains("the gateway's user"), "{check}");
        mode(&state.join(file), 0o600);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_gateway_starts_another_one() {
    let (house, _upstream) = running().await;
    let folder = &house.folder;
    let back_up = |to: &str| portcullis(folder, &["backup", to, "--state-dir", "state"]);
    let made = back_up("copy.db");
    let said = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success() && said.contains("1 cards"), "{said}");
    let copy = folder.path().join("copy.db");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let again = back_up("copy.db");
    assert_eq!(again.status.code(), Some(2), "nothing is overwritten");
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"));
    assert_eq!(back_up("nowhere/copy.db").status.code(), Some(69));
    let parked = house.parked(1).await;
    let other =
        House::folder(&fs::read_to_string(folder.path().join("policy/policy.yaml")).unwrap(), "");
    other.write("state/x", "");
    fs::copy(&copy, other.path().join("state/state.db")).unwrap();
    let other = House::from(other).await.unwrap();
    assert_eq!(other.parked(1).await[0]["id"], parked[0]["id"]);
    let gone = portcullis(folder, &["backup", "x.db", "--state-dir", "nowhere"]);
    assert_eq!(gone.status.code(), Some(69));
    assert!(!folder.path().join("x.db").exists());
    fs::write(folder.path().join("state2.db"), "x".repeat(9_000)).unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    fs::rename(folder.path().join("state2.db"), folder.path().join("other/state.db")).unwrap();
    let broken = portcullis(folder, &["backup", "y.db", "--state-dir", "other"]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(!folder.path().join("y.db").exists(), "a copy that is not whole is no copy");
}
