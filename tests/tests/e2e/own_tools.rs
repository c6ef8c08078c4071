//! `search`, `describe` and `call`: the same scope by other means.

use portcullis_tests::agent::{Agent, Speaks};
use portcullis_tests::house::{House, house};
use portcullis_tests::upstream::{Offer, Upstream};
use serde_json::{Value, json};

const ERAS: [Speaks; 2] = [Speaks::Modern, Speaks::Legacy("2025-11-25")];

async fn open() -> (House, Upstream) {
    let upstream =
        Upstream::start(Offer::tools(&["get_customer", "refund_order", "secret_export"])).await;
    let policy = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  expose: search\n  tools:\n    - {{server: crm, allow: [get_customer, refund_order, gone], autoApprove: [get_customer]}}\n    - {{server: notion, allow: \"*\"}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"{}\"}}}}\n",
        upstream.url
    );
    (house(&policy).await, upstream)
}

async fn found(agent: &Agent, query: &str) -> Value {
    agent.call("search", json!({"query": query})).await.unwrap().result()["structuredContent"]
        .clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_finds_what_is_in_scope_and_says_what_is_missing() {
    let (house, _upstream) = open().await;
    for speaks in ERAS {
        let agent = house.agent("support", speaks).await;
        assert_eq!(agent.tools().await.unwrap(), ["search", "describe", "call", "approval_status"]);
        let refund = found(&agent, "refund an order").await;
        assert_eq!(refund["matches"][0]["name"], "crm__refund_order", "{refund}");
        assert_eq!(refund["matches"][0]["approval"], "asks");
        assert_eq!(refund["matches"][0]["schemaHash"].as_str().unwrap().len(), 64);
        assert_eq!(found(&agent, "get_customer").await["matches"][0]["name"], "crm__get_customer");
        assert_eq!(found(&agent, "get_customer").await["matches"][0]["approval"], "auto");
        assert_eq!(refund["servers"], json!(["crm", "notion"]));
        let missing = refund["missing"].to_string();
        assert!(missing.contains("not configured") && missing.contains("gone"), "{missing}");
        for query in ["secret export", "secret_export", "crm__secret_export", "SecretExport"] {
            assert!(!found(&agent, query).await.to_string().contains("secret"), "{query}");
        }
        assert_eq!(found(&agent, "weather in Lisbon").await["matches"], json!([]));
        let long = "refund ".repeat(50_000);
        assert!(!found(&agent, &long).await.is_null(), "a long query is cut, not refused");
        assert!(agent.call("search", json!({})).await.unwrap().is_error());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describe_shows_definitions_and_tells_hidden_from_nothing_to_nobody() {
    let (house, _upstream) = open().await;
    for speaks in ERAS {
        let agent = house.agent("support", speaks).await;
        let shown = agent.call("describe", json!({"names": ["crm__refund_order"]})).await.unwrap();
        assert!(shown.says().contains(r#""x-vendor":{"kept":1.0}"#), "{}", shown.text);
        assert_eq!(shown.result()["structuredContent"]["tools"][0]["name"], "crm__refund_order");
        let ask = |name: &'static str| {
            let agent = agent.clone();
            async move {
                let answer =
                    agent.call("describe", json!({"names": ["crm__get_customer", name]})).await;
                answer.unwrap().text.replace(name, "X")
            }
        };
        let hidden = ask("crm__secret_export").await;
        assert_eq!(hidden, ask("crm__nothing").await);
        assert!(
            hidden.contains("Not available to you") && !hidden.contains("inputSchema"),
            "{hidden}"
        );
        for wrong in [json!({}), json!({"names": []}), json!({"names": "x"}), json!({"names": [1]})]
        {
            assert!(agent.call("describe", wrong).await.unwrap().is_error());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_decides_like_a_direct_call() {
    let (house, upstream) = open().await;
    for speaks in ERAS {
        let agent = house.agent("support", speaks.clone()).await;
        let before = upstream.calls("get_customer").len();
        let through = agent
            .raw("1", "tools/call", r#"{"name":"call","arguments":{"name":"crm__get_customer","arguments":{"id":1.0}}}"#)
            .await
            .unwrap();
        let direct = agent
            .raw("1", "tools/call", r#"{"name":"crm__get_customer","arguments":{"id":1.0}}"#)
            .await
            .unwrap();
        assert_eq!(through.text, direct.text);
        assert_eq!(upstream.calls("get_customer").len(), before + 2);
        let call = |name: &'static str| {
            let agent = agent.clone();
            async move { agent.call("call", json!({"name": name, "arguments": {}})).await.unwrap() }
        };
        let (hidden, unknown) = (call("crm__secret_export").await, call("crm__nothing").await);
        assert_eq!(
            hidden.text.replace("crm__secret_export", "X"),
            unknown.text.replace("crm__nothing", "X")
        );
        assert!(
            call("search").await.is_error(),
            "the gateway's own tools are not called through `call`"
        );
        assert!(agent.call("call", json!({"name": 1})).await.unwrap().is_error());
        let held = {
            let agent = agent.clone();
            // Other arguments in each era: a denial is said once more to the identical call.
            let arguments =
                json!({"name": "crm__refund_order", "arguments": {"era": format!("{speaks:?}")}});
            tokio::spawn(async move { agent.call("call", arguments).await.unwrap() })
        };
        let cards = house.parked(1).await;
        house.decide(&cards[0], "deny", Some("not now")).await;
        assert!(held.await.unwrap().says().contains("not now"));
    }
    assert!(
        upstream.calls("secret_export").is_empty() && upstream.calls("refund_order").is_empty()
    );
}
