//! The demo notes server: a second upstream, so that a quickstart can show that a scope granted on
//! one server says nothing about the other.

mod book;

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock, Implementation, ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;

use book::Book;

/// The notes server; clones share the same notebook.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    tools: ToolRouter<Self>,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoteId {
    /// Note id, such as n-1.
    id: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewNote {
    /// One line that says what the note is about.
    title: String,
    /// The note itself.
    text: String,
}

#[tool_router(router = tools)]
impl Notes {
    pub(super) fn new() -> Self {
        Self { tools: Self::tools(), book: Arc::new(Mutex::new(Book::new())) }
    }

    #[tool(
        title = "List notes",
        description = "Lists the ids and titles of all notes. One line for each.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    fn list_notes(&self) -> CallToolResult {
        let book = self.book.lock();
        let lines: Vec<_> = book.titles().map(|(id, title)| format!("{id} {title}")).collect();
        success(if lines.is_empty() { "There are no notes.".to_owned() } else { lines.join("\n") })
    }

    #[tool(
        title = "Add a note",
        description = "Adds a note and returns its id.",
        annotations(
            read_only_hint = false,
            destructive_hint = false,
            idempotent_hint = false,
            open_world_hint = false
        )
    )]
    fn add_note(&self, Parameters(NewNote { title, text }): Parameters<NewNote>) -> CallToolResult {
        let id = self.book.lock().add(&title, &text);
        success(format!("Added note {id}."))
    }

    #[tool(
        title = "Read a note",
        description = "Returns the title and the text of one note.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    fn read_note(&self, Parameters(NoteId { id }): Parameters<NoteId>) -> CallToolResult {
        match self.book.lock().read(&id) {
            Some(note) => success(format!("{}\n\n{}", note.title, note.text)),
            None => no_note(&id),
        }
    }

    #[tool(
        title = "Delete a note",
        description = "Deletes a note for good.",
        annotations(
            read_only_hint = false,
            destructive_hint = true,
            idempotent_hint = true,
            open_world_hint = false
        )
    )]
    fn delete_note(&self, Parameters(NoteId { id }): Parameters<NoteId>) -> CallToolResult {
        match self.book.lock().delete(&id) {
            Some(note) => success(format!("Deleted note {id} ({}).", note.title)),
            None => no_note(&id),
        }
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(
                Implementation::new("portcullis-demo-notes", env!("CARGO_PKG_VERSION"))
                    .with_title("Demo notes"),
            )
            .with_instructions("A demo notebook with the notes n-1 and n-2 at start.")
    }
}

fn success(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn no_note(id: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(format!("There is no note {id}."))])
}
