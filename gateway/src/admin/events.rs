//! `GET /v1/events`: what stands at first, then what happens, as server-sent events.
//!
//! The lists are the truth and events are hints. Who comes back with the id of the last event it
//! saw misses nothing and sees nothing twice, also across restarts of the gateway; who stayed
//! away longer than events are kept gets what stands again.

use super::Api;
use super::answer::{Fault, unavailable};
use super::card::{CardView, Sight};
use super::cursor::Place;
use super::runs;
use crate::identity::{Admin, Pass};
use crate::mcp::sse::{self, EventSender, Gone};
use crate::parked::Clock;
use crate::store::{EVENTS_MAX, EventRow, Filter, RunFilter, RunRow, StoreFault};
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::response::Response;
use parking_lot::Mutex;
use portcullis_policy::ledger::{self, Card};
use portcullis_policy::name::AgentName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Most streams at one time.
pub const STREAMS_MAX: usize = 256;
/// Most of them of one principal.
const STREAMS_OF_ADMIN_MAX: usize = 32;
/// Most cards in one part of what stands.
const SNAPSHOT_CARDS: usize = 50;
/// How often what stands is read until nothing happens meanwhile.
const SNAPSHOT_TRIES: u32 = 5;
/// How often a quiet stream gets a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the store is asked for what another gateway wrote.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The id of an event that was seen.
    cursor: Option<String>,
}

pub(super) async fn stream(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    headers: HeaderMap,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Fault> {
    let sight = Sight::of(&admin);
    opened((api, admin, sight), &headers, query).await
}

/// The same for a page, which asks for what it shows: no secret comes with it.
pub(super) async fn hints(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    headers: HeaderMap,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Fault> {
    opened((api, admin, Sight::Masked), &headers, query).await
}

async fn opened(
    (api, admin, sight): (Arc<Api>, Admin, Sight),
    headers: &HeaderMap,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Fault> {
    let Query(wanted) = query.map_err(|error| Fault::bad("query", error.body_text()))?;
    let place = Place { seal: &api.seal, admin: admin.name(), now_ms: Clock::system().wall_ms() };
    // A browser that connects again repeats the address it had and says where it was.
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok().map(str::to_owned));
    let after = match seen.or(wanted.cursor) {
        None => None,
        Some(text) => Some(place.event_of(&text).ok_or_else(|| {
            let message = "this is not the id of an event that you were sent, or it is too old; \
                           leave it out to be told what stands";
            Fault::bad("cursor", message)
        })?),
    };
    let Some(slot) = api.streams.take(admin.name()) else {
        let message = "too many event streams are open; close some, or ask `/v1/approvals?wait=`";
        return Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, "streams", message));
    };
    // The first look may fail, and then says so with a status.
    let after = match after {
        Some(after) => api.store.is_whole_after(after).await.map(|whole| whole.then_some(after)),
        None => Ok(None),
    };
    let after = after.map_err(|fault| unavailable(&fault))?;
    let pass = Pass::new([admin.lease().clone()]);
    let tail = Tail { api, admin, sight, after, versions: HashMap::new(), _slot: slot };
    let body = sse::Body::stream(move |events| tail.run(events));
    let body = body.until(async move { pass.over().await });
    let mut response = Response::new(Body::new(body));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

#[derive(Serialize)]
struct Standing<'a> {
    approvals: Vec<CardView<'a>>,
    runs: Vec<serde_json::Value>,
    /// True for the last part.
    done: bool,
}

struct Tail {
    api: Arc<Api>,
    admin: Admin,
    sight: Sight,
    // The last event that was looked at; `None` before anything was said.
    after: Option<i64>,
    // Cards as what stands told them: what led there is not told again.
    versions: HashMap<String, u64>,
    _slot: Slot,
}

/// The streams that are open, by principal.
#[derive(Debug, Clone, Default)]
pub struct Streams(Arc<Mutex<HashMap<String, usize>>>);

impl Streams {
    fn take(&self, admin: &str) -> Option<Slot> {
        let mut open = self.0.lock();
        let all: usize = open.values().sum();
        let own = open.entry(admin.to_owned()).or_default();
        if all >= STREAMS_MAX || *own >= STREAMS_OF_ADMIN_MAX {
            return None;
        }
        *own += 1;
        Some(Slot { streams: self.clone(), admin: admin.to_owned() })
    }
}

struct Slot {
    streams: Streams,
    admin: String,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(own) = open.get_mut(&self.admin) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.admin);
            }
        }
    }
}

enum End {
    Gone,
    Store(StoreFault),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<StoreFault> for End {
    fn from(fault: StoreFault) -> Self {
        Self::Store(fault)
    }
}

impl Tail {
    async fn run(mut self, events: EventSender) {
        // The reader comes back with what it saw last.
        if let Err(End::Store(fault)) = self.follow(&events).await {
            tracing::warn!(%fault, "a stream of events ended");
        }
    }

    async fn follow(&mut self, events: &EventSender) -> Result<(), End> {
        let mut told = self.api.store.told();
        let mut stop = self.api.stop.clone();
        let mut beat = tokio::time::interval(KEEP_ALIVE);
        loop {
            told.borrow_and_update();
            self.catch_up(events).await?;
            let stopping = async { drop(stop.wait_for(|stopping| *stopping).await) };
            tokio::select! {
                changed = tokio::time::timeout(LOOK, told.changed()) => drop(changed),
                () = stopping => return Ok(()),
                // With the beat alone, so that nobody learns when something concerns others.
                _ = beat.tick() => match self.after {
                    Some(after) => events.raw(sse::place(&self.id(after))).await?,
                    None => events.comment().await?,
                },
            }
        }
    }

    async fn catch_up(&mut self, events: &EventSender) -> Result<(), End> {
        let mut after = match self.after {
            Some(after) => after,
            None => self.tell_what_stands(events).await?,
        };
        loop {
            let rows = self.api.store.events(after, EVENTS_MAX).await?;
            for row in rows.iter().filter(|row| self.concerns(row)) {
                let id = self.id(row.id);
                events.raw(sse::named_event(Some(&id), &row.kind, &event(row))).await?;
            }
            after = rows.last().map_or(after, |row| row.id);
            self.after = Some(after);
            if rows.len() < EVENTS_MAX as usize {
                return Ok(());
            }
        }
    }

    // In parts, the last of which has the id: who breaks off before begins anew.
    async fn tell_what_stands(&mut self, events: &EventSender) -> Result<i64, End> {
        let (last, cards, runs) = self.what_stands().await?;
        self.versions = cards.iter().map(|c| (c.id().to_owned(), c.version())).collect();
        self.versions.extend(runs.iter().map(|run| (run.id.clone(), u64::MAX)));
        let mut parts = cards.chunks(SNAPSHOT_CARDS).peekable();
        let mut runs: Vec<_> = runs.iter().map(|row| runs::shown(&self.api, row)).collect();
        loop {
            let part = parts.next().unwrap_or_default();
            let done = parts.peek().is_none();
            let approvals: Vec<_> =
                part.iter().map(|card| self.api.shown_as(card, &self.admin, self.sight)).collect();
            let standing = Standing { approvals, runs: std::mem::take(&mut runs), done };
            // Views are made of texts and numbers, so they have a form.
            let data = serde_json::to_string(&standing).unwrap_or_default();
            let id = done.then(|| self.id(last));
            events.raw(sse::named_event(id.as_deref(), "snapshot", &data)).await?;
            if done {
                return Ok(last);
            }
        }
    }

    // Of one moment, unless too much happens: then what happened meanwhile is told again, and
    // the versions of cards say what of it is old.
    async fn what_stands(&self) -> Result<(i64, Vec<Card>, Vec<RunRow>), StoreFault> {
        let mut last = self.api.store.last_event().await?;
        for tries in 1.. {
            let (cards, runs) = (self.standing_cards().await?, self.standing_runs().await?);
            let now = self.api.store.last_event().await?;
            if now == last || tries == SNAPSHOT_TRIES {
                return Ok((last, cards, runs));
            }
            last = now;
        }
        Ok((last, Vec::new(), Vec::new()))
    }

    async fn standing_cards(&self) -> Result<Vec<Card>, StoreFault> {
        let live = |state: &ledger::State| !state.is_settled();
        let states = ledger::State::ALL.into_iter().filter(live).collect();
        let Some(agents) = self.admin.sees_of(Vec::new()) else { return Ok(Vec::new()) };
        let mut filter = Filter { states, agents, ..Filter::default() };
        self.api.parked.list_all(&mut filter).await
    }

    async fn standing_runs(&self) -> Result<Vec<RunRow>, StoreFault> {
        let Some(agents) = self.admin.sees_of(Vec::new()) else { return Ok(Vec::new()) };
        let filter = RunFilter { agents, live: true, ..RunFilter::default() };
        self.api.runs.list_all(filter).await
    }

    fn concerns(&self, row: &EventRow) -> bool {
        let agent = row.agent.as_deref().and_then(|agent| AgentName::new(agent).ok());
        let seen = match agent {
            Some(agent) => self.admin.may_see(&agent),
            None => self.admin.may_see_all(),
        };
        let known = self.versions.get(&row.subject).copied();
        let old = match (known, row.version) {
            (Some(known), Some(version)) => version <= known,
            // A run that stands is not told to have begun.
            (Some(_), None) => row.state.as_deref() == Some("live"),
            (None, _) => false,
        };
        seen && !old
    }

    fn id(&self, event: i64) -> String {
        let now_ms = Clock::system().wall_ms();
        Place { seal: &self.api.seal, admin: self.admin.name(), now_ms }.id_of(event)
    }
}

fn event(row: &EventRow) -> String {
    json!({
        "kind": row.kind,
        "id": row.subject,
        "agent": row.agent,
        "run": row.run,
        "state": row.state,
        "version": row.version,
        "at": runs::wall(row.at_ms),
    })
    .to_string()
}
