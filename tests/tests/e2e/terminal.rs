//! The command line in a real terminal (tmux): seen and typed as a person does.

use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::house::{Folder, House, binary};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// A terminal of 110 columns, on a server of its own.
struct Terminal {
    socket: String,
    scratch: Folder,
}

impl Terminal {
    async fn open(house: &House) -> Self {
        let scratch = Folder::new();
        let socket = scratch.path().join("tmux").display().to_string();
        let terminal = Self { socket, scratch };
        let folder = house.folder.path();
        let state = folder.join("state").display().to_string();
        let path = binary().parent().unwrap().display().to_string();
        terminal
            .tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "50", "sh"])
            .await;
        // Typed, since tmux gives its shell a PATH of its own.
        let settings = [
            format!("export PATH={path}:$PATH PORTCULLIS_STATE_DIR={state}"),
            format!("export PORTCULLIS_ADMIN_URL={}; clear; echo ready", house.admin),
        ];
        for line in settings {
            terminal.types(&line).await;
        }
        terminal.shows("ready\n#").await;
        terminal
    }

    async fn tmux(&self, words: &[&str]) -> Output {
        let mut run = Command::new("tmux");
        run.args(["-S", &self.socket]).args(words).stdin(Stdio::null());
        let output =
            run.current_dir(self.scratch.path()).output().await.expect("tmux is installed");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    async fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]).await;
        self.tmux(&["send-keys", "Enter"]).await;
    }

    async fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p", "-J", "-S", "-200"]).await;
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The screen, once `said` is on it.
    async fn shows(&self, said: &str) -> String {
        for _ in 0..200 {
            let screen = self.screen().await;
            if screen.contains(said) {
                return screen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("`{said}` does not come:\n{}", self.screen().await);
    }

    async fn close(self) {
        self.tmux(&["kill-server"]).await;
    }
}

const SCHEMA: &str = r#"[{"name":"refund","inputSchema":{"type":"object","properties":{"amount":{"type":"integer","maximum":500}},"required":["amount"]}}]"#;

async fn open(count: u32) -> (House, Upstream, Agent) {
    let upstream = Upstream::start(Offer { tools: SCHEMA.to_owned(), ..Offer::tools(&[]) }).await;
    let policy = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools: [{{server: crm, allow: [refund]}}]\n  approval: {{approvers: {{anyOf: [human], count: {count}}}, standing: tool}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    );
    let house = House::start(&policy, "").await;
    let agent = house.agent("support", Speaks::Modern).await;
    (house, upstream, agent)
}

fn refund(agent: &Agent, arguments: Value) -> tokio::task::JoinHandle<String> {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call("crm__refund", arguments).await.unwrap().says() })
}

fn short(card: &Value) -> String {
    card["id"].as_str().unwrap()[..10].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_watches_shows_approves_with_an_edit_and_denies() {
    let (house, upstream, agent) = open(1).await;
    let terminal = Terminal::open(&house).await;
    terminal.types("portcullis approvals --watch").await;
    terminal.shows("nothing waits for a decision").await;
    let call = refund(&agent, json!({"amount": 70, "note": "a\u{202e}b\u{1b}[2J"}));
    let screen = terminal.shows("parked").await;
    assert!(screen.contains("crm.refund") && screen.contains("\\u{202e}"), "{screen}");
    terminal.tmux(&["send-keys", "C-c"]).await;

    let card = house.parked(1).await.remove(0);
    terminal.types(&format!("clear; portcullis show {}", short(&card))).await;
    let screen = terminal.shows("decides").await;
    assert!(screen.contains("\\u001b[2J") && screen.contains("policy.yaml:5"), "{screen}");

    terminal.scratch.write("less.json", r#"{"amount": 7}"#);
    terminal.types(&format!("clear; portcullis approve {} --args less.json", short(&card))).await;
    let screen = terminal.shows("Type `yes`").await;
    assert!(screen.contains("amount: 7 instead of 70"), "{screen}");
    assert!(screen.contains("note: nothing instead of"), "{screen}");
    terminal.types("no").await;
    terminal.shows("nothing was decided").await;
    assert!(upstream.calls("refund").is_empty());
    terminal
        .types(&format!(
            "clear; portcullis approve {} --args less.json; echo code $?",
            short(&card)
        ))
        .await;
    terminal.shows("Type `yes`").await;
    terminal.types("yes").await;
    terminal.shows("code 0").await;
    assert!(call.await.unwrap().contains("7"));
    assert!(upstream.calls("refund")[0].contains(r#"{"amount":7}"#));

    let call = refund(&agent, json!({"amount": 8}));
    let card = house.parked(1).await.remove(0);
    terminal
        .types(&format!("clear; portcullis deny {} -m 'not this one'; echo code $?", short(&card)))
        .await;
    terminal.shows("code 0").await;
    assert!(call.await.unwrap().contains("not this one"));
    terminal.types(&format!("clear; portcullis approve {} -y; echo code $?", short(&card))).await;
    let screen = terminal.shows("code 1").await;
    assert!(screen.contains("is denied, decided: deny by operator"), "{screen}");
    terminal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_may_cover_more_or_be_one_of_two_and_the_terminal_says_so() {
    let (house, _upstream, agent) = open(1).await;
    let terminal = Terminal::open(&house).await;
    let call = refund(&agent, json!({"amount": 1}));
    let card = house.parked(1).await.remove(0);
    for (flags, said) in
        [("--any-args", "goes with `--for TIME`"), ("--for soon", "`lasts` is `run` or a time")]
    {
        terminal
            .types(&format!("clear; portcullis approve {} -y {flags}; echo code $?", short(&card)))
            .await;
        let screen = terminal.shows("code 1").await;
        assert!(screen.contains(said), "{screen}");
    }
    terminal
        .types(&format!(
            "clear; portcullis approve {} -y --for 10m --any-args; echo code $?",
            short(&card)
        ))
        .await;
    terminal.shows("code 0").await;
    call.await.unwrap();
    assert!(
        refund(&agent, json!({"amount": 2})).await.unwrap().contains("2"),
        "it passes by itself"
    );
    terminal.close().await;

    let (house, _upstream, agent) = open(2).await;
    let terminal = Terminal::open(&house).await;
    let _call = refund(&agent, json!({"amount": 1}));
    let card = house.parked(1).await.remove(0);
    terminal.types(&format!("portcullis approve {} --yes", short(&card))).await;
    let screen = terminal.shows("1 of 2 are there").await;
    assert!(screen.contains("2 different ones"), "{screen}");
    terminal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colour_is_decoration_and_a_pipe_gets_none() {
    let (house, _upstream, agent) = open(1).await;
    let terminal = Terminal::open(&house).await;
    let _call = refund(&agent, json!({"amount": 1}));
    let card = house.parked(1).await.remove(0);
    let coloured = async |words: &str| {
        let end = format!("end-of-{}", words.len());
        terminal.types(&format!("clear; {words}; echo {end}")).await;
        terminal.shows(&format!("\n{end}")).await;
        let output = terminal.tmux(&["capture-pane", "-p", "-e"]).await;
        String::from_utf8_lossy(&output.stdout).contains("\u{1b}[2m")
    };
    let show = format!("portcullis show {}", short(&card));
    assert!(coloured(&show).await);
    assert!(!coloured(&format!("NO_COLOR=1 {show}")).await);
    assert!(!coloured(&format!("TERM=dumb {show}")).await);
    assert!(!coloured(&format!("{show} | cat")).await);
    terminal.types("clear; portcullis login-link").await;
    let screen = terminal.shows("/login?code=").await;
    assert!(screen.contains("opens once, until "), "{screen}");
    terminal.close().await;
}
