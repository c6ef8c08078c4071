//! What is counted and timed, and how it is spelled for Prometheus.
//!
//! Label values come from a closed set: names declared at load, and our own words. Whatever the
//! wire invents is counted as `_other`, so the number of series does not depend on traffic.

mod labels;
pub mod logging;

use crate::audit::Choice;
use labels::{Call, Decision, Names, Operation as OperationLabels, Refusal, Upstream};
use parking_lot::RwLock;
use portcullis_policy::name::{AgentName, ServerName};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use labels::TOOL_LABELS_MAX;

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// OpenMetrics semantic conventions, MCP: the buckets of the operation durations, in seconds.
const OPERATION_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
// A second to a day.
const PARK_BUCKETS: [f64; 10] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0];

/// One request, as its duration is counted.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// The method.
    pub method: &'a str,
    /// The server and the tool as it registers it, for a call of a tool.
    pub tool: Option<(&'a str, &'a str)>,
    /// What went wrong, if it is an error by the rules of the conventions.
    pub error: Option<ErrorType>,
    /// How it was carried.
    pub transport: Transport,
    /// The protocol revision.
    pub version: &'a str,
}

/// The kinds of error of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// The result was marked `isError`.
    Tool,
    /// A JSON-RPC error with this code.
    Rpc(i64),
    /// No answer in time.
    Timeout,
    /// The connection failed.
    Connection,
}

/// How a message is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// HTTP.
    Tcp,
    /// The standard streams of a child.
    Pipe,
}

/// Whether an upstream answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachable {
    /// It answers.
    Up,
    /// It does not.
    Down,
}

/// How a reload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// The new generation serves.
    Taken,
    /// It had errors; the last good one serves.
    Rejected,
}

/// The series of this gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    names: RwLock<Names>,
    calls: Family<Call, Counter>,
    refused: Family<Refusal, Counter>,
    decisions: Family<Decision, Counter>,
    server_operations: Family<OperationLabels, Histogram, OperationHistogram>,
    client_operations: Family<OperationLabels, Histogram, OperationHistogram>,
    parked_calls: Gauge,
    park_wait: Histogram,
    upstream_up: Family<Upstream, Gauge>,
    upstream_restarts: Family<Upstream, Counter>,
    reloads: Family<labels::Reloaded, Counter>,
    runs: Gauge,
    pruned: Family<labels::Pruned, Counter>,
    webhooks: Family<labels::Delivery, Counter>,
}

#[derive(Debug, Clone)]
struct OperationHistogram;

impl MetricConstructor<Histogram> for OperationHistogram {
    fn new_metric(&self) -> Histogram {
        Histogram::new(OPERATION_BUCKETS)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Series that are all at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            names: RwLock::default(),
            calls: Family::default(),
            refused: Family::default(),
            decisions: Family::default(),
            server_operations: Family::new_with_constructor(OperationHistogram),
            client_operations: Family::new_with_constructor(OperationHistogram),
            parked_calls: Gauge::default(),
            park_wait: Histogram::new(PARK_BUCKETS),
            upstream_up: Family::default(),
            upstream_restarts: Family::default(),
            reloads: Family::default(),
            runs: Gauge::default(),
            pruned: Family::default(),
            webhooks: Family::default(),
        };
        metrics.register_operations();
        metrics.register_own();
        metrics
    }

    /// Makes names known as label values; called with every generation. Names stay known, and at
    /// most [`TOOL_LABELS_MAX`] tools are told apart.
    pub fn declare<'a>(
        &self,
        agents: impl IntoIterator<Item = &'a AgentName>,
        servers: impl IntoIterator<Item = &'a ServerName>,
        tools: impl IntoIterator<Item = (&'a ServerName, &'a str)>,
    ) {
        let mut names = self.names.write();
        names.agents(agents);
        names.servers(servers);
        names.tools(tools);
    }

    /// Counts a call that ended or was parked.
    pub fn called(&self, agent: &AgentName, tool: Option<(&str, &str)>, outcome: &'static str) {
        let labels = {
            let names = self.names.read();
            Call {
                agent: names.agent(agent),
                server: names.server(tool.map(|(server, _)| server)),
                tool: names.tool(tool),
                outcome,
            }
        };
        self.calls.get_or_create(&labels).inc();
    }

    /// Counts a refusal.
    pub fn refused(&self, agent: &AgentName, reason: &'static str) {
        let agent = self.names.read().agent(agent);
        self.refused.get_or_create(&Refusal { agent, reason }).inc();
    }

    /// Counts a request whose credential named nobody.
    pub fn unidentified(&self, reason: &'static str) {
        self.refused.get_or_create(&Refusal { agent: labels::other(), reason }).inc();
    }

    /// Counts a decision on a card.
    pub fn decided(&self, agent: &AgentName, tool: (&str, &str), choice: Choice) {
        let labels = {
            let names = self.names.read();
            Decision {
                agent: names.agent(agent),
                server: names.server(Some(tool.0)),
                tool: names.tool(Some(tool)),
                verdict: choice.as_str(),
            }
        };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Times a request of an agent.
    pub fn server_operation(&self, operation: &Operation<'_>, duration: Duration) {
        let labels = self.names.read().operation(operation);
        self.server_operations.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Times a request to an upstream.
    pub fn client_operation(&self, operation: &Operation<'_>, duration: Duration) {
        let labels = self.names.read().operation(operation);
        self.client_operations.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Says how many calls are parked now.
    pub fn parked(&self, calls: usize) {
        self.parked_calls.set(i64::try_from(calls).unwrap_or(i64::MAX));
    }

    /// Times how long a card waited until it settled or was approved.
    pub fn park_waited(&self, wait: Duration) {
        self.park_wait.observe(wait.as_secs_f64());
    }

    /// Says whether an upstream answers.
    pub fn upstream(&self, server: &ServerName, reachable: Reachable) {
        let value = match reachable {
            Reachable::Up => 1,
            Reachable::Down => 0,
        };
        let server = self.names.read().server(Some(server.as_str()));
        self.upstream_up.get_or_create(&Upstream { server }).set(value);
    }

    /// Counts a restart of an upstream's process.
    pub fn upstream_restarted(&self, server: &ServerName) {
        let server = self.names.read().server(Some(server.as_str()));
        self.upstream_restarts.get_or_create(&Upstream { server }).inc();
    }

    /// Says how many runs are live now.
    pub fn runs(&self, live: usize) {
        self.runs.set(i64::try_from(live).unwrap_or(i64::MAX));
    }

    /// Says how many old rows of a kind were removed since the start.
    pub fn pruned(&self, kind: &'static str, rows: u64) {
        self.pruned.get_or_create(&labels::Pruned { kind }).inner().store(rows, Ordering::Relaxed);
    }

    /// Counts a message to a webhook: `delivered`, `failed` and tried again, or `given_up`.
    pub fn webhook(&self, webhook: &str, outcome: &'static str) {
        let labels = labels::Delivery { webhook: webhook.to_owned(), outcome };
        self.webhooks.get_or_create(&labels).inc();
    }

    /// Counts a reload of the policy.
    pub fn reloaded(&self, reload: Reload) {
        let result = match reload {
            Reload::Taken => "taken",
            Reload::Rejected => "rejected",
        };
        self.reloads.get_or_create(&labels::Reloaded { result }).inc();
    }

    /// All series in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut out, &self.registry);
        out
    }

    fn register_operations(&mut self) {
        self.registry.register_with_unit(
            "mcp_server_operation_duration",
            "Time to answer a request of an agent, without its time parked",
            Unit::Seconds,
            self.server_operations.clone(),
        );
        self.registry.register_with_unit(
            "mcp_client_operation_duration",
            "Time an upstream took to answer",
            Unit::Seconds,
            self.client_operations.clone(),
        );
    }

    fn register_own(&mut self) {
        let own = self.registry.sub_registry_with_prefix("portcullis");
        own.register("calls", "Calls by how they ended", self.calls.clone());
        own.register("refused", "Refusals by reason", self.refused.clone());
        own.register("decisions", "Decisions on cards", self.decisions.clone());
        own.register("parked_calls", "Calls that wait for approval", self.parked_calls.clone());
        own.register_with_unit(
            "park_wait",
            "Time a call waited for its decision",
            Unit::Seconds,
            self.park_wait.clone(),
        );
        own.register("upstream_up", "1 if the upstream answers", self.upstream_up.clone());
        own.register(
            "upstream_restarts",
            "Restarts of an upstream's process",
            self.upstream_restarts.clone(),
        );
        own.register("runs", "Live runs", self.runs.clone());
        own.register("pruned_rows", "Old rows removed from the store", self.pruned.clone());
        own.register("webhook_messages", "Messages to webhooks", self.webhooks.clone());
        own.register("policy_reload", "Reloads of the policy", self.reloads.clone());
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        own.register("build", "The running build", Info::new(version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_spelled_as_documented() {
        let metrics = Metrics::new();
        let agent = AgentName::new("support").unwrap();
        let crm = ServerName::new("crm").unwrap();
        metrics.declare([&agent], [&crm], [(&crm, "refund")]);
        metrics.called(&agent, Some(("crm", "refund")), "ok");
        metrics.refused(&agent, "hidden");
        metrics.decided(&agent, ("crm", "refund"), Choice::Approve);
        metrics.parked(2);
        metrics.park_waited(Duration::from_secs(7));
        metrics.upstream(&crm, Reachable::Up);
        metrics.upstream_restarted(&crm);
        metrics.reloaded(Reload::Rejected);
        let operation = Operation {
            method: "tools/call",
            tool: Some(("crm", "refund")),
            error: Some(ErrorType::Rpc(-32603)),
            transport: Transport::Tcp,
            version: "2026-07-28",
        };
        metrics.server_operation(&operation, Duration::from_millis(15));
        metrics.client_operation(&operation, Duration::from_millis(15));
        let text = metrics.text();
        let server_bucket = "mcp_server_operation_duration_seconds_bucket{le=\"0.02\",\
            mcp_method_name=\"tools/call\",gen_ai_tool_name=\"refund\",error_type=\"-32603\",\
            network_transport=\"tcp\",mcp_protocol_version=\"2026-07-28\"} 1";
        for line in [
            "portcullis_calls_total{agent=\"support\",server=\"crm\",tool=\"refund\",outcome=\"ok\"} 1",
            "portcullis_refused_total{agent=\"support\",reason=\"hidden\"} 1",
            "portcullis_decisions_total{agent=\"support\",server=\"crm\",tool=\"refund\",verdict=\"approve\"} 1",
            "portcullis_parked_calls 2",
            "portcullis_park_wait_seconds_sum 7.0",
            "portcullis_upstream_up{server=\"crm\"} 1",
            "portcullis_upstream_restarts_total{server=\"crm\"} 1",
            "portcullis_policy_reload_total{result=\"rejected\"} 1",
            "portcullis_build_info{version=\"0.1.0\"} 1",
            server_bucket,
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\nis not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_the_wire_invents_makes_no_series() {
        let metrics = Metrics::new();
        for n in 0..50 {
            let agent = AgentName::new(&format!("a{n}")).unwrap();
            metrics.called(&agent, Some(("crm", &format!("t{n}"))), "refused");
            let operation = Operation {
                method: &format!("m{n}"),
                tool: None,
                error: Some(ErrorType::Rpc(n)),
                transport: Transport::Pipe,
                version: &format!("v{n}"),
            };
            metrics.server_operation(&operation, Duration::ZERO);
        }
        let text = metrics.text();
        let calls = text.lines().filter(|line| line.starts_with("portcullis_calls_total"));
        assert_eq!(calls.count(), 1, "{text}");
        let timed = text.lines().filter(|line| line.contains("operation_duration_seconds_count"));
        assert_eq!(timed.count(), 1, "{text}");
    }

    #[test]
    fn a_server_that_renames_its_tools_reaches_a_limit() {
        let metrics = Metrics::new();
        let crm = ServerName::new("crm").unwrap();
        let tools: Vec<String> = (0..TOOL_LABELS_MAX + 5).map(|n| format!("t{n}")).collect();
        metrics.declare([], [&crm], tools.iter().map(|tool| (&crm, tool.as_str())));
        let names = metrics.names.read();
        assert_eq!(&*names.tool(Some(("crm", "t0"))), "t0");
        assert_eq!(&*names.tool(Some(("crm", tools.last().unwrap()))), "_other");
    }
}
