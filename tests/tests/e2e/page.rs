//! Approvers at the page, in a real browser. `tests/interop/drivers/page.mjs` acts and looks; what
//! came of it is looked up here, on record and at the upstream.

use portcullis_policy::canonical::Digest;
use portcullis_tests::driver::{program, repository};
use portcullis_tests::house::{Folder, House, token};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

/// Longest time between two lines of the driver.
const CHECK: Duration = Duration::from_secs(180);

const TITLE: &str = "Harmless\"><script>window.ranHere=1</script><img src=x onerror=\"window.ranHere=1\"> \u{202e}gnp.exe\u{200b}\u{7}";
const DESCRIPTION: &str = "Pays back.</blockquote><script>window.ranHere=1</script>\n</textarea><svg onload=\"window.ranHere=1\">\n<a href=\"javascript:window.ranHere=1\">click</a> \u{2066}hidden\u{2069} \0 {{7*7}} <style>*{display:none}</style>";

fn tools() -> String {
    let any = json!({"type": "object"});
    let refund = json!({
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "maximum": 500},
            "order": {"type": "string"},
            "reason": {"type": "string"},
        },
        "required": ["amount"],
    });
    json!([
        {"name": "refund", "description": "Pays an order back.", "inputSchema": refund, "annotations": {"destructiveHint": true}},
        {"name": "look", "description": "Looks an order up.", "inputSchema": any, "annotations": {"readOnlyHint": true}},
        {"name": "sign_in", "description": "Signs in to the shop.", "inputSchema": any, "annotations": {"destructiveHint": false}},
        {"name": "odd", "title": TITLE, "description": DESCRIPTION, "inputSchema": any},
    ])
    .to_string()
}

fn policy(url: &str) -> String {
    let agent = |name: &str, tools: &[&str], approval: &str| {
        let tools: String = tools.iter().map(|tool| format!("    - {{{tool}}}\n")).collect();
        // Said here, so that a caller that leaves teaches nothing about those that stay.
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n{tools}  approval: {{hold: 5m{approval}}}\n---\n"
        )
    };
    let server = |name: &str| {
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: {name}}}\nspec: {{http: {{url: \"{url}\"}}}}\n"
        )
    };
    let crm = "server: crm, allow: [refund, look, odd]";
    let vault = "server: vault, allow: [sign_in], secret: [password]";
    let below = "subAgent: {name: support, description: Pays back., templateRef: {name: support}}";
    [
        agent("support", &[crm, vault], ", standing: tool"),
        agent(
            "other",
            &["server: crm, allow: [refund]"],
            ", approvers: {anyOf: [human], count: 2}",
        ),
        agent("assistant", &["server: crm, allow: [look]", below], ""),
        server("crm"),
        "---\n".to_owned(),
        server("vault"),
    ]
    .concat()
}

fn admin_token(name: &str) -> String {
    format!("pcl_admin_{}", Digest::of(name.as_bytes()).short(43))
}

fn admins() -> String {
    let entry = |(name, role): &(&str, &str)| {
        let hash = Digest::of(admin_token(name).as_bytes());
        format!("      - {{name: {name}, role: {role}, sha256: \"{}\"}}\n", hash.hex())
    };
    let people = [("dana", "approver"), ("erik", "approver"), ("viewer", "viewer")];
    format!("  admin:\n    principals:\n{}", people.iter().map(entry).collect::<String>())
}

async fn open() -> (House, Upstream) {
    let mut offer = Offer::tools(&[]);
    offer.tools = tools();
    let upstream = Upstream::start(offer).await;
    (House::start(&policy(&upstream.url), &admins()).await, upstream)
}

fn settings(house: &House, parts: &[&str]) -> Value {
    let operator = std::fs::read_to_string(house.folder.path().join("state/admin.token")).unwrap();
    json!({
        "admin": house.admin,
        "agents": house.agents,
        "tokens": {
            "operator": operator.trim(),
            "dana": admin_token("dana"),
            "erik": admin_token("erik"),
            "viewer": admin_token("viewer"),
        },
        "agentTokens": {"support": token("support"), "other": token("other")},
        "hostile": {"tool": "crm__odd", "title": TITLE, "description": DESCRIPTION},
        "parts": parts,
        "shots": repository().join("target/page"),
    })
}

/// Lets the driver make the checks of these parts; the gateway may be another one afterwards.
async fn drive(mut house: House, parts: &[&str]) -> House {
    let home = Folder::new();
    let mut driver = Command::new(program("browser"))
        .arg(settings(&house, parts).to_string())
        .env("HOME", home.path())
        .current_dir(repository())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = driver.stdin.take().unwrap();
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    loop {
        let line = tokio::time::timeout(CHECK, lines.next_line()).await;
        let Some(line) = line.unwrap_or_else(|_| panic!("it hangs after {said:#?}")).unwrap()
        else {
            break;
        };
        if line == "restart" {
            house = restarted(house).await;
            input.write_all(b"\n").await.unwrap();
        }
        said.push(line);
    }
    let output = driver.wait_with_output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", said.join("\n"));
    assert!(said.iter().any(|line| line.starts_with("ok: ")), "no check was made");
    house
}

/// The same gateway at the same addresses.
async fn restarted(house: House) -> House {
    let addresses = [&house.agents, &house.admin, &house.observe];
    let addresses = addresses.map(|url| url.trim_start_matches("http://").to_owned());
    let folder = house.stop().await;
    let file = folder.path().join("gateway.yaml");
    let mut config = std::fs::read_to_string(&file).unwrap();
    for address in &addresses {
        config = config.replacen("127.0.0.1:0", address, 1);
    }
    std::fs::write(file, config).unwrap();
    House::from(folder).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvers_decide_at_the_page_and_it_is_so() {
    let (house, upstream) = open().await;
    let house = drive(house, &["decisions", "several", "hands"]).await;
    let ran = upstream.calls("refund");
    assert!(ran.iter().any(|call| call.starts_with(r#"{"amount":40,"#)), "{ran:?}");
    // What was edited or denied never ran as it was asked for.
    for amount in ["5", "300", "400", "4000"] {
        let asked = format!(r#"{{"amount":{amount},"#);
        assert!(!ran.iter().any(|call| call.starts_with(&asked)), "{asked}: {ran:?}");
    }
    assert_eq!(upstream.calls("sign_in"), [r#"{"password":"open sesame","user":"ann"}"#]);
    let audit = house.audit();
    let shown: Vec<_> = audit.iter().filter(|line| line["kind"] == "secrets_shown").collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!((&shown[0]["by"], &shown[0]["tool"]), (&json!("dana"), &json!("sign_in")));
    assert!(!audit.iter().any(|line| line.to_string().contains("sesame")), "a secret on record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_gets_into_the_page_and_texts_stay_texts() {
    let (house, upstream) = open().await;
    let house = drive(house, &["doors", "texts"]).await;
    assert!(upstream.calls("refund").is_empty() && upstream.calls("sign_in").is_empty());
    assert!(!house.audit().iter().any(|line| line["kind"] == "secrets_shown"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_can_be_used_by_anybody_on_anything() {
    let (house, _upstream) = open().await;
    drive(house, &["looks"]).await;
}
