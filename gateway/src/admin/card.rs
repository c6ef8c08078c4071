//! A card as the API shows it.

use crate::audit::time::rfc3339;
use crate::identity::Admin;
use portcullis_policy::definition::StandingMost;
use portcullis_policy::ledger::{Card, Deadline, Decision, Outcome, Standing, State, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::{Duration, UNIX_EPOCH};

#[derive(Serialize)]
pub(super) struct CardView<'a> {
    id: &'a str,
    /// Grows with every step.
    version: u64,
    state: &'static str,
    agent: &'a str,
    run: &'a str,
    /// The runs above it, the nearest first.
    parents: Vec<AncestorView<'a>>,
    server: &'a str,
    tool: &'a str,
    /// What the server calls the tool: its claim.
    title: Option<String>,
    /// What the server says of the tool: its claims.
    claims: Option<Claims>,
    /// The arguments byte for byte as they are digested and sent, in a string.
    arguments: Option<&'a str>,
    /// The same as JSON.
    #[serde(rename = "argumentsView")]
    arguments_view: Option<Box<RawValue>>,
    /// True if arguments are left out because they hold secrets and the reader does not decide.
    masked: bool,
    digest: String,
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
    decision: Option<DecisionView<'a>>,
    outcome: Option<&'static str>,
    detail: &'a str,
}

#[derive(Serialize)]
struct AncestorView<'a> {
    agent: &'a str,
    run: &'a str,
}

#[derive(Serialize)]
struct DecisionView<'a> {
    decision: &'static str,
    reason: Option<&'a str>,
    by: &'a str,
    role: &'static str,
    at: String,
    /// What it lets pass from now on.
    standing: Option<Standing>,
    /// The standing approval that decided.
    grant: Option<&'a str>,
}

#[derive(Serialize)]
struct EditView<'a> {
    /// The arguments as they were asked for.
    asked: Option<&'a str>,
    #[serde(rename = "askedDigest")]
    asked_digest: String,
    by: &'a str,
}

/// What a server says of its tool (MCP, tool annotations). Nobody vouches for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl Claims {
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
    /// What `admin` may see of a card.
    pub(super) fn of(
        card: &'a Card,
        (title, claims): (Option<String>, Option<Claims>),
        admin: &Admin,
    ) -> Self {
        let asked = card.asked();
        let masked = !asked.secret.is_empty() && !admin.may_decide();
        let arguments = (!masked).then_some(card.arguments());
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
            arguments_view: arguments.and_then(|text| RawValue::from_string(text.to_owned()).ok()),
            masked,
            digest: card.digest().to_string(),
            edit: card.edit().map(|edit| EditView {
                asked: (!masked).then_some(&asked.arguments),
                asked_digest: asked.digest.to_string(),
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
