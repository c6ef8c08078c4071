//! A decision as its maker writes it, the same in the admin API and in the tool of a parent.

use super::edit::{self, EditFault};
use super::{REASON_CHARS_MAX, Schemas};
use portcullis_policy::canonical::Digest;
use portcullis_policy::ledger::{Card, Covers, STANDING_MS_MAX, Standing, Verdict, Whose, Word};
use portcullis_policy::source::duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::Duration;

/// Members of a decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Decision")]
pub struct Wish {
    /// The card, where several are decided at once.
    pub id: Option<String>,
    /// `approve` or `deny`.
    pub decision: WishedChoice,
    /// Digest of the arguments that were shown; an approval has one.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// Why not, for the agent.
    #[schemars(length(max = 2000))]
    pub reason: Option<String>,
    /// Run with these arguments instead.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub arguments: Option<Box<RawValue>>,
    /// Let more than this call pass.
    pub standing: Option<WishedStanding>,
}

/// What is decided.
#[derive(Debug, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum WishedChoice {
    /// It may run.
    Approve,
    /// It may not.
    Deny,
}

/// Members of `standing`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WishedStanding {
    /// Which calls.
    #[schemars(schema_with = "covers_word")]
    covers: Covers,
    /// `run`, or a time such as `10m`.
    lasts: String,
    /// Whose; the run that asked if it is not said.
    #[schemars(schema_with = "whose_word")]
    of: Option<Whose>,
}

fn covers_word(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["arguments", "tool"]})
}

fn whose_word(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "enum": ["run", "agent", null]})
}

/// Why a decision cannot be understood: a word for programs, and what to do for people.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct WishFault {
    /// The word.
    pub code: &'static str,
    /// The text.
    pub message: String,
}

impl WishFault {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<EditFault> for WishFault {
    fn from(fault: EditFault) -> Self {
        Self::new("arguments", fault.to_string())
    }
}

impl WishedStanding {
    /// Reads `arguments/run`, `tool/10m` and the like: of the run that asked.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (covers, lasts) = text.split_once('/')?;
        let covers = match covers {
            "arguments" => Covers::Arguments,
            "tool" => Covers::Tool,
            _ => return None,
        };
        Some(Self { covers, lasts: lasts.to_owned(), of: None })
    }
}

impl Wish {
    /// Lets what has that digest run once.
    #[must_use]
    pub fn approve(digest: Option<String>) -> Self {
        let decision = WishedChoice::Approve;
        Self { id: None, decision, digest, reason: None, arguments: None, standing: None }
    }

    /// Denies, with a reason for the agent.
    #[must_use]
    pub fn deny(reason: Option<String>) -> Self {
        Self { decision: WishedChoice::Deny, reason, ..Self::approve(None) }
    }

    /// True if it denies.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.decision == WishedChoice::Deny
    }

    /// What it says of `card`. Edited arguments are checked against the tool as it was shown.
    ///
    /// # Errors
    /// [`WishFault`]; nothing but an exact decision is one.
    pub async fn word(self, card: &Card, schemas: &Schemas) -> Result<Word, WishFault> {
        let digest = self.digest.as_deref().map(digest).transpose()?;
        let reason = self.reason.unwrap_or_default();
        if reason.chars().count() > REASON_CHARS_MAX {
            let text = format!("`reason` has at most {REASON_CHARS_MAX} characters");
            return Err(WishFault::new("reason", text));
        }
        let more = self.arguments.is_some() || self.standing.is_some();
        if self.decision == WishedChoice::Deny {
            if more {
                let text = "`arguments` and `standing` go with `approve` only";
                return Err(WishFault::new("body", text));
            }
            return Ok(Word { digest, ..Word::deny(reason) });
        }
        if digest.is_none() {
            let text =
                "an approval names the `digest` of the card, so that it covers what was shown";
            return Err(WishFault::new("digest_missing", text));
        }
        if !reason.is_empty() {
            return Err(WishFault::new("reason", "`reason` goes with `deny` only"));
        }
        let edited = match self.arguments {
            None => None,
            Some(arguments) => Some(edited(card, arguments.get(), schemas).await?),
        };
        let standing = self.standing.as_ref().map(standing).transpose()?;
        Ok(Word { verdict: Verdict::Approve, digest, edited, standing })
    }
}

fn digest(text: &str) -> Result<Digest, WishFault> {
    Digest::parse(text).ok_or_else(|| {
        let text = "`digest` is `sha256:` and 64 lower-case hex digits, as the card shows it";
        WishFault::new("digest", text)
    })
}

async fn edited(card: &Card, arguments: &str, schemas: &Schemas) -> Result<String, WishFault> {
    let tool = schemas.of(card).ok_or(EditFault::NoTool)?;
    Ok(edit::checked(tool, arguments).await?)
}

fn standing(wished: &WishedStanding) -> Result<Standing, WishFault> {
    let lasts_ms = match wished.lasts.as_str() {
        "run" => None,
        text => {
            let within = Duration::from_secs(1)..=Duration::from_millis(STANDING_MS_MAX);
            let lasts = duration(text, within).map_err(|message| {
                let text = format!("`lasts` is `run` or a time such as `10m`: {message}");
                WishFault::new("standing", text)
            })?;
            Some(u64::try_from(lasts.as_millis()).unwrap_or(STANDING_MS_MAX))
        }
    };
    Ok(Standing { covers: wished.covers, lasts_ms, of: wished.of.unwrap_or(Whose::Run) })
}
