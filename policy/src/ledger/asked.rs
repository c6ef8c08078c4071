//! What a parked call asks for, and the key by which the identical call is known.

use super::spelled;
use super::word::Decider;
use crate::canonical::Digest;
use crate::decide::Request;
use crate::definition::{Approver, OnCallerGone, StandingMost};
use crate::name::{AgentName, ServerName, ToolName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is asked for. Nothing of it ever changes, so what is approved is what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The agent that asks.
    #[serde(with = "spelled")]
    pub agent: AgentName,
    /// Its run.
    pub run: String,
    /// The runs above it, the nearest first: who may decide as its parent, and what an approver
    /// is shown of the delegation.
    pub above: Vec<Ancestor>,
    /// The server.
    #[serde(with = "spelled")]
    pub server: ServerName,
    /// The tool's registered name.
    #[serde(with = "spelled")]
    pub tool: ToolName,
    /// The name the agent used.
    pub exposed: String,
    /// The arguments, canonical form 1.
    pub arguments: String,
    /// Digest of `arguments`.
    #[serde(with = "spelled")]
    pub digest: Digest,
    /// Names of arguments whose values are masked.
    pub secret: Vec<String>,
    /// Digest of the tool's definition as the approver sees it.
    #[serde(with = "spelled")]
    pub definition: Digest,
    /// The policy generation that parked it.
    pub generation: u64,
    /// The rule that asks: file and line.
    pub rule: String,
    /// Who may decide.
    #[serde(with = "spelled::list")]
    pub approvers: Vec<Approver>,
    /// How many different approvers must approve.
    #[serde(default = "one")]
    pub count: u32,
    /// The admin principal that decides as `user`.
    #[serde(default)]
    pub user: Option<String>,
    /// How much one approval may cover.
    #[serde(with = "spelled", default = "call_alone")]
    pub standing: StandingMost,
    /// What becomes of the card when its caller leaves.
    #[serde(with = "spelled")]
    pub on_caller_gone: OnCallerGone,
    /// Time to decide.
    pub decide_within_ms: u64,
    /// Time to use an approval.
    pub use_within_ms: u64,
    /// What it is, if the harness and not the gateway does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
}

/// A use of a tool that the agent's harness has itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// The harness's name of this one use, so that an approval is not taken for two; may be empty.
    pub use_id: String,
}

/// A run above another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ancestor {
    /// The agent.
    #[serde(with = "spelled")]
    pub agent: AgentName,
    /// Its run.
    pub run: String,
}

impl Asked {
    /// What `agent` asks for in `run`, as the decision parked it; `above` are the runs above it.
    #[must_use]
    pub fn new(agent: &AgentName, run: &str, above: &[Ancestor], request: &Request) -> Self {
        let tool = &request.tool;
        let approval = &request.approval;
        Self {
            agent: agent.clone(),
            run: run.to_owned(),
            above: above.to_vec(),
            server: tool.server.clone(),
            tool: tool.name.clone(),
            exposed: tool.exposed.clone(),
            arguments: request.arguments.clone(),
            digest: request.digest,
            secret: tool.secret.clone(),
            definition: tool.hash,
            generation: request.generation,
            rule: request.rule.to_string(),
            approvers: approval.approvers.clone(),
            count: approval.count,
            user: approval.user.clone(),
            standing: approval.standing,
            on_caller_gone: approval.on_caller_gone,
            decide_within_ms: ms(approval.decide_within),
            use_within_ms: ms(approval.use_within),
            external: request.external.clone(),
        }
    }

    /// True if the call was made below `run`, at whatever depth.
    #[must_use]
    pub fn is_below(&self, run: &str) -> bool {
        self.above.iter().any(|ancestor| ancestor.run == run)
    }

    /// True if the policy lets `by` decide. A parent has to be a run above the caller's.
    #[must_use]
    pub fn is_decided_by(&self, by: &Decider) -> bool {
        let is_one = match by.role {
            Approver::Human => true,
            Approver::User => self.user.as_ref() == Some(&by.name),
            Approver::Parent => self.above.iter().any(|above| by.is_run(&above.run)),
        };
        is_one && self.approvers.contains(&by.role)
    }

    /// The key by which an identical call is known: agent, run, server, tool and arguments.
    #[must_use]
    pub fn key(&self) -> Digest {
        let arguments = match &self.external {
            None => self.digest,
            Some(External { use_id }) => {
                Digest::of_parts(&[b"external", use_id.as_bytes(), self.digest.hex().as_bytes()])
            }
        };
        key(&self.agent, &self.run, (&self.server, self.tool.as_str()), arguments)
    }

    /// What calls of one tool by one agent have in common: agent, server and tool.
    #[must_use]
    pub fn call_key(&self) -> Digest {
        Digest::of_parts(&[
            self.agent.as_str().to_ascii_lowercase().as_bytes(),
            self.server.as_str().to_ascii_lowercase().as_bytes(),
            self.tool.as_str().as_bytes(),
        ])
    }
}

// What a record of before these members means.
fn one() -> u32 {
    1
}

fn call_alone() -> StandingMost {
    StandingMost::Never
}

/// The key of an identical call: see [`Asked::key`].
#[must_use]
pub fn key(agent: &AgentName, run: &str, tool: (&ServerName, &str), arguments: Digest) -> Digest {
    let (server, tool) = tool;
    Digest::of_parts(&[
        agent.as_str().to_ascii_lowercase().as_bytes(),
        run.as_bytes(),
        server.as_str().to_ascii_lowercase().as_bytes(),
        tool.as_bytes(),
        arguments.to_string().as_bytes(),
    ])
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
