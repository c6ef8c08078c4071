//! langchain-mcp-adapters: a parked call as a LangChain tool.

use super::Case;
use super::sdks::held;
use super::stage::{Library, Stage, refund};

const LANGCHAIN: Library = Library::new("langchain", "mcp", "python-httpx");

pub(super) fn cases() -> Vec<Case> {
    let hold = "  approval: {hold: 10m}\n";
    vec![
        Case::new("LangChain with progress", 62, held(LANGCHAIN, r#"{"progress": true}"#, "")),
        Case::new("LangChain held by policy", 62, held(LANGCHAIN, "{}", hold)),
        Case::new("LangChain denied", 0, denied()),
    ]
}

/// A denial becomes an error message of the tool, which the model reads.
async fn denied() {
    let stage = Stage::open("", "").await;
    let mut driver = stage.driver(LANGCHAIN, &[]).await;
    let (answer, ()) = tokio::join!(
        refund(&mut driver, "{}"),
        stage.decide("deny", Some("over budget this month"))
    );
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(answer["text"].as_str().unwrap().contains("over budget this month"), "{answer}");
    stage.nothing_ran();
    stage.one_card("denied").await;
}
