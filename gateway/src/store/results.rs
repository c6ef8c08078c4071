//! Answers that wait for callers that are not there.

use super::cards;
use super::fault::Misfit;
use super::row::Row;
use super::statement::Statement;
use super::work::Batch;
use super::{Store, StoreFault};
use bytes::Bytes;
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::Card;

/// An answer that waits for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What `bytes` are.
    pub kind: KeptKind,
    /// The answer.
    pub bytes: Bytes,
    /// Wall time of its end.
    pub expires_ms: u64,
    /// True once a caller has it.
    pub delivered: bool,
}

/// What a kept answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptKind {
    /// A JSON-RPC `result` member.
    Result,
    /// The same, of a tool that says it failed.
    ToolError,
    /// A JSON-RPC `error` member.
    RpcError,
    /// A text of the gateway.
    Text,
}

impl KeptKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::ToolError => "tool_error",
            Self::RpcError => "rpc_error",
            Self::Text => "text",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Result, Self::ToolError, Self::RpcError, Self::Text]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl Store {
    /// The latest answer to an identical call that no caller has, if it still counts at
    /// `now_ms` and the call ended after `ended_after_ms`.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn undelivered(
        &self,
        key: Digest,
        (now_ms, ended_after_ms): (u64, u64),
    ) -> Result<Option<(Card, Kept)>, StoreFault> {
        let statement = Statement::rows(
            "SELECT version, state, doc, kind, bytes, expires_ms, delivered \
             FROM cards JOIN results ON results.card = cards.id \
             WHERE key = $1 AND delivered = 0 AND expires_ms > $2 AND updated_ms >= $3 \
             ORDER BY updated_ms DESC LIMIT 1",
        );
        let statement = statement.with(key.hex()).with(now_ms).with(ended_after_ms);
        self.read_one(&statement, |row| Ok((cards::parse(row)?, parse(row)?))).await
    }

    /// The answer kept with a card.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn kept(&self, id: &str) -> Result<Option<Kept>, StoreFault> {
        let statement = Statement::rows(
            "SELECT kind, bytes, expires_ms, delivered FROM results WHERE card = $1",
        );
        self.read_one(&statement.with(id), parse).await
    }

    /// Keeps the answer of a card that no caller surely has until that wall time, not longer.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn keep_until(&self, id: &str, until_ms: u64) -> Result<(), StoreFault> {
        let statement = Statement::change(
            "UPDATE results SET expires_ms = $1 \
             WHERE card = $2 AND delivered = 0 AND expires_ms > $1",
        );
        self.write_one(Batch::of(statement.with(until_ms).with(id))).await?;
        Ok(())
    }

    /// Notes that a caller has the answer of a card.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn deliver(&self, id: &str) -> Result<(), StoreFault> {
        let statement =
            Statement::change("UPDATE results SET delivered = 1 WHERE card = $1 AND delivered = 0");
        self.write_one(Batch::of(statement.with(id))).await?;
        Ok(())
    }
}

/// Keeps an answer with its card.
pub(super) fn keep(card: &str, kept: &Kept) -> Statement {
    Statement::change(
        "INSERT INTO results (card, kind, bytes, expires_ms, delivered) \
         VALUES ($1, $2, $3, $4, $5)",
    )
    .with(card)
    .with(kept.kind.as_str())
    .with(kept.bytes.clone())
    .with(kept.expires_ms)
    .with(kept.delivered)
}

fn parse(row: &mut Row) -> Result<Kept, Misfit> {
    let kind = row.text()?;
    let kind =
        KeptKind::parse(&kind).ok_or_else(|| Misfit(format!("`{kind}` is no kind of answer")))?;
    Ok(Kept { kind, bytes: row.bytes()?, expires_ms: row.big()?, delivered: row.flag()? })
}
