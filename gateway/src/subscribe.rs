//! Streams of change notifications: the legacy GET stream and `subscriptions/listen`.
//!
//! An agent hears of a change when its own view changed, and of nothing else.

use crate::asked::Asked;
use crate::call::invalid;
use crate::door::Visit;
use crate::handshake;
use crate::mcp::answer;
use crate::mcp::envelope::{Raw, member_of};
use crate::mcp::sse::{Body, EventSender, Gone};
use crate::reply;
use crate::scopes::Generation;
use crate::serve::{session_id, takes_stream};
use crate::sessions::Session;
use crate::shared::Shared;
use crate::tasks::{self, Follow};
use http::{HeaderMap, Response};
use portcullis_policy::json::{JsonLimits, quote};
use portcullis_policy::scope::View;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often a quiet stream gets a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The kinds of list an agent may follow.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
}

/// Opens the legacy GET stream of a session.
pub(crate) fn standalone(
    shared: &Arc<Shared>,
    visit: &Visit,
    headers: &HeaderMap,
) -> Response<Body> {
    if session_id(headers).is_none() || !takes_stream(headers) {
        return reply::not_allowed();
    }
    let session = match handshake::session(shared, visit, headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let all = Wanted { tools: true, prompts: true, resources: true };
    let mut stream = Stream::new(shared, visit, all, None);
    reply::stream(Body::stream(move |events| async move {
        tokio::select! {
            _ = stream.run(&events) => {}
            () = ended(Some(session)) => {}
        }
    }))
}

/// Opens a `subscriptions/listen` stream (MCP 2026-07-28, subscriptions).
pub(crate) async fn listen(asked: &Asked) -> Response<Body> {
    let wanted = asked.call.params.value("notifications");
    let flag = |name| {
        let value = wanted.and_then(|wanted| member_of(wanted, name, JsonLimits::default()));
        value.is_some_and(|value| value.as_str() == "true")
    };
    let wanted = Wanted {
        tools: flag("toolsListChanged"),
        prompts: flag("promptsListChanged"),
        resources: flag("resourcesListChanged"),
    };
    let Some(ids) = wanted_tasks(asked) else {
        return invalid(asked, "`notifications.taskIds` must be a list of the ids of tasks");
    };
    if !ids.is_empty() && !tasks::declared(asked) {
        return tasks::undeclared(asked);
    }
    let tasks = Follow::new(&asked.shared, asked.caller(), ids).await;
    let id = asked.call.id.clone();
    let acknowledged = acknowledged(wanted, &tasks, &id);
    let mut stream = Stream::new(&asked.shared, &asked.visit, wanted, Some(id.clone()));
    stream.tasks = Some(tasks);
    let shared = Arc::clone(&asked.shared);
    reply::stream(Body::stream(move |events| async move {
        if events.message(acknowledged.as_bytes()).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            () = shared.stopping() => {
                let result = format!(
                    "{{\"resultType\":\"complete\",\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{}}}}}",
                    id.as_str()
                );
                // The stream ends here whether the reader is still there or not.
                let _ = events.message(&answer::result(&id, result.as_bytes())).await;
            }
            _ = stream.run(&events) => {}
        }
    }))
}

async fn ended(session: Option<Arc<Session>>) {
    match session {
        Some(session) => session.ended().await,
        None => std::future::pending().await,
    }
}

// Ids beyond the limit are left out like those of others: the acknowledgement says so.
fn wanted_tasks(asked: &Asked) -> Option<Vec<String>> {
    let limits = JsonLimits::default();
    let wanted = asked.call.params.value("notifications");
    let list = wanted.and_then(|wanted| member_of(wanted, "taskIds", limits));
    list.map_or(Some(Vec::new()), |list| serde_json::from_str(list.as_str()).ok())
}

fn acknowledged(wanted: Wanted, tasks: &Follow, id: &Raw) -> String {
    let mut honoured: Vec<String> = [
        (wanted.tools, "\"toolsListChanged\":true"),
        (wanted.prompts, "\"promptsListChanged\":true"),
        (wanted.resources, "\"resourcesListChanged\":true"),
    ]
    .iter()
    .filter(|(wanted, _)| *wanted)
    .map(|(_, member)| (*member).to_owned())
    .collect();
    let ids: Vec<String> = tasks.ids().map(quote).collect();
    if !ids.is_empty() {
        honoured.push(format!("\"taskIds\":[{}]", ids.join(",")));
    }
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"notifications\":{{{}}},\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{}}}}}}}",
        honoured.join(","),
        id.as_str()
    )
}

struct Stream {
    visit: Visit,
    generations: watch::Receiver<Arc<Generation>>,
    wanted: Wanted,
    subscription: Option<Raw>,
    tasks: Option<Follow>,
    shared: Arc<Shared>,
}

impl Stream {
    fn new(shared: &Arc<Shared>, visit: &Visit, wanted: Wanted, subscription: Option<Raw>) -> Self {
        let (visit, generations) = (visit.clone(), shared.scopes.follow());
        let shared = Arc::clone(shared);
        Self { visit, generations, wanted, subscription, tasks: None, shared }
    }

    /// Writes changes until the reader or the gateway goes.
    async fn run(&mut self, events: &EventSender) -> Result<(), Gone> {
        loop {
            self.tell_of_tasks(events).await?;
            tokio::select! {
                changed = self.generations.changed() => {
                    if changed.is_err() || !self.changed(events).await? {
                        return Ok(());
                    }
                }
                () = task_changed(&mut self.tasks) => {}
                () = tokio::time::sleep(KEEP_ALIVE) => events.comment().await?,
                () = self.shared.stopping() => return Ok(()),
            }
        }
    }

    async fn tell_of_tasks(&mut self, events: &EventSender) -> Result<(), Gone> {
        let (Some(tasks), Some(subscription)) = (&mut self.tasks, &self.subscription) else {
            return Ok(());
        };
        for (message, ended) in tasks.news(subscription).await {
            events.message(message.as_bytes()).await?;
            if let Some(id) = ended {
                events.drained().await;
                self.shared.parked.collected(&id).await;
            }
        }
        Ok(())
    }

    /// Compares the agent's view with the one told last; false when the agent is gone.
    async fn changed(&mut self, events: &EventSender) -> Result<bool, Gone> {
        let generation = Arc::clone(&self.generations.borrow_and_update());
        let Some(scope) = self.visit.scope_in(&generation) else { return Ok(false) };
        let before = self.visit.view();
        let Some(now) = scope.view(self.visit.server.as_ref()) else { return Ok(false) };
        let changes = [
            (self.wanted.tools && tools_changed(before, now), "tools"),
            (self.wanted.prompts && before.prompts_json != now.prompts_json, "prompts"),
            (self.wanted.resources && resources_changed(before, now), "resources"),
        ];
        for (_, kind) in changes.iter().filter(|(changed, _)| *changed) {
            events.message(self.notification(kind).as_bytes()).await?;
        }
        self.visit.scope = scope;
        self.visit.generation = generation;
        Ok(true)
    }

    fn notification(&self, kind: &str) -> String {
        let params = self.subscription.as_ref().map_or(String::new(), |id| {
            format!(
                ",\"params\":{{\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{}}}}}",
                id.as_str()
            )
        });
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{kind}/list_changed\"{params}}}")
    }
}

async fn task_changed(tasks: &mut Option<Follow>) {
    match tasks {
        Some(tasks) => tasks.changed().await,
        None => std::future::pending().await,
    }
}

fn tools_changed(before: &View, now: &View) -> bool {
    before.tools_json != now.tools_json || before.shown != now.shown
}

fn resources_changed(before: &View, now: &View) -> bool {
    before.resources_json != now.resources_json || before.templates_json != now.templates_json
}
