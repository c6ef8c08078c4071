//! A card as the API shows it.

use crate::audit::time::rfc3339;
use crate::identity::Admin;
use portcullis_policy::ledger::{Card, Deadline, Outcome, State, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;
use std::time::{Duration, UNIX_EPOCH};

#[derive(Serialize)]
pub(super) struct CardView<'a> {
    id: &'a str,
    state: &'static str,
    agent: &'a str,
    run: &'a str,
    /// The runs above it, the nearest first.
    parents: Vec<AncestorView<'a>>,
    server: &'a str,
    tool: &'a str,
    /// What the server calls the tool: its claim.
    title: Option<String>,
    /// The arguments byte for byte as they are digested and sent, in a string.
    arguments: Option<&'a str>,
    /// The same as JSON.
    #[serde(rename = "argumentsView")]
    arguments_view: Option<Box<RawValue>>,
    /// True if arguments are left out because they hold secrets and the reader does not decide.
    masked: bool,
    digest: String,
    rule: &'a str,
    generation: u64,
    approvers: Vec<&'static str>,
    created: String,
    updated: String,
    /// To decide while parked, to use while approved.
    deadline: Option<String>,
    unattended: bool,
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
    at: String,
}

impl<'a> CardView<'a> {
    /// What `admin` may see of a card.
    pub(super) fn of(card: &'a Card, title: Option<String>, admin: &Admin) -> Self {
        let asked = card.asked();
        let masked = !asked.secret.is_empty() && !admin.may_decide();
        let arguments = (!masked).then_some(asked.arguments.as_str());
        Self {
            id: card.id(),
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
            arguments,
            arguments_view: arguments.and_then(|text| RawValue::from_string(text.to_owned()).ok()),
            masked,
            digest: asked.digest.to_string(),
            rule: &asked.rule,
            generation: asked.generation,
            approvers: asked.approvers.iter().map(|approver| approver.as_str()).collect(),
            created: wall(card.created_ms()),
            updated: wall(card.updated_ms()),
            deadline: card.deadline().map(ends),
            unattended: card.unattended(),
            decision: card.decision().map(|decision| DecisionView {
                decision: match decision.verdict {
                    Verdict::Approve => "approve",
                    Verdict::Deny { .. } => "deny",
                },
                reason: match &decision.verdict {
                    Verdict::Deny { reason } if !reason.is_empty() => Some(reason),
                    Verdict::Approve | Verdict::Deny { .. } => None,
                },
                by: &decision.by.name,
                at: wall(decision.at_ms),
            }),
            outcome: outcome(card),
            detail: card.detail(),
        }
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
