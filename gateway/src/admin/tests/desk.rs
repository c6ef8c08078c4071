//! An admin listener in front of a real store of cards.

use crate::admin::{AgentSummary, Api, Effective, Hosts, Streams, Views, router};
use crate::audit::{Audit, Durability};
use crate::decisions::{Decisions, Schemas};
use crate::identity::{AdminEntry, Admins, Kind, Role, Token, read_operator_token};
use crate::parked::{Caller, Executed, Origin, Parked, ParkedSettings, Runner};
use crate::runs::{Credentials, Ground, RunSettings, Runs};
use crate::scopes::follow_catalogue;
use crate::seal::Seal;
use crate::store::{Filter, RunRow, Store, StoreSettings};
use crate::telemetry::Metrics;
use portcullis_policy::canonical::{Digest, canonical};
use portcullis_policy::catalogue::{Catalogue, ToolOffer};
use portcullis_policy::decide::{Caps, NotNow, Reason, Refusal, Request};
use portcullis_policy::definition::{Agent, AgentLimits, Approval, Definition, Expose};
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::json::JsonLimits;
use portcullis_policy::name::{AgentName, ServerName, ToolName};
use portcullis_policy::narrow::Narrowing;
use portcullis_policy::scope::{Approve, ScopedTool};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub(super) struct Desk {
    pub(super) url: String,
    pub(super) http: reqwest::Client,
    pub(super) stop: watch::Sender<bool>,
    folder: PathBuf,
    tokens: BTreeMap<&'static str, Token>,
    parked: Parked,
    store: Store,
    metrics: Arc<Metrics>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(super) async fn desk(name: &str) -> Desk {
    let folder =
        std::env::temp_dir().join(format!("portcullis-desk-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (tokens, admins) = admins(&folder);
    let store = Store::open(&StoreSettings::new(folder.join("state.db"))).await.unwrap();
    let settings = ParkedSettings::default();
    let clock = settings.clock.clone();
    let parked = Parked::open(store.clone(), settings, runner()).await.unwrap();
    parked.begin();
    let audit = Arc::new(Audit::open(&folder.join("audit"), Durability::Os).unwrap());
    let catalogue = watch::channel(Arc::new(Catalogue::default())).1;
    let (scopes, _) = follow_catalogue(Arc::new(Definition::default()), catalogue);
    let (ttl, ttl_max) = (Duration::from_secs(60), Duration::from_secs(600));
    let runs = Runs::open(Ground {
        settings: RunSettings { ttl, ttl_max, url: "http://127.0.0.1:7777".to_owned() },
        table: Arc::default(),
        tokens: Arc::default(),
        scopes,
        store: store.clone(),
        parked: parked.clone(),
        audit: Arc::clone(&audit),
        clock,
    })
    .await
    .unwrap();
    let metrics = Arc::new(Metrics::new());
    let server = ServerName::new("crm").unwrap();
    metrics.declare([&agent().name], [&server], [(&server, "refund")]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let api = Api {
        parked: parked.clone(),
        decisions: Decisions::new(
            parked.clone(),
            audit,
            Arc::clone(&metrics),
            Schemas::new(|_| None),
        ),
        credentials: Credentials::open(runs.clone(), admins, None, Vec::new()).await.unwrap(),
        runs,
        hosts: Hosts::new(address, &[]),
        views: views(),
        seal: Seal::from_file(&folder.join("seal.json")).unwrap(),
        store: store.clone(),
        streams: Streams::default(),
        url: format!("http://{address}"),
        stop: stopped,
        epoch: "test".to_owned(),
    };
    let routes = router(&Arc::new(api));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let (url, http) = (format!("http://{address}"), reqwest::Client::new());
    Desk { url, http, stop, folder, tokens, parked, store, metrics }
}

fn admins(folder: &Path) -> (BTreeMap<&'static str, Token>, Arc<Admins>) {
    let (mut tokens, mut configured) = (BTreeMap::new(), Vec::new());
    let agents = |name: &str| Role::Harness {
        agents: vec![AgentName::new(name).unwrap()],
        also_approver: false,
    };
    for (name, role) in [
        ("dana", Role::Approver),
        ("viewer", Role::Viewer),
        ("harness", agents("support")),
        ("stranger", agents("billing")),
    ] {
        let token = Token::generate(Kind::Admin).unwrap();
        configured.push(AdminEntry {
            name: name.to_owned(),
            role,
            hash: token.hash(),
            expires: None,
        });
        tokens.insert(name, token);
    }
    let admins = Arc::new(Admins::open(folder, configured).unwrap());
    tokens.insert("operator", read_operator_token(folder).unwrap());
    (tokens, admins)
}

fn runner() -> Runner {
    Runner {
        vouch: Arc::new(|_, _| true),
        judge: Box::new(|_, _| {
            let text = "not in this test".to_owned();
            Err(NotNow::Revoked(Refusal { reason: Reason::Revoked, text }))
        }),
        run: Box::new(|_, _, _| {
            Box::pin(async { Executed::NotSent { text: "not in this test".to_owned() } })
        }),
    }
}

fn views() -> Views {
    Views {
        agents: Box::new(|| {
            let agent = "support".to_owned();
            vec![(self::agent().name, AgentSummary { agent, ..AgentSummary::default() })]
        }),
        agent: Box::new(|name| {
            let agent = "support".to_owned();
            (*name == self::agent().name).then(|| Effective { agent, ..Effective::default() })
        }),
        diagnostics: Box::new(|| {
            vec![Diagnostic::warning("server_not_configured", &here(), "server `x` is not there")]
        }),
        offer: Box::new(|_| {
            let tool =
                r#"{"name":"refund","title":"Refund an order","inputSchema":{"type":"object"}}"#;
            Some(Arc::new(ToolOffer::parse(tool, JsonLimits::default()).unwrap()))
        }),
    }
}

fn here() -> Location {
    Location::new(&Arc::from("policy.yaml"), 7, 3)
}

fn agent() -> Agent {
    Agent {
        name: AgentName::new("support").unwrap(),
        description: String::new(),
        grants: Vec::new(),
        sub_agents: Vec::new(),
        permission_prompt: None,
        expose: Expose::Auto,
        approval: Approval::default(),
        limits: AgentLimits::default(),
        narrowing: Narrowing::default(),
        location: here(),
    }
}

fn request(arguments: &str, secret: &[&str]) -> Request {
    let limits = JsonLimits::default();
    let json = r#"{"name":"refund","title":"Refund an order","inputSchema":{"type":"object"}}"#;
    let offer = Arc::new(ToolOffer::parse(json, limits).unwrap());
    let arguments = canonical(arguments.as_bytes(), limits).unwrap();
    let tool = ScopedTool {
        server: ServerName::new("crm").unwrap(),
        name: ToolName::new("refund").unwrap(),
        exposed: "crm__refund".to_owned(),
        hash: offer.hash,
        approve: Approve::Ask { rule: here() },
        offer,
        secret: secret.iter().map(ToString::to_string).collect(),
    };
    Request {
        tool: Arc::new(tool),
        digest: Digest::of(arguments.as_bytes()),
        arguments,
        rule: here(),
        approval: Approval::default(),
        generation: 1,
        external: None,
    }
}

impl Desk {
    pub(super) async fn park(&self, arguments: &str) -> String {
        self.park_request(request(arguments, &[])).await
    }

    pub(super) async fn park_secret(&self, arguments: &str) -> String {
        self.park_request(request(arguments, &["password"])).await
    }

    async fn park_request(&self, request: Request) -> String {
        let caller = Caller { agent: agent().name, run: "run_test".to_owned(), server: None };
        // An approved card keeps its state as long as nobody is there to collect it.
        let run = RunRow::unnamed(&caller.run, &caller.agent, 1);
        self.store.ensure_run(&run).await.unwrap();
        let caps = Caps { agent: 20, run: 20, server: 20 };
        let origin = Origin { above: Vec::new(), caps, task: false };
        drop(self.parked.park(&caller, request, origin).await.unwrap());
        let cards = self.parked.list(&Filter::default()).await.unwrap();
        cards.last().unwrap().id().to_owned()
    }

    pub(super) fn request(&self, role: &str, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.http.request(method, format!("{}{path}", self.url));
        request.bearer_auth(self.tokens[role].reveal())
    }

    pub(super) fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("audit/audit-000001.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(super) fn metrics(&self) -> String {
        self.metrics.text()
    }
}
