//! How cards are decided and how their callers hear of it.

mod decide;
mod events;
mod many;
mod rounds;
mod standing;
mod tasks;

use portcullis_policy::canonical::Digest;
use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::house::{House, token};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

const REFUND: &str = r#"{"name":"refund","description":"Pays back.","inputSchema":{"type":"object","properties":{"amount":{"type":"integer","maximum":100},"note":{"type":"string"}},"required":["amount"]},"annotations":{"destructiveHint":true}}"#;
const LOOK: &str = r#"{"name":"look","description":"Looks.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;

/// `support` and `other` may refund and look, and both ask; `approval` is YAML of each agent.
async fn open(approval: &str) -> (House, Upstream) {
    open_with(approval, "").await
}

async fn open_with(approval: &str, spec: &str) -> (House, Upstream) {
    let mut offer = Offer::tools(&[]);
    offer.tools = format!("[{REFUND},{LOOK}]");
    let upstream = Upstream::start(offer).await;
    let (policy, spec) = (policy(&upstream.url, approval), format!("{}{spec}", admins()));
    (House::start(&policy, &spec).await, upstream)
}

fn policy(url: &str, approval: &str) -> String {
    let agent = |name: &str| {
        format!(
            "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  tools:\n    - {{server: crm, allow: [refund, look]}}\n{approval}---\n"
        )
    };
    format!(
        "{}{}apiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{url}\"}}}}\n",
        agent("support"),
        agent("other")
    )
}

fn admin_token(name: &str) -> String {
    format!("pcl_admin_{}", Digest::of(name.as_bytes()).short(43))
}

/// Lines of a gateway's `spec` with its approvers `anna` and `bert`, and the harness `hugo`.
pub(crate) fn admins() -> String {
    let entry = |name: &str, role: &str| {
        let hash = Digest::of(admin_token(name).as_bytes());
        format!("      - {{name: {name}, {role}, sha256: \"{}\"}}\n", hash.hex())
    };
    format!(
        "  admin:\n    principals:\n{}{}{}",
        entry("anna", "role: approver"),
        entry("bert", "role: approver"),
        entry("hugo", "role: harness, agents: [support]"),
    )
}

fn call(agent: &Agent, arguments: Value) -> JoinHandle<Answer> {
    let agent = agent.clone();
    tokio::spawn(async move { agent.call("crm__refund", arguments).await.unwrap() })
}

fn refund(agent: &Agent, amount: u32) -> JoinHandle<Answer> {
    call(agent, json!({"amount": amount}))
}

/// A decision by `who`, with more members than it needs.
pub(crate) async fn decide(
    house: &House,
    who: &str,
    card: &Value,
    (decision, more): (&str, Value),
) -> (u16, Value) {
    let mut body = json!({"decision": decision, "digest": card["digest"]});
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    let path = format!("/v1/approvals/{}/decision", card["id"].as_str().unwrap());
    house.api_as(&admin_token(who), "POST", &path, Some(body)).await
}

async fn card(house: &House, id: &Value) -> Value {
    house.api("GET", &format!("/v1/approvals/{}", id.as_str().unwrap()), None).await.1
}

/// Waits until nobody waits for the card.
async fn deserted(house: &House, id: &Value) {
    for _ in 0..200 {
        if card(house, id).await["unattended"] == true {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("somebody waits for {id}");
}

/// Waits until the card is in that state.
async fn until(house: &House, id: &Value, state: &str) -> Value {
    for _ in 0..100 {
        let card = card(house, id).await;
        if card["state"] == state {
            return card;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{id} is not {state}: {}", card(house, id).await);
}
