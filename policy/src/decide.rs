//! Run, park or refuse: the one decision.
//!
//! Every path and every protocol revision asks here and nowhere else. What an agent sees is
//! defined as what this module would not refuse for want of a grant. A [`Permit`] is the only
//! key to an upstream; it is made here, by [`decide`] and by [`decide_approved`].

mod external;
mod refusal;

use crate::canonical::{Digest, canonical};
use crate::definition::Approval;
use crate::diagnostic::Location;
use crate::json::JsonLimits;
use crate::ledger::{Approved, External};
use crate::name::ServerName;
use crate::scope::{Approve, Scope, ScopedTool, View};
use bytes::Bytes;
use refusal::{absent, nobody_to_ask, over_limit};
use std::sync::Arc;

pub use external::external_offer;
pub use refusal::{Caps, Reason, Refusal, shown};

/// What an agent asks for. Names and URIs are those it was shown.
#[derive(Debug, Clone)]
pub enum Ask {
    /// `tools/call`.
    Tool {
        /// The exposed name.
        name: String,
        /// The source text of `arguments`, an object; `None` if the member is absent.
        arguments: Option<Bytes>,
    },
    /// Leave for the agent's harness to use a tool of its own.
    Permission {
        /// The harness's name of the tool.
        tool: String,
        /// The source text of its input, an object.
        input: Bytes,
        /// The harness's name of this one use; empty if it has none.
        use_id: String,
    },
    /// `resources/read`.
    Resource {
        /// The URI.
        uri: String,
    },
    /// `prompts/get`.
    Prompt {
        /// The exposed name.
        name: String,
    },
    /// `completion/complete` for an argument of a prompt.
    CompletePrompt {
        /// The exposed name of the prompt.
        name: String,
    },
    /// `completion/complete` for a variable of a resource template.
    CompleteTemplate {
        /// The URI template.
        template: String,
    },
}

/// Counters of the asking agent, taken by the gateway at this moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Calls in flight, without this one.
    pub concurrent_calls: u32,
    /// Calls started within the last minute, without this one.
    pub calls_last_minute: u32,
    /// True if no person watches the gateway or this run.
    pub unattended: bool,
    /// True if the run that started the caller, or would have by policy, is live.
    pub parent: bool,
}

/// The answer.
#[derive(Debug)]
pub enum Decision {
    /// Go ahead; the permit opens the upstream once.
    Run(Permit),
    /// Wait for an approval.
    Park(Request),
    /// No.
    Refuse(Refusal),
}

/// What a [`Permit`] opens.
#[derive(Debug, Clone)]
pub enum Target {
    /// A call of a tool.
    Tool {
        /// The tool.
        tool: Arc<ScopedTool>,
        /// The source text of `arguments` to send; `None` sends none.
        arguments: Option<Bytes>,
    },
    /// Leave for the agent's harness to use a tool of its own; nothing is sent anywhere.
    Permission {
        /// The server that stands for the harness.
        server: ServerName,
        /// The harness's name of the tool.
        name: String,
        /// The input that was approved, canonical form 1.
        input: Bytes,
    },
    /// A read of a resource.
    Resource {
        /// Its server.
        server: ServerName,
        /// Its URI, as the server listed it or as its template covers it.
        uri: String,
    },
    /// A prompt.
    Prompt {
        /// Its server.
        server: ServerName,
        /// Its name as the server registers it.
        name: String,
    },
    /// A completion for a prompt's argument.
    CompletePrompt {
        /// Its server.
        server: ServerName,
        /// The prompt's name as the server registers it.
        name: String,
    },
    /// A completion for a template's variable.
    CompleteTemplate {
        /// Its server.
        server: ServerName,
        /// The URI template.
        template: String,
    },
}

impl Target {
    /// The server that is opened.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        match self {
            Self::Tool { tool, .. } => &tool.server,
            Self::Permission { server, .. }
            | Self::Resource { server, .. }
            | Self::Prompt { server, .. }
            | Self::CompletePrompt { server, .. }
            | Self::CompleteTemplate { server, .. } => server,
        }
    }
}

/// Leave to send one request to one upstream. Not clonable: using it ends it.
#[derive(Debug)]
pub struct Permit {
    // INVARIANT: made by `decide` or `decide_approved` alone, so holding one proves the decision.
    target: Target,
    generation: u64,
}

impl Permit {
    /// What it opens.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Ends the permit and returns what it opened.
    #[must_use]
    pub fn spend(self) -> Target {
        self.target
    }

    /// The policy generation that decided.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// A call that waits for an approval.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tool.
    pub tool: Arc<ScopedTool>,
    /// The arguments in canonical form 1: what is shown, digested and sent.
    pub arguments: String,
    /// Digest of `arguments`.
    pub digest: Digest,
    /// The rule that asks.
    pub rule: Location,
    /// How it is decided.
    pub approval: Approval,
    /// The policy generation that decided.
    pub generation: u64,
    /// What it is, if the harness and not the gateway does it.
    pub external: Option<External>,
}

/// Decides one request of the agent of `scope` that was made on `view`.
#[must_use]
pub fn decide(scope: &Scope, view: &View, ask: Ask, usage: &Usage) -> Decision {
    let target = match ask {
        Ask::Tool { name, arguments } => return decide_call(scope, view, &name, arguments, usage),
        Ask::Permission { tool, input, use_id } => {
            return external::decide(scope, (&tool, &input, use_id), usage);
        }
        Ask::Resource { uri } => view
            .resource_owner(&uri)
            .map(|server| Target::Resource { server: server.clone(), uri: uri.clone() })
            .ok_or(("resource", uri)),
        Ask::Prompt { name } => view
            .prompt(&name)
            .map(|(server, native)| Target::Prompt {
                server: server.clone(),
                name: native.to_owned(),
            })
            .ok_or(("prompt", name)),
        Ask::CompletePrompt { name } => view
            .prompt(&name)
            .map(|(server, native)| Target::CompletePrompt {
                server: server.clone(),
                name: native.to_owned(),
            })
            .ok_or(("prompt", name)),
        Ask::CompleteTemplate { template } => view
            .template_owner(&template)
            .map(|server| Target::CompleteTemplate {
                server: server.clone(),
                template: template.clone(),
            })
            .ok_or(("resource template", template)),
    };
    match target {
        Ok(target) => match over_limit(scope, usage) {
            Some(refusal) => Decision::Refuse(refusal),
            None => Decision::Run(Permit { target, generation: scope.generation }),
        },
        Err((what, asked)) => Decision::Refuse(Refusal {
            reason: Reason::Unknown,
            text: format!(
                "{what} {} is not available to agent `{}`, and nothing was sent. {}",
                shown(&asked),
                scope.agent.name,
                view.authorised()
            ),
        }),
    }
}

/// Why an approved call does not run at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotNow {
    /// Its approval holds no longer.
    Revoked(Refusal),
    /// Its server is granted and configured, but has not said yet what it offers.
    Away,
}

/// Decides an approved call anew, at the moment it would run.
///
/// # Errors
/// [`NotNow::Revoked`] if the scope of this moment no longer reaches the tool, or if its
/// definition is another one than the approver saw; [`NotNow::Away`] if only its server is away.
pub fn decide_approved(scope: &Scope, approved: &Approved) -> Result<Permit, NotNow> {
    let revoked = |why: &str| {
        NotNow::Revoked(Refusal {
            reason: Reason::Revoked,
            text: format!(
                "The approval of `{}` no longer holds: {why}. The call did not run. Repeat it to ask again.",
                approved.exposed()
            ),
        })
    };
    if approved.is_external() {
        return external::decide_approved(scope, approved)
            .ok_or_else(|| revoked("the policy does not let its harness ask here any more"));
    }
    let Some(tool) = scope.tool(approved.server(), approved.tool()) else {
        if scope.is_away(approved.server()) {
            return Err(NotNow::Away);
        }
        return Err(revoked(
            "the policy or the server changed and the tool is not available any more",
        ));
    };
    if tool.hash != approved.definition() {
        return Err(revoked("the server changed the tool's definition since it was shown"));
    }
    let arguments = Some(Bytes::copy_from_slice(approved.arguments().as_bytes()));
    let target = Target::Tool { tool: Arc::clone(tool), arguments };
    Ok(Permit { target, generation: scope.generation })
}

fn decide_call(
    scope: &Scope,
    view: &View,
    name: &str,
    arguments: Option<Bytes>,
    usage: &Usage,
) -> Decision {
    let Some(tool) = view.tool(name) else {
        return Decision::Refuse(absent(scope, view, name));
    };
    if let Some(refusal) = over_limit(scope, usage) {
        return Decision::Refuse(refusal);
    }
    let rule = match &tool.approve {
        Approve::Auto { .. } => {
            let target = Target::Tool { tool: Arc::clone(tool), arguments };
            return Decision::Run(Permit { target, generation: scope.generation });
        }
        Approve::Ask { rule } => rule.clone(),
    };
    if let Some(refusal) = nobody_to_ask(scope, name, usage) {
        return Decision::Refuse(refusal);
    }
    let sent = arguments.as_deref().unwrap_or(b"{}");
    let arguments = match canonical(sent, JsonLimits::default()) {
        Ok(arguments) => arguments,
        Err(error) => {
            return Decision::Refuse(Refusal {
                reason: Reason::Arguments,
                text: format!(
                    "The arguments of {} cannot be used: {error}. Nothing was sent.",
                    shown(name)
                ),
            });
        }
    };
    Decision::Park(Request {
        tool: Arc::clone(tool),
        digest: Digest::of(arguments.as_bytes()),
        arguments,
        rule,
        approval: scope.approval.clone(),
        generation: scope.generation,
        external: None,
    })
}
