//! What a policy says, whatever file it came from.

use crate::diagnostic::Location;
use crate::name::{AgentName, ServerName, ToolName};
use crate::narrow::Narrowing;
use crate::pattern::{Case, Pattern};
use std::collections::BTreeMap;
use std::time::Duration;

/// A whole policy set: one definition a name.
#[derive(Debug, Clone, Default)]
pub struct Definition {
    /// The agents.
    pub agents: BTreeMap<AgentName, Agent>,
    /// The servers that some file defines. A grant may name others: those are *not configured*.
    pub servers: BTreeMap<ServerName, Server>,
}

/// One agent and what it declares.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The name, in the spelling of its definition.
    pub name: AgentName,
    /// What the agent is for; shown to approvers and parents.
    pub description: String,
    /// What it may reach, one entry a server.
    pub grants: Vec<Grant>,
    /// Agents it may start.
    pub sub_agents: Vec<SubAgent>,
    /// How its tools are shown.
    pub expose: Expose,
    /// How its parked calls are decided.
    pub approval: Approval,
    /// How much it may do.
    pub limits: AgentLimits,
    /// Where it says that its harness may ask here for leave to use tools of its own.
    pub permission_prompt: Option<Location>,
    /// What the run it stands for was started with; a policy file narrows nothing.
    pub narrowing: Narrowing,
    /// Where it is defined.
    pub location: Location,
}

/// What an agent may reach on one server.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The server.
    pub server: ServerName,
    /// The tools the agent may call.
    pub allow: Selection,
    /// Those of them that run without asking.
    pub auto_approve: Selection,
    /// Those that are no grant after all.
    pub deny: Selection,
    /// Resource URIs the agent may list and read.
    pub resources: Vec<Rule>,
    /// Prompts the agent may list and get.
    pub prompts: Selection,
    /// Argument names whose values are masked in logs, audit and messages.
    pub secret: Vec<String>,
    /// Where the entry starts.
    pub location: Location,
}

impl Grant {
    /// True if some tool that the grant may come to cover would ask: not all that it allows is
    /// auto-approved. Told from what is written, not from what the server offers today.
    #[must_use]
    pub fn may_park(&self) -> bool {
        match (&self.allow, &self.auto_approve) {
            (_, Selection::Every(_)) => false,
            (Selection::Every(_), Selection::Listed(_)) => true,
            (Selection::Listed(allowed), auto @ Selection::Listed(_)) => {
                allowed.iter().any(|rule| !auto.includes(&rule.pattern))
            }
        }
    }
}

/// A pattern and where it was written.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The pattern.
    pub pattern: Pattern,
    /// Its place.
    pub location: Location,
}

/// Everything, or what a list of patterns covers.
#[derive(Debug, Clone)]
pub enum Selection {
    /// `"*"`: everything, written out.
    Every(Location),
    /// A list; an empty one covers nothing.
    Listed(Vec<Rule>),
}

impl Selection {
    /// Covers nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::Listed(Vec::new())
    }

    /// The place of the rule that covers `name`.
    #[must_use]
    pub fn covering(&self, name: &ToolName) -> Option<&Location> {
        match self {
            Self::Every(location) => Some(location),
            Self::Listed(rules) => rules
                .iter()
                .find(|rule| rule.pattern.matches(name.as_str(), Case::Fold))
                .map(|rule| &rule.location),
        }
    }

    /// The place of the rule that spells `name` exactly, for names that differ from another one
    /// only in case.
    #[must_use]
    pub fn spelling(&self, name: &ToolName) -> Option<&Location> {
        match self {
            Self::Every(_) => None,
            Self::Listed(rules) => rules
                .iter()
                .find(|rule| rule.pattern.as_str() == name.as_str())
                .map(|rule| &rule.location),
        }
    }

    /// The rules that name exactly one thing.
    pub fn exact_rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules().iter().filter(|rule| rule.pattern.is_exact())
    }

    /// The rules of a list; `"*"` has none.
    pub(crate) fn rules(&self) -> &[Rule] {
        match self {
            Self::Every(_) => &[],
            Self::Listed(rules) => rules,
        }
    }

    /// True if it covers all that `pattern` does, told from the spelling: false may be wrong for
    /// two patterns, true never is.
    pub(crate) fn includes(&self, pattern: &Pattern) -> bool {
        let same = |rule: &Rule| rule.pattern.as_str().eq_ignore_ascii_case(pattern.as_str());
        let covers = |rule: &Rule| rule.pattern.matches(pattern.as_str(), Case::Fold);
        match self {
            Self::Every(_) => true,
            Self::Listed(rules) => {
                rules.iter().any(|rule| same(rule) || (pattern.is_exact() && covers(rule)))
            }
        }
    }

    /// True if it can cover nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Listed(rules) if rules.is_empty())
    }
}

/// A binding of another agent as a child.
#[derive(Debug, Clone)]
pub struct SubAgent {
    /// The name the parent uses for it.
    pub name: String,
    /// What the child is for.
    pub description: String,
    /// The agent that is started.
    pub agent: AgentName,
    /// Where the binding is written.
    pub location: Location,
}

/// How an agent's tools are shown. What it may call is the same in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expose {
    /// Every tool in `tools/list`.
    Direct,
    /// `search`, `describe` and `call` instead.
    Search,
    /// Direct up to a limit, then search.
    Auto,
}

/// Who may decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approver {
    /// The run that started the caller.
    Parent,
    /// A person with an admin credential of role approver.
    Human,
    /// The person for whom the agent works: the one that the policy names.
    User,
}

impl Approver {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Parent, Self::Human, Self::User];

    /// The word in policy files and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parent => "parent",
            Self::Human => "human",
            Self::User => "user",
        }
    }
}

/// How an agent's parked calls are decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Who may decide.
    pub approvers: Vec<Approver>,
    /// How many different approvers must approve; one denial is enough.
    pub count: u32,
    /// The admin principal of the person for whom the agent works.
    pub user: Option<String>,
    /// What an approver may let pass without asking again.
    pub standing: StandingMost,
    /// An undecided call is denied after this time.
    pub decide_within: Duration,
    /// An approval that nobody collects lapses after this time.
    pub use_within: Duration,
    /// What to do when no approver can be reached.
    pub on_no_approver: OnNoApprover,
    /// What becomes of a card whose caller left.
    pub on_caller_gone: OnCallerGone,
    /// How long a call is held on the wire; `None` follows the client.
    pub hold: Option<Duration>,
}

impl Default for Approval {
    fn default() -> Self {
        let ten_minutes = Duration::from_secs(600);
        Self {
            approvers: vec![Approver::Parent, Approver::Human],
            count: 1,
            user: None,
            standing: StandingMost::Arguments,
            decide_within: ten_minutes,
            use_within: ten_minutes,
            on_no_approver: OnNoApprover::Wait,
            on_caller_gone: OnCallerGone::Keep,
            hold: None,
        }
    }
}

/// How much one approval may cover beyond the call it was given on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StandingMost {
    /// That call alone.
    Never,
    /// The same call again.
    Arguments,
    /// Any call of the tool.
    Tool,
}

/// What to do when no approver can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNoApprover {
    /// Park all the same.
    Wait,
    /// Refuse at once and say who could have decided.
    Deny,
}

/// What becomes of a parked call whose caller left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCallerGone {
    /// The card stays; an approval waits for the identical repeat.
    Keep,
    /// The card is cancelled.
    Settle,
}

/// How much an agent may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// Calls started in any minute; `None` is no limit.
    pub calls_per_minute: Option<u32>,
    /// Calls in flight at one time.
    pub concurrent_calls: u32,
    /// Parked calls at one time.
    pub parked_calls: u32,
    /// Parked calls at one time of one run; `None` is as many as the agent may have.
    pub parked_calls_per_run: Option<u32>,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            calls_per_minute: None,
            concurrent_calls: 64,
            parked_calls: 20,
            parked_calls_per_run: None,
        }
    }
}

/// Parked calls of a server whose definition does not say how many there may be.
pub const SERVER_PARKED_CALLS: u32 = 1_000;

/// An upstream server.
#[derive(Debug, Clone)]
pub struct Server {
    /// The name, in the spelling of its definition.
    pub name: ServerName,
    /// How to reach it.
    pub transport: Transport,
    /// False if the operator switched it off.
    pub enabled: bool,
    /// Which protocol era to speak.
    pub era: EraPin,
    /// How long one call may take, without the time spent parked.
    pub call_timeout: Duration,
    /// Calls of its tools that may be parked at one time, of all agents together.
    pub parked_calls: u32,
    /// Where it is defined.
    pub location: Location,
}

/// How an upstream is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A child process that speaks over its standard streams.
    Stdio {
        /// The program, looked up in `PATH`; never given to a shell.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables added to the small set every child gets.
        env: BTreeMap<String, Value>,
        /// Working folder; `None` is that of the gateway.
        cwd: Option<String>,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint.
        url: String,
        /// Headers sent with every request.
        headers: BTreeMap<String, Value>,
    },
}

/// A value in a server definition, taken from where the operator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Written in the file.
    Literal(String),
    /// Read from the gateway's environment at start; a variable that is not set is an error.
    FromEnv {
        /// The variable.
        variable: String,
        /// Text put before the value, such as `Bearer `.
        prefix: String,
    },
    /// Read from a file at start, without the line end.
    FromFile {
        /// The file.
        path: String,
        /// Text put before the value.
        prefix: String,
    },
}

/// Which protocol era to speak with an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraPin {
    /// Ask the server.
    Auto,
    /// `initialize`, 2025-11-25 and earlier.
    Legacy,
    /// 2026-07-28.
    Modern,
}
