//! `portcullis token`, `runs`, `start` and `stop`.

use super::*;
use portcullis_tests::house::binary;
use std::process::{Output, Stdio};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_makes_lists_prints_and_revokes() {
    let (house, _upstream) = open_with("").await;
    let made = portcullis(
        &house,
        &["token", "create", "--agent", "support", "--expires", "30d", "--note", "ci job"],
    )
    .await;
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let secret = out(&made);
    let url = house.url("support");
    let agent = Agent::connect(&url, &secret, Speaks::Modern).await.unwrap();
    let listed = out(&portcullis(&house, &["token", "list"]).await);
    assert!(listed.contains("ci job") && listed.contains("agent support"), "{listed}");
    assert!(!listed.contains(&secret));
    let id = listed.split_whitespace().find(|word| word.starts_with("tok_")).unwrap();
    let revoked = portcullis(&house, &["token", "revoke", &id[..10]]).await;
    assert_eq!(revoked.status.code(), Some(0), "{revoked:?}");
    assert_eq!(agent.request("tools/list", json!({})).await.unwrap().status, 401);
    for nothing in ["tok_none", "tok_", ""] {
        let revoked = portcullis(&house, &["token", "revoke", nothing]).await;
        assert_eq!(revoked.status.code(), Some(1), "{nothing}");
    }
    // A helper's headers open a run of their own.
    let headers =
        portcullis(&house, &["token", "print", "--agent", "support", "--ttl", "5m"]).await;
    let headers: Value = serde_json::from_str(&out(&headers)).unwrap();
    let bearer = headers["Authorization"].as_str().unwrap().strip_prefix("Bearer ").unwrap();
    assert!(Agent::connect(&url, bearer, Speaks::Modern).await.is_ok());
    let below =
        ["token", "print", "--agent", "other", "--parent-agent", "support", "--format", "token"];
    let below = out(&portcullis(&house, &below).await);
    assert!(Agent::connect(&house.url("other"), &below, Speaks::Modern).await.is_ok());
    let runs = out(&portcullis(&house, &["runs"]).await);
    let run = runs.lines().find(|line| line.contains("other")).unwrap();
    let run = run.split_whitespace().next().unwrap();
    let stopped = portcullis(&house, &["stop", &run[..12], "-m", "done"]).await;
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    assert!(Agent::connect(&house.url("other"), &below, Speaks::Modern).await.is_err());
    let narrow = r#"{"tools": [{"server": "crm", "allow": ["get"]}]}"#;
    house.folder.write("narrow.json", narrow);
    let started =
        out(&portcullis(&house, &["start", "--agent", "support", "--narrow", "narrow.json"]).await);
    assert!(started.contains("tools  1") && started.contains("pcl_run_"), "{started}");
    for wrong in [vec!["token", "create"], vec!["token", "create", "--admin", "x"], vec!["stop"]] {
        assert_eq!(portcullis(&house, &wrong).await.status.code(), Some(2), "{wrong:?}");
    }
}

async fn portcullis(house: &House, args: &[&str]) -> Output {
    let token = std::fs::read_to_string(house.folder.path().join("state/admin.token")).unwrap();
    let run = Command::new(binary())
        .args(args)
        .args(["--url", &house.admin])
        .env("PORTCULLIS_ADMIN_TOKEN", token.trim())
        .current_dir(house.folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(Duration::from_secs(30), run).await.expect("it should have ended").unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
