//! An MCP server for tests: everything the conformance suite calls by name, in both protocol eras,
//! and tools that prove what a gateway did or did not let through.
//!
//! It serves over streamable HTTP or stdio, in this process or as `portcullis-fixture`. It is an
//! upstream: it authorises nobody.

#![expect(deprecated, reason = "both eras are served, and the older one subscribes and logs")]

mod catalogue;
mod content;
mod front;
mod older;
mod prompts;
mod resources;
mod rounds;
mod signal;
mod tasks;
mod work;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock, ErrorCode,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, ServerInitializeError, SubscriptionContext, SubscriptionSink};
use rmcp::task_manager::TaskManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, Service, ServiceExt};
use tokio::net::TcpListener;

pub use work::CANCELLED_SLEEPS;

/// How long clients may keep a list.
const TTL_MS: u64 = 60_000;
/// Streams of a session that `test_reconnection` tries to close.
const STREAMS_MAX: u64 = 64;

/// Which revisions the fixture speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Era {
    /// All of them.
    Both,
    /// 2026-07-28 and nothing else.
    Modern,
    /// Everything before 2026-07-28.
    Legacy,
}

/// The fixture server. Clones share counters, tasks and subscriptions.
#[derive(Clone, Debug)]
pub struct Fixture {
    era: Era,
    shared: Arc<Shared>,
    /// Resources the session subscribed to; sessions exist only before 2026-07-28.
    watched: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Default)]
struct Shared {
    tools: Vec<Tool>,
    executions: Mutex<BTreeMap<String, u64>>,
    states: Mutex<rounds::States>,
    subscriptions: Mutex<BTreeMap<u64, SubscriptionSink>>,
    subscription_next: Mutex<u64>,
    sessions: Arc<LocalSessionManager>,
    tasks: TaskManager,
}

/// Serves a fixture at `/mcp` of the listener until the future is dropped.
pub async fn serve_http(listener: TcpListener, fixture: Fixture) -> std::io::Result<()> {
    front::serve(listener, fixture).await
}

/// Serves a fixture on standard input and output until the input ends.
pub async fn serve_stdio(fixture: Fixture) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let pipes = rmcp::transport::stdio();
    match fixture.era {
        Era::Legacy => serve_pipes(older::Older(fixture), pipes).await,
        Era::Both | Era::Modern => serve_pipes(fixture, pipes).await,
    }
}

/// A client that leaves before it opened a session is no fault.
async fn serve_pipes<S: Service<RoleServer>>(
    service: S,
    pipes: (tokio::io::Stdin, tokio::io::Stdout),
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match service.serve(pipes).await {
        Ok(running) => running.waiting().await?,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    Ok(())
}

impl Fixture {
    /// A fixture with all counters at zero.
    pub fn new(era: Era) -> Self {
        let shared = Shared { tools: catalogue::tools(), ..Shared::default() };
        Self { era, shared: Arc::new(shared), watched: Arc::default() }
    }

    /// How often `count` ran for a key; also answered at `/count/{key}`.
    pub fn executions(&self, key: &str) -> u64 {
        lock(&self.shared.executions).get(key).copied().unwrap_or(0)
    }

    fn execute(&self, key: &str) -> u64 {
        let mut executions = lock(&self.shared.executions);
        let count = executions.entry(key.to_owned()).or_default();
        *count += 1;
        *count
    }

    fn for_session(&self) -> Self {
        Self { watched: Arc::default(), ..self.clone() }
    }

    async fn run(
        &self,
        request: &CallToolRequestParams,
        cx: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(result) = content::call(request) {
            return Ok(result.into());
        }
        if let Some(response) = rounds::call(self, request, cx) {
            return response;
        }
        if let Some(result) = signal::call(self, request, cx).await {
            return result.map(Into::into);
        }
        if let Some(result) = work::call(self, request, cx).await {
            return result.map(Into::into);
        }
        if let Some(response) = tasks::call(self, request, cx).await {
            return response;
        }
        Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None))
    }

    /// Closes the event streams of the calling session; the client is expected to come back for the
    /// answers. A tool does not learn which stream is its own, so it closes them all.
    async fn close_streams(&self, cx: &RequestContext<RoleServer>) {
        let id = cx.extensions.get::<Parts>().and_then(|parts| parts.headers.get("mcp-session-id"));
        let Some(id) = id.and_then(|id| id.to_str().ok()) else { return };
        let Some(session) = self.shared.sessions.sessions.read().await.get(id).cloned() else {
            return;
        };
        for stream in 0..STREAMS_MAX {
            // Numbers of streams that are gone are refused.
            let _ = session.close_sse_stream(stream, Some(Duration::from_millis(500))).await;
        }
    }
}

impl ServerHandler for Fixture {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(match self.era {
            Era::Both => ProtocolVersion::KNOWN_VERSIONS,
            Era::Modern => &[ProtocolVersion::V_2026_07_28],
            Era::Legacy => ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25),
        })
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tasks()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let newest = match self.era {
            Era::Both | Era::Legacy => ProtocolVersion::V_2025_11_25,
            Era::Modern => ProtocolVersion::V_2026_07_28,
        };
        ServerConfig::new(capabilities)
            .with_protocol_version(newest)
            .with_server_info(Implementation::new("portcullis-fixture", env!("CARGO_PKG_VERSION")))
            .with_instructions("A server for tests. It holds nothing of value.")
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let list = ListToolsResult::with_all_items(self.shared.tools.clone());
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        rounds::push(self, request, &cx).await
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let list = ListPromptsResult::with_all_items(prompts::prompts());
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::prompt(&request)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        CompletionInfo::with_all_values(prompts::completions(&request))
            .map(CompleteResult::new)
            .map_err(|error| ErrorData::internal_error(error, None))
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = ListResourcesResult::with_all_items(resources::resources());
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let list = ListResourceTemplatesResult::with_all_items(resources::templates());
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = ReadResourceResult::new(vec![resources::contents(&request.uri)?]);
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        lock(&self.watched).insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        lock(&self.watched).remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let number = {
            let mut next = lock(&self.shared.subscription_next);
            *next += 1;
            *next
        };
        lock(&self.shared.subscriptions).insert(number, subscription.sink().clone());
        subscription.cancelled().await;
        lock(&self.shared.subscriptions).remove(&number);
        Ok(())
    }

    /// MCP 2026-07-28 has no `logging/setLevel`: a request names its own level.
    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&cx) {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "logging/setLevel", None));
        }
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.shared.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.cancel_task(&request.task_id)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("executions", &self.executions).finish_non_exhaustive()
    }
}

fn is_modern(cx: &RequestContext<RoleServer>) -> bool {
    cx.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A lock whose holder panicked still holds whole values: every change here is one statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
