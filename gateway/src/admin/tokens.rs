//! `/v1/tokens`: an operator makes, lists and revokes tokens. A token is shown once.

use super::Api;
use super::answer::{Fault, json_body, unavailable};
use super::runs::{name, wall};
use crate::config;
use crate::identity::Admin;
use crate::runs::{NewToken, TokenError};
use crate::store::{Holder, TokenRow};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::source::duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Longest note, in characters.
const NOTE_CHARS_MAX: usize = 200;
/// Longest time that a token and the one that replaces it both count.
const OVERLAP_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The same, if nothing is said.
const OVERLAP_DEFAULT: Duration = Duration::from_secs(3_600);

/// Tokens that were made here; those of files are in the files.
#[derive(Serialize, JsonSchema)]
pub(super) struct TokenList {
    items: Vec<TokenView>,
}

/// A token, of an agent or of an admin principal.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Token")]
pub(super) struct TokenView {
    id: String,
    agent: Option<String>,
    admin: Option<String>,
    role: Option<String>,
    /// The agents of a harness.
    agents: Vec<String>,
    note: String,
    /// `live`, `expired` or `revoked`.
    state: &'static str,
    created: String,
    created_by: String,
    expires: Option<String>,
    revoked: Option<String>,
    /// The token itself, in the answer that makes it and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

/// A token to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(rename = "NewToken")]
pub(super) struct WireToken {
    /// The agent it stands for; or `admin` and `role`.
    agent: Option<String>,
    /// The name of an admin principal.
    admin: Option<String>,
    role: Option<String>,
    /// The agents of a harness.
    agents: Option<Vec<String>>,
    /// A time such as `2027-01-31T00:00:00Z`, or how long from now, such as `30d`.
    expires: Option<String>,
    #[serde(default)]
    note: String,
    /// The id of a token of the same holder that this one takes the place of.
    replaces: Option<String>,
    /// How long the old one still counts, such as `1h`.
    overlap: Option<String>,
}

pub(super) async fn create(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    if !admin.may_mint() {
        return Err(Fault::role("make tokens"));
    }
    let wire: WireToken = json_body(&headers, &body)?;
    let holder = holder(&api, &wire)?;
    if wire.note.chars().count() > NOTE_CHARS_MAX {
        let message = format!("`note` has at most {NOTE_CHARS_MAX} characters");
        return Err(Fault::bad("note", message));
    }
    let overlap = match (&wire.replaces, &wire.overlap) {
        (None, Some(_)) => {
            return Err(Fault::bad("overlap", "`overlap` goes with `replaces` only"));
        }
        (_, None) => OVERLAP_DEFAULT,
        (Some(_), Some(text)) => duration(text, Duration::ZERO..=OVERLAP_MAX)
            .map_err(|message| Fault::bad("overlap", format!("`overlap`: {message}")))?,
    };
    let new = NewToken {
        holder,
        expires: wire.expires.as_deref().map(expires).transpose()?,
        note: wire.note,
        replaces: wire.replaces.map(|id| (id, overlap)),
        by: admin.name().to_owned(),
    };
    let made = api.credentials.create(new).await.map_err(|error| not_done(&error))?;
    let (row, token) = made;
    let token = Some(token.reveal().to_owned());
    Ok((StatusCode::CREATED, Json(TokenView { token, ..view(&row) })).into_response())
}

fn holder(api: &Api, wire: &WireToken) -> Result<Holder, Fault> {
    match (&wire.agent, &wire.admin) {
        (Some(agent), None) => {
            if wire.role.is_some() || wire.agents.is_some() {
                return Err(Fault::bad("role", "`role` and `agents` go with `admin` only"));
            }
            let agent = name(agent, "agent")?;
            if (api.views.agent)(&agent).is_none() {
                let message = format!("no policy defines agent `{agent}`; define it first");
                return Err(Fault::new(StatusCode::NOT_FOUND, "agent", message));
            }
            Ok(Holder::Agent(agent))
        }
        (None, Some(admin)) => {
            let visible = !admin.trim().is_empty() && !admin.contains(char::is_control);
            if !visible || admin.len() > 128 {
                let message = "`admin` is a name of 1 to 128 visible characters";
                return Err(Fault::bad("admin", message));
            }
            let Some(role) = wire.role.clone() else {
                return Err(Fault::bad("role", "an admin token needs `role`"));
            };
            let harness = role.starts_with("harness");
            let listed = wire.agents.iter().flatten();
            let agents: Vec<_> =
                listed.map(|agent| name(agent, "agents")).collect::<Result<_, _>>()?;
            if harness == agents.is_empty() {
                let message = "`agents` is the list of agents of a `harness`, and of no other role";
                return Err(Fault::bad("agents", message));
            }
            Ok(Holder::Admin { name: admin.clone(), role, agents })
        }
        (Some(_), Some(_)) | (None, None) => {
            Err(Fault::bad("holder", "a token needs `agent`, or `admin` and `role`"))
        }
    }
}

fn expires(text: &str) -> Result<SystemTime, Fault> {
    let wrong = || {
        let message = "`expires` is a time such as `2027-01-31T00:00:00Z`, or how long from now, \
                       such as `30d`";
        Fault::bad("expires", message)
    };
    let at = if let Some(ms) = config::rfc3339_ms(text) {
        let ms = u64::try_from(ms).map_err(|_| wrong())?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    } else {
        let time = duration(text, Duration::from_secs(1)..=Duration::MAX).map_err(|_| wrong())?;
        SystemTime::now().checked_add(time)
    };
    at.filter(|at| *at > SystemTime::now()).ok_or_else(wrong)
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
) -> Result<Response, Fault> {
    if !admin.may_see_all() {
        return Err(Fault::role("read the tokens of all agents"));
    }
    let rows = api.credentials.list().await.map_err(|fault| unavailable(&fault))?;
    Ok(Json(TokenList { items: rows.iter().map(view).collect() }).into_response())
}

pub(super) async fn revoke(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    if !admin.may_mint() {
        return Err(Fault::role("revoke tokens"));
    }
    let row = api.credentials.revoke(&id, admin.name()).await.map_err(|error| not_done(&error))?;
    Ok(Json(view(&row)).into_response())
}

fn view(row: &TokenRow) -> TokenView {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let over = row.expires_ms.is_some_and(|ms| u128::from(ms) <= now.as_millis());
    let state = match (row.revoked_ms, over) {
        (Some(_), _) => "revoked",
        (None, true) => "expired",
        (None, false) => "live",
    };
    let (agent, admin, role, agents) = match &row.holder {
        Holder::Agent(agent) => (Some(agent.to_string()), None, None, Vec::new()),
        Holder::Admin { name, role, agents } => {
            let agents = agents.iter().map(ToString::to_string).collect();
            (None, Some(name.clone()), Some(role.clone()), agents)
        }
    };
    TokenView {
        id: row.id.clone(),
        agent,
        admin,
        role,
        agents,
        note: row.note.clone(),
        state,
        created: wall(row.created_ms),
        created_by: row.created_by.clone(),
        expires: row.expires_ms.map(wall),
        revoked: row.revoked_ms.map(wall),
        token: None,
    }
}

fn not_done(error: &TokenError) -> Fault {
    let (status, code) = match error {
        TokenError::Unknown(_) => (StatusCode::NOT_FOUND, "not_found"),
        TokenError::Foreign(_) | TokenError::Over(_) => (StatusCode::CONFLICT, "replaces"),
        TokenError::Name(_) => (StatusCode::CONFLICT, "admin"),
        TokenError::Role(_) => (StatusCode::BAD_REQUEST, "role"),
        TokenError::Full => (StatusCode::TOO_MANY_REQUESTS, "full"),
        TokenError::Store(fault) => return unavailable(fault),
        TokenError::Stop(_) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        TokenError::Audit(_) | TokenError::Random(_) => {
            tracing::error!(%error, "a token was not changed");
            (StatusCode::SERVICE_UNAVAILABLE, "audit")
        }
    };
    Fault::new(status, code, error.to_string())
}
