use super::*;
use portcullis_policy::canonical::Digest;
use portcullis_policy::name::{AgentName, ServerName};
use serde_json::Value;
use std::io::Write as _;
use std::time::Duration;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("portcullis-audit-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self, number: u32) -> PathBuf {
        self.0.join(format!("audit-{number:06}.jsonl"))
    }

    fn records(&self, number: u32) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file(number)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn agent() -> AgentName {
    AgentName::new("support").unwrap()
}

fn asked<'a>(agent: &'a AgentName, name: &'a str) -> Asked<'a> {
    Asked {
        request: 1,
        agent,
        run: "run_x",
        method: "tools/call",
        name: Some(name),
        server: None,
        tool: None,
        generation: 3,
        arguments: Some(Digest::of(b"{}")),
        card: None,
    }
}

#[test]
fn the_sequence_goes_on_after_a_restart() {
    let folder = Folder::new("restart");
    let agent = agent();
    for _ in 0..3 {
        let audit = Audit::open(&folder.0, Durability::Os).unwrap();
        assert_eq!(audit.torn(), None);
        audit.intent(&Intent { asked: asked(&agent, "crm__refund") }).unwrap();
    }
    let records = folder.records(1);
    let seqs: Vec<u64> = records.iter().map(|r| r["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    let kinds: Vec<&str> = records.iter().map(|r| r["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["start", "intent", "start", "intent", "start", "intent"]);
}

#[test]
fn a_torn_line_is_reported_kept_and_not_counted() {
    let folder = Folder::new("torn");
    drop(Audit::open(&folder.0, Durability::Os).unwrap());
    let mut file = std::fs::OpenOptions::new().append(true).open(folder.file(1)).unwrap();
    file.write_all(b"{\"time\":\"2026").unwrap();
    drop(file);
    let torn = Torn { file: folder.file(1), bytes: 13 };
    let audit = Audit::open(&folder.0, Durability::Os).unwrap();
    assert_eq!(audit.torn(), Some(&torn));
    let start = &folder.records(2)[0];
    assert_eq!((&start["seq"], &start["torn_bytes"]), (&Value::from(2), &Value::from(13)));
    assert!(std::fs::read_to_string(folder.file(1)).unwrap().ends_with("2026"));
    drop(audit);
    assert_eq!(Audit::open(&folder.0, Durability::Os).unwrap().torn(), None);
}

#[test]
fn a_file_with_nothing_but_a_torn_line_does_not_restart_the_sequence() {
    let folder = Folder::new("torn-alone");
    drop(Audit::open(&folder.0, Durability::Os).unwrap());
    std::fs::write(folder.file(2), "{\"ti").unwrap();
    drop(Audit::open(&folder.0, Durability::Os).unwrap());
    assert_eq!(folder.records(3)[0]["seq"], 2);
}

#[test]
fn nothing_from_outside_breaks_a_line() {
    let folder = Folder::new("escape");
    let audit = Audit::open(&folder.0, Durability::Disk).unwrap();
    let name = "x\",\"decision\":\"run\"}\n{\"seq\":99}\u{1b}[2J\u{202e}";
    let agent = agent();
    audit
        .outcome(&Outcome {
            asked: asked(&agent, name),
            decision: Verdict::Refuse,
            reason: Some("unknown"),
            outcome: "refused",
            duration: Duration::from_micros(42),
        })
        .unwrap();
    let text = std::fs::read_to_string(folder.file(1)).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !is_hidden(c)));
    let record = &folder.records(1)[1];
    assert_eq!(record["asked"], name);
    assert_eq!(record["decision"], "refuse");
    assert_eq!(record["reason"], "unknown");
    assert_eq!(record["duration_us"], 42);
}

#[test]
fn a_decision_says_who_and_over_what() {
    let folder = Folder::new("decision");
    let audit = Audit::open(&folder.0, Durability::Os).unwrap();
    let arguments = Digest::of(b"{\"amount\":70}");
    audit
        .decision(&Decided {
            card: "apr_1",
            agent: &agent(),
            run: "run_x",
            server: &ServerName::new("crm").unwrap(),
            tool: "refund",
            arguments,
            choice: Choice::Deny,
            reason: Some("too much"),
            edited: None,
            standing: None,
            grant: None,
            by: "dana",
        })
        .unwrap();
    let record = &folder.records(1)[1];
    assert_eq!(record["kind"], "decision");
    assert_eq!(record["by"], "dana");
    assert_eq!(record["decision"], "deny");
    assert_eq!(record["arguments"], arguments.to_string());
}

#[test]
fn many_writers_leave_whole_lines_without_a_gap() {
    let folder = Folder::new("many");
    let audit = Audit::open(&folder.0, Durability::Os).unwrap();
    let write = || {
        let agent = agent();
        for _ in 0..200 {
            audit.intent(&Intent { asked: asked(&agent, "a") }).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(write);
        }
    });
    let seqs: Vec<u64> = folder.records(1).iter().map(|r| r["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=801).collect::<Vec<u64>>());
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_with_its_path() {
    let folder = Folder::new("unwritable");
    std::fs::write(&folder.0, "a file").unwrap();
    let error = Audit::open(&folder.0.join("audit"), Durability::Os).unwrap_err();
    assert!(matches!(error, AuditError::Open { .. }), "{error}");
    std::fs::remove_file(&folder.0).unwrap();
}

#[test]
fn two_gateways_do_not_share_a_trail() {
    let folder = Folder::new("shared");
    let first = Audit::open(&folder.0, Durability::Os).unwrap();
    let error = Audit::open(&folder.0, Durability::Os).unwrap_err();
    assert!(matches!(error, AuditError::InUse { .. }), "{error}");
    drop(first);
}

#[test]
fn a_foreign_last_line_is_not_continued() {
    let folder = Folder::new("foreign");
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.file(1), "hello\n").unwrap();
    let error = Audit::open(&folder.0, Durability::Os).unwrap_err();
    assert!(matches!(error, AuditError::Foreign { .. }), "{error}");
}

#[test]
fn files_are_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("mode");
    let _audit = Audit::open(&folder.0, Durability::Os).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&folder.file(1))), (0o700, 0o600));
}
