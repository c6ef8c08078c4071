use super::card::{Card, Decision, table};
use super::check::Report;
use super::*;
use clap::CommandFactory as _;
use portcullis_policy::canonical::Digest;
use portcullis_policy::diagnostic::{Diagnostic, Location};
use std::sync::Arc;

fn parse(line: &str) -> Command {
    Cli::try_parse_from(line.split(' ')).unwrap().command.unwrap()
}

fn card() -> Card {
    let arguments = "{\"amount\":70,\"note\":\"x\u{202e}y\u{1b}[31m\"}".to_owned();
    Card {
        id: "apr_7k2aaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        state: "parked".to_owned(),
        agent: "support".to_owned(),
        run: "run_x".to_owned(),
        parents: Vec::new(),
        server: "crm".to_owned(),
        tool: "refund".to_owned(),
        title: Some("Refund\u{200b}".to_owned()),
        digest: Some(Digest::of(arguments.as_bytes()).to_string()),
        arguments: Some(arguments),
        rule: "policy/support.yaml:7:3".to_owned(),
        created: "2026-07-28T09:30:45.000000Z".to_owned(),
        deadline: Some("2026-07-28T09:40:45.000000Z".to_owned()),
        unattended: true,
        approvers: vec!["parent".to_owned(), "human".to_owned()],
        needed: 2,
        votes: Vec::new(),
        edit: None,
        decision: None,
        outcome: None,
        detail: String::new(),
    }
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
    let help = Cli::command().render_long_help().to_string();
    for word in [
        "serve",
        "check",
        "tools",
        "approvals",
        "approve",
        "deny",
        "config",
        "keys",
        "backup",
        "doctor",
        "demo-server",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(help.contains("Exit codes: 0 done") && !help.contains("__child"));
}

#[test]
fn commands_are_read() {
    let Command::Deny(deny) = parse("portcullis deny apr_7 -m no --url http://127.0.0.1:1") else {
        panic!()
    };
    assert_eq!((deny.id.as_str(), deny.message.as_str()), ("apr_7", "no"));
    assert_eq!(deny.door.url, "http://127.0.0.1:1");
    let Command::Check(check) = parse("portcullis check policy --strict --format json") else {
        panic!()
    };
    assert_eq!((check.dir, check.strict), (Some(PathBuf::from("policy")), true));
    let Command::Child { args } = parse("portcullis __child -- npx -y --help") else { panic!() };
    assert_eq!(args, ["npx", "-y", "--help"]);
    let Command::DemoServer { which } = parse("portcullis demo-server notes") else { panic!() };
    assert_eq!(which, Demo::Notes);
    let nothing = Cli::try_parse_from(["portcullis"]).unwrap();
    assert!(nothing.command.is_none(), "it starts the gateway");
    for bad in [
        "portcullis approve",
        "portcullis check a --config b",
        "portcullis tools",
        "portcullis keys",
        "portcullis keys rotate --state-dir a --key-file b",
    ] {
        let code = Cli::try_parse_from(bad.split(' ')).unwrap_err().exit_code();
        assert_eq!(code, 2, "{bad}");
    }
}

#[test]
fn a_card_is_shown_whole_and_nothing_in_it_hides() {
    let card = card();
    assert!(card.is_whole());
    let expected = format!(
        "approval   apr_7k2aaaaaaaaaaaaaaaaaaaaaaa (parked)\n\
         agent      support in run_x\n\
         server     crm\n\
         tool       refund\n\
         title      \"Refund\\u{{200b}}\" (the server's own words)\n\
         arguments  {{\"amount\":70,\"note\":\"x\\u{{202e}}y\\u{{1b}}[31m\"}} (33 bytes)\n\
         digest     {}\n\
         rule       policy/support.yaml:7:3\n\
         decides    parent or human, 2 different ones\n\
         created    2026-07-28T09:30:45.000000Z\n\
         until      2026-07-28T09:40:45.000000Z\n\
         caller     not waiting now; an approval is used by its identical repeat\n",
        card.digest.as_deref().unwrap_or_default()
    );
    assert_eq!(card.shown(), expected);
    let changed = Card { arguments: Some("{}".to_owned()), ..card.clone() };
    assert!(!changed.is_whole());
    assert!(!Card { arguments: None, ..card }.is_whole());
}

#[test]
fn a_settled_card_says_who_and_why() {
    let decision = Decision {
        decision: "deny".to_owned(),
        reason: Some("not\nthis".to_owned()),
        by: "dana".to_owned(),
        at: "2026-07-28T09:31:00.000000Z".to_owned(),
    };
    let card = Card { state: "denied".to_owned(), decision: Some(decision), ..card() };
    assert_eq!(
        card.ended(),
        "approval apr_7k2aaaaaaaaaaaaaaaaaaaaaaa is denied, decided: deny by dana at \
         2026-07-28T09:31:00.000000Z, \"not\\u{a}this\""
    );
}

#[test]
fn the_list_folds_long_arguments_and_says_so() {
    let long = Card { arguments: Some("x".repeat(100)), ..card() };
    let x = "x".repeat(60);
    assert_eq!(
        table(&[long]),
        format!(
            "ID                              STATE   AGENT    CALL{}  UNTIL\n\
             apr_7k2aaaaaaaaaaaaaaaaaaaaaaa  parked  support  crm.refund {x}… (+40 characters)  \
             2026-07-28T09:40:45.000000Z\n",
            " ".repeat(85)
        )
    );
    assert_eq!(table(&[]), "nothing waits for a decision\n");
}

#[test]
fn findings_point_at_their_place() {
    let name: Arc<str> = Arc::from("policy/a.yaml");
    let text = "kind: Agent\n  tols: [x]\nok: \u{202e}y\n".to_owned();
    let at = |line, column| Location::new(&name, line, column);
    let report = Report {
        files: vec![(Arc::clone(&name), text)],
        found: vec![
            Diagnostic::error("unknown_key", &at(2, 3), "`tols` is no key here"),
            Diagnostic::warning("odd", &at(3, 6), "odd \u{1b}[31m"),
            Diagnostic::note("whole", &at(0, 0), "about the file"),
        ],
    };
    assert_eq!(
        report.text(),
        "policy/a.yaml:2:3: error: `tols` is no key here [unknown_key]\n \
         2 |   tols: [x]\n   \
         |   ^\n\
         policy/a.yaml:3:6: warning: odd \\u{1b}[31m [odd]\n \
         3 | ok: \\u{202e}y\n   \
         |             ^\n\
         policy/a.yaml: note: about the file [whole]\n\
         1 error, 1 warning, 1 note in 1 file\n"
    );
    assert_eq!(report.exit(false), Exit::Config);
    let warned = Report { files: Vec::new(), found: vec![report.found[1].clone()] };
    assert_eq!((warned.exit(false), warned.exit(true)), (Exit::Done, Exit::Finding));
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!((&json["errors"], &json["findings"][0]["line"]), (&1.into(), &2.into()));
}

#[test]
fn json_for_a_terminal_is_the_same_json() {
    let text = "[{\"a\":\"x\u{202e}\u{e0041}\",\"n\":9007199254740993}]\n";
    let shown = screen::json(text);
    assert_eq!(shown, "[{\"a\":\"x\\u202e\\udb40\\udc41\",\"n\":9007199254740993}]\n");
    let (one, two): (serde_json::Value, serde_json::Value) =
        (serde_json::from_str(text).unwrap(), serde_json::from_str(&shown).unwrap());
    assert_eq!(one, two);
}

#[tokio::test]
async fn without_a_gateway_the_message_says_how_to_start_one() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let door = Door { url: url.clone(), state_dir: PathBuf::from("/nonexistent") };
    let error = door.open().await.err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("no gateway is running at {url} (start one with `portcullis serve`)")
    );
    assert_eq!(error.exit().code(), 69);
}

#[test]
fn keys_are_rotated_and_listed_without_being_shown() {
    let folder = std::env::temp_dir().join(format!("portcullis-keys-{}", std::process::id()));
    let dir = folder.to_str().unwrap().to_owned();
    let run = |verb: &str| {
        let Command::Keys(command) = parse(&format!("portcullis keys {verb} --state-dir {dir}"))
        else {
            panic!()
        };
        keys::keys(&command)
    };
    assert_eq!(run("list").code(), 69, "there is none yet");
    for _ in 0..3 {
        assert_eq!(run("rotate"), Exit::Done);
    }
    assert_eq!(run("list"), Exit::Done);
    let file = folder.join("keys/seal.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "{}").unwrap();
    assert_eq!((run("list").code(), run("rotate").code()), (78, 78));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(text.matches("\"id\"").count(), 2);
}

#[test]
fn a_rotation_says_what_it_means() {
    let second = std::time::Duration::from_secs(1);
    let then = std::time::UNIX_EPOCH + 86_400 * second;
    let now = then + 7_300 * second;
    let line = |id: &str, created| crate::seal::KeyLine { id: id.to_owned(), created };
    assert_eq!(
        keys::listed(&[line("000000aa", now), line("000000bb", then)], now),
        "000000aa  seals and opens  made 1970-01-02T02:01:40Z, 0 seconds ago\n\
         000000bb  opens            made 1970-01-02T00:00:00Z, 2 hours ago\n"
    );
    let done = crate::seal::Rotation {
        made: "000000cc".to_owned(),
        kept: Some("000000aa".to_owned()),
        dropped: Some("000000bb".to_owned()),
    };
    assert_eq!(
        keys::rotated(&done, Path::new("keys/seal.json")),
        "made     000000cc  it seals from now on\n\
         kept     000000aa  what it sealed is still accepted\n\
         dropped  000000bb  what it sealed is not accepted any more: sessions opened then must be \
         opened again\n\
         written to keys/seal.json; a running gateway takes it up within a second\n"
    );
}
