//! Definitions of tools that an operator accepted, to tell when a server changes one.

use super::events::{self, Told};
use super::fault::Misfit;
use super::row::Row;
use super::statement::Statement;
use super::work::Batch;
use super::{Store, StoreFault};
use portcullis_policy::canonical::Digest;
use portcullis_policy::name::{ServerName, ToolName};

/// An accepted definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinRow {
    /// The server.
    pub server: ServerName,
    /// The tool's registered name.
    pub tool: ToolName,
    /// Digest of the definition.
    pub definition: Digest,
    /// The definition itself.
    pub doc: String,
    /// Wall time.
    pub accepted_ms: u64,
    /// Who accepted it.
    pub accepted_by: String,
}

impl Store {
    /// The accepted definitions of a server's tools, by name.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn pins(&self, server: &ServerName) -> Result<Vec<PinRow>, StoreFault> {
        let statement = Statement::rows(
            "SELECT server, tool, definition, doc, accepted_ms, accepted_by FROM pins \
             WHERE server = $1 ORDER BY tool",
        );
        self.read(&statement.with(server.as_str().to_ascii_lowercase()), parse).await
    }

    /// Accepts a definition in place of the one before.
    ///
    /// # Errors
    /// [`StoreFault`]; then nothing changed as far as the store can tell.
    pub async fn pin(&self, pin: &PinRow) -> Result<(), StoreFault> {
        let server = pin.server.as_str().to_ascii_lowercase();
        let subject = format!("{server}/{}", pin.tool.as_str());
        let upsert = Statement::change(
            "INSERT INTO pins (server, tool, definition, doc, accepted_ms, accepted_by) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (server, tool) DO UPDATE SET \
             definition = excluded.definition, doc = excluded.doc, \
             accepted_ms = excluded.accepted_ms, accepted_by = excluded.accepted_by",
        )
        .with(server)
        .with(pin.tool.as_str())
        .with(pin.definition.to_string())
        .with(pin.doc.as_str())
        .with(pin.accepted_ms)
        .with(pin.accepted_by.as_str());
        let told = events::tell(&Told {
            at_ms: pin.accepted_ms,
            kind: "pin",
            subject: &subject,
            agent: None,
            run: None,
            state: "accepted",
            version: None,
        });
        self.write_one(Batch::of(upsert).telling(told)).await?;
        Ok(())
    }
}

fn parse(row: &mut Row) -> Result<PinRow, Misfit> {
    Ok(PinRow {
        server: ServerName::new(&row.text()?)?,
        tool: ToolName::new(&row.text()?)?,
        definition: row.digest()?,
        doc: row.text()?,
        accepted_ms: row.big()?,
        accepted_by: row.text()?,
    })
}
