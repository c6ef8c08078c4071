//! A card as the API shows it.

use super::openapi::state_word;
use crate::audit::time::rfc3339;
use crate::identity::Admin;
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::definition::StandingMost;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::{Card, Deadline, Decision, Outcome, Standing, State, Verdict};
use portcullis_policy::name::AgentName;
use portcullis_policy::secret::Secrets;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::{Duration, UNIX_EPOCH};

/// A call that asks, and what became of it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub(super) struct CardView<'a> {
    id: &'a str,
    /// Grows with every step.
    version: u64,
    #[schemars(schema_with = "state_word")]
    state: &'static str,
    agent: &'a str,
    run: &'a str,
    /// The runs above it that the reader may see, the nearest first.
    parents: Vec<AncestorView<'a>>,
    server: &'a str,
    tool: &'a str,
    /// What the server calls the tool: its claim.
    title: Option<String>,
    /// What the server says of the tool: its claims.
    claims: Option<Claims>,
    /// The arguments byte for byte as they are digested and sent, in a string.
    arguments: Option<&'a str>,
    /// The same as JSON, with secrets hidden where they may not be seen.
    #[serde(rename = "argumentsView")]
    #[schemars(with = "Option<Map<String, Value>>")]
    arguments_view: Option<Box<RawValue>>,
    /// Their length.
    #[serde(rename = "argumentsBytes")]
    arguments_bytes: usize,
    /// True if secrets are hidden: the reader does not decide. Then `arguments` is left out.
    masked: bool,
    /// Of `arguments`; left out with them, since that of a short secret would tell it.
    digest: Option<String>,
    /// What an approver changed.
    edit: Option<EditView<'a>>,
    rule: &'a str,
    generation: u64,
    approvers: Vec<&'static str>,
    /// The one person that decides as `user`.
    user: Option<&'a str>,
    /// How many different approvers must approve.
    needed: u32,
    /// Approvals so far, while more are needed.
    votes: Vec<DecisionView<'a>>,
    /// What one approval may cover: `never`, `arguments` or `tool`.
    standing: &'static str,
    created: String,
    updated: String,
    /// To decide while parked, to use while approved.
    deadline: Option<String>,
    unattended: bool,
    /// True if its caller polls.
    task: bool,
    /// True if the agent's harness does it, and the gateway only answers whether it may.
    external: bool,
    decision: Option<DecisionView<'a>>,
    outcome: Option<&'static str>,
    detail: &'a str,
}

/// How much of a card is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// All of it.
    Whole,
    /// Not what is secret.
    Masked,
}

impl Sight {
    /// What `admin` sees.
    pub(super) fn of(admin: &Admin) -> Self {
        if admin.may_decide() { Self::Whole } else { Self::Masked }
    }
}

#[derive(Serialize, JsonSchema)]
struct AncestorView<'a> {
    agent: &'a str,
    run: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct DecisionView<'a> {
    decision: &'static str,
    reason: Option<&'a str>,
    by: &'a str,
    role: &'static str,
    at: String,
    /// What it lets pass from now on.
    #[schemars(with = "Option<StandingView>")]
    standing: Option<Standing>,
    /// The standing approval that decided.
    grant: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct EditView<'a> {
    /// The arguments as they were asked for.
    asked: Option<&'a str>,
    #[serde(rename = "askedDigest")]
    asked_digest: Option<String>,
    by: &'a str,
}

/// The form of [`Standing`].
#[derive(JsonSchema)]
#[schemars(rename = "Standing")]
struct StandingView {
    /// `arguments` or `tool`.
    #[expect(dead_code, reason = "for its schema")]
    covers: String,
    /// In milliseconds; without it, as long as the run lives.
    #[expect(dead_code, reason = "for its schema")]
    lasts_ms: Option<u64>,
    /// `run` or `agent`.
    #[expect(dead_code, reason = "for its schema")]
    of: String,
}

/// What a server says of its tool (MCP, tool annotations). Nobody vouches for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// It changes nothing.
    pub read_only_hint: Option<bool>,
    /// It may destroy.
    pub destructive_hint: Option<bool>,
    /// Twice is as once.
    pub idempotent_hint: Option<bool>,
    /// It reaches out.
    pub open_world_hint: Option<bool>,
}

#[derive(Deserialize)]
struct Defined {
    annotations: Option<Claims>,
}

impl Claims {
    /// What the server says of that tool, if anything.
    #[must_use]
    pub fn of(offer: &ToolOffer) -> Option<Self> {
        serde_json::from_str::<Defined>(&offer.json).ok()?.annotations
    }

    /// How risky a call is by these claims: 2 if it may destroy, as the protocol has it of a tool
    /// that says nothing, 1 if it only adds, 0 if it only reads.
    #[must_use]
    pub fn risk(&self) -> u8 {
        match (self.read_only_hint, self.destructive_hint) {
            (Some(true), _) => 0,
            (_, Some(false)) => 1,
            (_, Some(true) | None) => 2,
        }
    }
}

impl<'a> CardView<'a> {
    /// Leaves out runs of agents that `admin` may not see.
    pub(super) fn keep_parents(&mut self, admin: &Admin) {
        let seen = |agent: &str| AgentName::new(agent).is_ok_and(|agent| admin.may_see(&agent));
        self.parents.retain(|above| seen(above.agent));
    }

    /// Leaves out what is too long to be sent along.
    pub(super) fn leave_arguments_out(&mut self) {
        self.arguments = None;
        self.arguments_view = None;
        if let Some(edit) = &mut self.edit {
            edit.asked = None;
        }
    }

    /// A card as it is seen.
    pub(super) fn of(
        card: &'a Card,
        (title, claims): (Option<String>, Option<Claims>),
        sight: Sight,
    ) -> Self {
        let asked = card.asked();
        let masked = !asked.secret.is_empty() && sight == Sight::Masked;
        let arguments = (!masked).then_some(card.arguments());
        let shown = match masked {
            true => Secrets::new(&asked.secret).mask(card.arguments(), JsonLimits::default()).ok(),
            false => Some(card.arguments().to_owned()),
        };
        Self {
            id: card.id(),
            version: card.version(),
            state: card.state().as_str(),
            agent: asked.agent.as_str(),
            run: &asked.run,
            parents: asked
                .above
                .iter()
                .map(|above| AncestorView { agent: above.agent.as_str(), run: &above.run })
                .collect(),
            server: asked.server.as_str(),
            tool: asked.tool.as_str(),
            title,
            claims,
            arguments,
            arguments_view: shown.and_then(|text| RawValue::from_string(text).ok()),
            arguments_bytes: card.arguments().len(),
            masked,
            digest: (!masked).then(|| card.digest().to_string()),
            edit: card.edit().map(|edit| EditView {
                asked: (!masked).then_some(&asked.arguments),
                asked_digest: (!masked).then(|| asked.digest.to_string()),
                by: &edit.by.name,
            }),
            rule: &asked.rule,
            generation: asked.generation,
            approvers: asked.approvers.iter().map(|approver| approver.as_str()).collect(),
            user: asked.user.as_deref(),
            needed: asked.count,
            votes: card.votes().iter().map(said).collect(),
            standing: match asked.standing {
                StandingMost::Never => "never",
                StandingMost::Arguments => "arguments",
                StandingMost::Tool => "tool",
            },
            created: wall(card.created_ms()),
            updated: wall(card.updated_ms()),
            deadline: card.deadline().map(ends),
            unattended: card.unattended(),
            task: card.is_task(),
            external: asked.external.is_some(),
            decision: card.decision().map(said),
            outcome: outcome(card),
            detail: card.detail(),
        }
    }
}

fn said(decision: &Decision) -> DecisionView<'_> {
    DecisionView {
        decision: match decision.verdict {
            Verdict::Approve => "approve",
            Verdict::Deny { .. } => "deny",
        },
        reason: match &decision.verdict {
            Verdict::Deny { reason } if !reason.is_empty() => Some(reason),
            Verdict::Approve | Verdict::Deny { .. } => None,
        },
        by: &decision.by.name,
        role: decision.by.role.as_str(),
        at: wall(decision.at_ms),
        standing: decision.standing,
        grant: decision.grant.as_deref(),
    }
}

fn outcome(card: &Card) -> Option<&'static str> {
    if card.state() != State::Done {
        return None;
    }
    card.outcome().map(|outcome| match outcome {
        Outcome::Ok => "ok",
        Outcome::ToolError => "tool_error",
        Outcome::RpcError => "rpc_error",
        Outcome::NotSent => "not_sent",
    })
}

fn ends(deadline: Deadline) -> String {
    wall(deadline.written_ms.saturating_add(deadline.left_ms))
}

fn wall(ms: u64) -> String {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).map(rfc3339).unwrap_or_default()
}
