//! The demo servers over a pipe, spoken to in both eras as a client on stdio would.

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

use super::{Crm, Notes, serve_on};

struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    era: Era,
    next: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Era {
    Legacy,
    Modern,
}

impl Client {
    async fn start<S: rmcp::ServerHandler>(server: S, era: Era) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(theirs);
        tokio::spawn(serve_on(server, input, output));
        let (read, write) = tokio::io::split(ours);
        let mut client = Self { lines: BufReader::new(read).lines(), input: write, era, next: 1 };
        if era == Era::Legacy {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"}});
            let answer = client.ask("initialize", params).await;
            assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
            client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        client
    }

    async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        if self.era == Era::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let line = self.lines.next_line().await.unwrap().expect("an answer");
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id);
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        answer["result"].clone()
    }

    async fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    async fn tool_names(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn crm_answers_both_eras() {
    for era in [Era::Legacy, Era::Modern] {
        let mut client = Client::start(Crm::new(), era).await;
        let names = client.tool_names().await;
        let expected =
            ["delete_customer", "get_customer", "refund", "search_customers", "search_orders"];
        assert_eq!(names, expected);
        let found = client.call("get_customer", json!({"id": "c-1001"})).await;
        assert_eq!(found["structuredContent"]["name"], "Ada Keller");
        assert_eq!(found["isError"], false);
        let unknown = client.call("get_customer", json!({"id": "c-9"})).await;
        assert_eq!(unknown["isError"], true);
        assert_eq!(unknown["content"][0]["text"], "There is no customer c-9.");
    }
}

#[tokio::test]
async fn crm_discovers_in_the_modern_era() {
    let mut client = Client::start(Crm::new(), Era::Modern).await;
    let answer = client.ask("server/discover", json!({})).await;
    let versions = answer["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{answer}");
}

#[tokio::test]
async fn crm_searches() {
    let mut client = Client::start(Crm::new(), Era::Legacy).await;
    let found = client.text("search_customers", json!({"query": "PORTO"})).await;
    assert_eq!(
        found,
        "c-1002 Bruno Costa <bruno.costa@example.com>, team plan, Porto, customer since 2023-09-02"
    );
    assert_eq!(
        client.text("search_customers", json!({"query": "zzz"})).await,
        "No customer matches."
    );
    let orders = client.text("search_orders", json!({"customer": "c-1001"})).await;
    assert_eq!(
        orders,
        "o-5001 c-1001 delivered 240.00 EUR: standing desk\no-5002 c-1001 shipped 79.50 EUR: desk lamp"
    );
    let pending = client.text("search_orders", json!({"status": "pending"})).await;
    assert_eq!(pending, "o-5004 c-1003 pending 18.90 EUR: notebook, pack of three");
}

#[tokio::test]
async fn crm_refunds_to_the_cent() {
    let mut client = Client::start(Crm::new(), Era::Modern).await;
    let first = client.text("refund", json!({"order": "o-5001", "amount": 20})).await;
    assert_eq!(first, "Refunded 20.00 EUR on order o-5001. Refunded since start: 20.00 EUR.");
    let second = json!({"order": "o-5004", "amount": 18.9, "reason": "late"});
    assert_eq!(
        client.text("refund", second).await,
        "Refunded 18.90 EUR on order o-5004. Reason: late. Refunded since start: 38.90 EUR."
    );
    let too_much = client.call("refund", json!({"order": "o-5004", "amount": 0.01})).await;
    assert_eq!(too_much["isError"], true);
    assert_eq!(
        too_much["content"][0]["text"],
        "Order o-5004 has 0.00 EUR left to refund; 0.01 EUR is too much. Nothing was refunded."
    );
}

#[tokio::test]
async fn crm_deletes_once() {
    let mut client = Client::start(Crm::new(), Era::Legacy).await;
    let gone = client.text("delete_customer", json!({"id": "c-1002"})).await;
    assert_eq!(gone, "Deleted customer c-1002 (Bruno Costa).");
    let again = client.call("delete_customer", json!({"id": "c-1002"})).await;
    assert_eq!(again["isError"], true);
}

#[tokio::test]
async fn crm_serves_a_resource_and_a_prompt() {
    let mut client = Client::start(Crm::new(), Era::Modern).await;
    let listed = client.ask("resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"][0]["uri"], "crm://customers/c-1001");
    let read = client.ask("resources/read", json!({"uri": "crm://customers/c-1003"})).await;
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("Chiyo Tanaka"), "{text}");
    let missing = client.ask("resources/read", json!({"uri": "crm://customers/c-9"})).await;
    assert_eq!(missing["error"]["code"], -32602);
    let prompt = json!({"name": "refund_reply", "arguments": {"order": "o-5001"}});
    let reply = client.ask("prompts/get", prompt).await;
    let text = reply["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("Ada Keller") && text.contains("o-5001"), "{text}");
}

#[tokio::test]
async fn notes_keep_their_ids() {
    for era in [Era::Legacy, Era::Modern] {
        let mut client = Client::start(Notes::new(), era).await;
        let expected = ["add_note", "delete_note", "list_notes", "read_note"];
        assert_eq!(client.tool_names().await, expected);
        let before = client.text("list_notes", json!({})).await;
        assert_eq!(before, "n-1 Opening hours\nn-2 Refund rule");
        let added = client.text("add_note", json!({"title": "Milk", "text": "Buy milk."})).await;
        assert_eq!(added, "Added note n-3.");
        assert_eq!(client.text("read_note", json!({"id": "n-3"})).await, "Milk\n\nBuy milk.");
        assert_eq!(
            client.text("delete_note", json!({"id": "n-3"})).await,
            "Deleted note n-3 (Milk)."
        );
        let again = client.text("add_note", json!({"title": "Tea", "text": "Buy tea."})).await;
        assert_eq!(again, "Added note n-4.");
        let missing = client.call("read_note", json!({"id": "n-3"})).await;
        assert_eq!(missing["isError"], true);
    }
}
