//! How long a call is held open for a decision, by client.
//!
//! The table is about timers, never about rights: a client that lies about its name only hurts
//! its own waiting.

use parking_lot::Mutex;
use portcullis_policy::name::AgentName;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Clients whose timer progress or any byte resets, or that have none.
const WHOLE_WINDOW: Duration = Duration::from_secs(7 * 24 * 60 * 60);

// `clientInfo.name` as seen on the wire, in lower case, and what the client's timer allows. CrewAI
// and the OpenAI Agents SDK leave the name of the Python SDK; theirs are for the day they
// say who they are; kagent goes by the name of Google's ADK for Go.
const CLIENTS: &[(&str, Duration)] = &[
    ("claude-code", WHOLE_WINDOW),
    ("opencode", WHOLE_WINDOW),
    ("visual studio code", WHOLE_WINDOW),
    ("visual-studio-code", WHOLE_WINDOW),
    ("gemini-cli-mcp-client", Duration::from_secs(570)),
    ("codex-mcp-client", Duration::from_secs(280)),
    ("goose", Duration::from_secs(280)),
    ("goose-cli", Duration::from_secs(280)),
    ("goose-desktop", Duration::from_secs(280)),
    ("crewai", Duration::from_secs(25)),
    ("adk-mcp-client", Duration::from_secs(25)),
    ("openai-agents", Duration::from_secs(4)),
];

// Names that an SDK gives itself when its user gives none. With a progress token any byte resets
// their timer; without one the timer is unknown.
const BARE_SDKS: &[&str] = &["mcp", "fastmcp", "rmcp"];

/// How long a caller that was sent away is waited for.
const AWAY_KEEP: Duration = Duration::from_secs(10 * 60);
/// How long what a client taught counts.
const LEARNED_KEEP: Duration = Duration::from_secs(60 * 60);
/// Most clients that are remembered, and most of one agent.
const LEARNED_MAX: usize = 1_024;
const LEARNED_OF_AGENT_MAX: usize = 16;
/// Shortest time that a client can teach, and after which one is sent away to come back.
const HOLD_MIN: Duration = Duration::from_secs(3);

/// How long to hold a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// At most this long.
    pub(crate) time: Duration,
    /// True if that is a guess about the client's timer, which a new request sets anew.
    pub(crate) may_be_more: bool,
    /// True if the client is known to wait as long as it is held.
    pub(crate) is_patient: bool,
}

/// Holding times of a gateway.
#[derive(Debug)]
pub(crate) struct HoldTable {
    default: Duration,
    legs: bool,
    clients: BTreeMap<String, Duration>,
    learned: Mutex<HashMap<(AgentName, String), Learned>>,
    // Since when callers wait that may give up without a word, by card.
    waiting: Mutex<HashMap<String, Vec<Instant>>>,
    // Cards whose callers were sent away to come back, and clients that do not.
    rounds: Mutex<Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    away: HashMap<String, Instant>,
    unknown: HashMap<(AgentName, String), Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Learned {
    time: Duration,
    at: Instant,
}

impl HoldTable {
    /// The shipped table under the operator's own entries; `legs` if modern clients are sent
    /// away to come back with a fresh timer.
    pub(crate) fn new(default: Duration, own: &BTreeMap<String, Duration>, legs: bool) -> Self {
        let mut clients: BTreeMap<String, Duration> =
            CLIENTS.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect();
        clients.extend(own.iter().map(|(name, time)| (name.to_ascii_lowercase(), *time)));
        Self {
            default,
            legs,
            clients,
            learned: Mutex::default(),
            waiting: Mutex::default(),
            rounds: Mutex::default(),
        }
    }

    /// How long to hold a call of a client of an agent: what the policy says; else what the table
    /// says of exactly this client; else what it taught; else the usual time.
    pub(crate) fn budget(
        &self,
        policy: Option<Duration>,
        (agent, client): (&AgentName, &str),
        has_token: bool,
    ) -> Budget {
        if let Some(time) = policy {
            let client = client.to_ascii_lowercase();
            let is_patient = self.clients.get(&client) == Some(&WHOLE_WINDOW);
            return Budget { time, may_be_more: false, is_patient };
        }
        let client = client.to_ascii_lowercase();
        let bare = has_token && BARE_SDKS.contains(&client.as_str());
        let time = self
            .clients
            .get(&client)
            .copied()
            .or_else(|| self.taught(agent, &client))
            .or(bare.then_some(WHOLE_WINDOW))
            .unwrap_or(self.default);
        // A short hold that is repeated would be a poll, and clients count its rounds.
        let may_be_more = self.legs
            && (HOLD_MIN..WHOLE_WINDOW).contains(&time)
            && self.follows_rounds(agent, &client);
        Budget { time, may_be_more, is_patient: time == WHOLE_WINDOW }
    }

    /// A caller left after that time without an answer: its timer may be that short.
    pub(crate) fn left(&self, agent: &AgentName, client: &str, after: Duration) {
        let time = after.mul_f64(0.9).saturating_sub(Duration::from_secs(1)).max(HOLD_MIN);
        let key = (agent.clone(), client.to_ascii_lowercase());
        let mut learned = self.learned.lock();
        let new = !learned.contains_key(&key);
        let of_agent = learned.keys().filter(|(known, _)| known == agent).count();
        let own = of_agent >= LEARNED_OF_AGENT_MAX;
        if new && (own || learned.len() >= LEARNED_MAX) {
            // The oldest makes room: of this agent if it has too many, else of all.
            let oldest = learned
                .iter()
                .filter(|((known, _), _)| !own || known == agent)
                .min_by_key(|(_, known)| known.at)
                .map(|(key, _)| key.clone());
            oldest.map(|key| learned.remove(&key));
        }
        learned.insert(key, Learned { time, at: Instant::now() });
    }

    /// A caller that may give up without a word begins to wait for `card`. If another one does
    /// already and has for a while, that one gave up: nobody makes a call twice at once.
    pub(crate) fn begins(&self, agent: &AgentName, client: &str, card: &str) -> Instant {
        let began = Instant::now();
        let mut waiting = self.waiting.lock();
        let since = waiting.entry(card.to_owned()).or_default();
        let gave_up = since.last().map(Instant::elapsed).filter(|waited| *waited >= HOLD_MIN);
        since.push(began);
        drop(waiting);
        if let Some(waited) = gave_up {
            self.left(agent, client, waited);
        }
        began
    }

    /// The wait that began then is over.
    pub(crate) fn ends(&self, card: &str, began: Instant) {
        let mut waiting = self.waiting.lock();
        if let Some(since) = waiting.get_mut(card) {
            if let Some(at) = since.iter().position(|since| *since == began) {
                since.remove(at);
            }
            if since.is_empty() {
                waiting.remove(card);
            }
        }
    }

    /// The caller of `card` was sent away to come back.
    pub(crate) fn sent_away(&self, card: &str) {
        let mut rounds = self.rounds.lock();
        if rounds.away.len() >= LEARNED_MAX {
            rounds.away.retain(|_, at| at.elapsed() < AWAY_KEEP);
        }
        if rounds.away.len() < LEARNED_MAX {
            rounds.away.insert(card.to_owned(), Instant::now());
        }
    }

    /// It came back.
    pub(crate) fn came_back(&self, card: &str) {
        self.rounds.lock().away.remove(card);
    }

    /// A client makes the call of `card` anew. If it was sent away before, it does not follow
    /// rounds, and is told the truth instead from now on.
    pub(crate) fn made_anew(&self, agent: &AgentName, client: &str, card: &str) {
        let mut rounds = self.rounds.lock();
        if rounds.away.remove(card).is_none_or(|at| at.elapsed() >= AWAY_KEEP) {
            return;
        }
        if rounds.unknown.len() >= LEARNED_MAX {
            rounds.unknown.retain(|_, at| at.elapsed() < LEARNED_KEEP);
        }
        if rounds.unknown.len() < LEARNED_MAX {
            let key = (agent.clone(), client.to_ascii_lowercase());
            rounds.unknown.insert(key, Instant::now());
        }
    }

    fn follows_rounds(&self, agent: &AgentName, client: &str) -> bool {
        let rounds = self.rounds.lock();
        let unknown = rounds.unknown.get(&(agent.clone(), client.to_owned()));
        unknown.is_none_or(|at| at.elapsed() >= LEARNED_KEEP)
    }

    fn taught(&self, agent: &AgentName, client: &str) -> Option<Duration> {
        let learned = self.learned.lock();
        if learned.is_empty() {
            return None;
        }
        let known = learned.get(&(agent.clone(), client.to_owned()))?;
        (known.at.elapsed() < LEARNED_KEEP).then_some(known.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentName {
        AgentName::new("support").unwrap()
    }

    #[test]
    fn policy_wins_then_the_operator_then_the_table() {
        let own = BTreeMap::from([("Codex-MCP-Client".to_owned(), Duration::from_secs(9))]);
        let second = Duration::from_secs(1);
        let table = HoldTable::new(second * 50, &own, true);
        let agent = agent();
        let budget = |policy, client: &str, token| table.budget(policy, (&agent, client), token);
        assert_eq!(budget(Some(second), "opencode", false).time, second);
        assert!(!budget(Some(second), "opencode", false).may_be_more);
        assert_eq!(budget(None, "codex-mcp-client", true).time, second * 9);
        assert_eq!(budget(None, "OpenCode", true).time, WHOLE_WINDOW);
        assert!(!budget(None, "OpenCode", true).may_be_more);
        assert_eq!(budget(None, "who knows", true).time, second * 50);
        assert!(budget(None, "who knows", true).may_be_more);
        assert_eq!(budget(None, "mcp", false).time, second * 50);
        assert_eq!(budget(None, "mcp", true).time, WHOLE_WINDOW);
    }

    #[test]
    fn a_client_that_left_is_held_shorter_next_time_and_only_it() {
        let second = Duration::from_secs(1);
        let table = HoldTable::new(second * 50, &BTreeMap::new(), false);
        let agent = agent();
        table.left(&agent, "Odd", second * 30);
        assert_eq!(table.budget(None, (&agent, "odd"), true).time, second * 26);
        assert_eq!(table.budget(None, (&agent, "other"), true).time, second * 50);
        table.left(&agent, "odd", second);
        assert_eq!(table.budget(None, (&agent, "odd"), true).time, HOLD_MIN);
        // What the table knows for certain is not unlearned by somebody who was stopped.
        table.left(&agent, "opencode", second);
        assert_eq!(table.budget(None, (&agent, "opencode"), true).time, WHOLE_WINDOW);
        assert!(!table.budget(None, (&agent, "odd"), true).may_be_more);
    }

    #[test]
    fn a_call_that_is_made_again_while_it_waits_tells_that_its_caller_gave_up() {
        let table = HoldTable::new(Duration::from_secs(50), &BTreeMap::new(), false);
        let agent = agent();
        let budget = || table.budget(None, (&agent, "mcp"), false).time;
        let first = table.begins(&agent, "mcp", "apr_a");
        // At once is no repeat, and another card is another call.
        let second = table.begins(&agent, "mcp", "apr_a");
        assert_eq!(budget(), Duration::from_secs(50));
        table.ends("apr_a", second);
        let long_ago = first.checked_sub(Duration::from_secs(11)).unwrap();
        table.waiting.lock().insert("apr_a".to_owned(), vec![long_ago]);
        table.begins(&agent, "mcp", "apr_b");
        assert_eq!(budget(), Duration::from_secs(50));
        let third = table.begins(&agent, "mcp", "apr_a");
        let learned = budget();
        assert!(learned > Duration::from_secs(8) && learned < Duration::from_secs(10));
        table.ends("apr_a", third);
        table.ends("apr_a", long_ago);
        assert!(!table.waiting.lock().contains_key("apr_a"));
    }

    #[test]
    fn a_client_that_does_not_come_back_is_not_sent_away_again() {
        let table = HoldTable::new(Duration::from_secs(50), &BTreeMap::new(), true);
        let agent = agent();
        let may = |client| table.budget(None, (&agent, client), false).may_be_more;
        table.sent_away("apr_a");
        table.came_back("apr_a");
        table.made_anew(&agent, "Odd", "apr_a");
        table.made_anew(&agent, "Odd", "apr_b");
        assert!(may("odd"));
        table.sent_away("apr_a");
        table.made_anew(&agent, "Odd", "apr_a");
        assert!(!may("odd") && may("other"));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let table = HoldTable::new(Duration::from_secs(50), &BTreeMap::new(), false);
        for number in 0..LEARNED_OF_AGENT_MAX + 10 {
            table.left(&agent(), &format!("client {number}"), Duration::from_secs(9));
        }
        assert_eq!(table.learned.lock().len(), LEARNED_OF_AGENT_MAX);
        for number in 0..LEARNED_MAX {
            let agent = AgentName::new(&format!("agent-{number}")).unwrap();
            table.left(&agent, "client", Duration::from_secs(9));
        }
        assert_eq!(table.learned.lock().len(), LEARNED_MAX);
        // The newest counts.
        let last = AgentName::new(&format!("agent-{}", LEARNED_MAX - 1)).unwrap();
        assert!(table.budget(None, (&last, "client"), false).time < Duration::from_secs(9));
    }
}
