//! The way in: a link that counts once, or a token. And the way out.

use super::super::Api;
use super::super::answer::Fault;
use super::super::runs::wall;
use super::fault::PageFault;
use super::form::Form;
use super::frame::render;
use super::session::{self, Visitor};
use crate::identity::{Admin, AdminFailure, IdentityError, TokenHash};
use crate::seal::{Bound, Purpose};
use askama::Template;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{HeaderMap, LOCATION, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// How long a link counts, in milliseconds.
const LINK_MS: u64 = 5 * 60 * 1_000;

const BOUND: Bound<'static> = Bound { principal: "page", target: "login link" };

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    /// The code of a link, to be used by a button.
    code: &'a str,
    /// The approval to go to afterwards, by its id.
    approval: &'a str,
    /// What went wrong.
    wrong: &'a str,
}

/// A link that signs a browser in, once.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LoginLink")]
pub(in crate::admin) struct Link {
    url: String,
    expires: String,
}

#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    code: String,
}

/// `POST /v1/login-links`: a link that signs its maker in, once, within five minutes.
pub(in crate::admin) async fn link(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
) -> Result<Response, Fault> {
    let expires_ms = api.parked.now_ms().saturating_add(LINK_MS);
    let code = api.seal.seal(Purpose::Handle, &BOUND, admin.credential().as_bytes(), expires_ms);
    let url = format!("{}/login?code={code}", api.url);
    Ok((StatusCode::CREATED, Json(Link { url, expires: wall(expires_ms) })).into_response())
}

/// `GET /login`: looking at a link uses nothing up.
pub(super) async fn ask(Query(asked): Query<Asked>) -> Response {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let code = if asked.code.bytes().all(plain) { asked.code.as_str() } else { "" };
    render(&LoginPage { code, approval: "", wrong: "" })
}

/// The way in for somebody who asked for `path`.
pub(super) fn for_path(path: &str) -> Response {
    let approval = path.strip_prefix("/approve/").filter(|id| is_id(id)).unwrap_or_default();
    (StatusCode::UNAUTHORIZED, render(&LoginPage { code: "", approval, wrong: "" })).into_response()
}

/// `POST /login`.
pub(super) async fn enter(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match entered(&api, &headers, &body).await {
        Ok(response) => response,
        Err(fault) => fault.into_response(),
    }
}

async fn entered(api: &Api, headers: &HeaderMap, body: &[u8]) -> Result<Response, PageFault> {
    let form = Form::read(headers, body)?;
    let approval = form.one("approval")?.filter(|id| is_id(id)).unwrap_or_default();
    let code = form.one("code")?.unwrap_or_default();
    let admin = if code.is_empty() {
        let token = form.one("token")?.unwrap_or_default();
        api.credentials.admins().identify(Some(&format!("Bearer {}", token.trim())))
    } else {
        by_code(api, code).await?
    };
    let wrong = match admin {
        Ok(admin) => {
            let cookie = session::begin(api, &admin)?;
            tracing::info!(admin = admin.name(), "signed in to the page");
            let to = match approval {
                "" => "/login/check".to_owned(),
                id => format!("/approve/{id}"),
            };
            return Ok(
                (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, to)]).into_response()
            );
        }
        Err(AdminFailure::Unauthorized(_)) if !code.is_empty() => {
            "This link was used before, or its five minutes are over. Make a new one with \
             `portcullis login-link`."
                .to_owned()
        }
        Err(AdminFailure::Unauthorized(_)) => {
            "This is no token that counts here. It begins with `pcl_admin_`.".to_owned()
        }
        Err(AdminFailure::Wait(wait)) => {
            format!("Too many wrong tokens. Try again in {} s.", wait.as_secs() + 1)
        }
    };
    let page = LoginPage { code: "", approval, wrong: &wrong };
    Ok((StatusCode::UNAUTHORIZED, render(&page)).into_response())
}

async fn by_code(api: &Api, code: &str) -> Result<Result<Admin, AdminFailure>, PageFault> {
    let admins = api.credentials.admins();
    let now_ms = api.parked.now_ms();
    let credential = api.seal.open(Purpose::Handle, &BOUND, code, now_ms);
    let credential = credential.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let Some(credential) = credential else {
        return Ok(Err(admins.failed(IdentityError::Unknown)));
    };
    // The store says who is first, also where several gateways share it.
    let used: [u8; 32] = Sha256::digest(code.as_bytes()).into();
    if !api.store.end_session(&used, now_ms.saturating_add(LINK_MS)).await? {
        return Ok(Err(admins.failed(IdentityError::Expired)));
    }
    Ok(admins.of_credential(&TokenHash::from(credential)))
}

/// `GET /login/check`: did the browser keep the cookie?
pub(super) async fn check(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    match session::visitor(&api, &headers).await {
        Ok(Some(_)) => (StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response(),
        Ok(None) => {
            let wrong = "Your browser did not keep the session. It keeps it over https, and most \
                         browsers also for http://localhost; Safari does not.";
            render(&LoginPage { code: "", approval: "", wrong })
        }
        Err(fault) => fault.into_response(),
    }
}

/// `POST /logout`
pub(super) async fn leave(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, PageFault> {
    visitor.end(&api).await?;
    let gone = [(SET_COOKIE, session::forget()), (LOCATION, "/login".to_owned())];
    Ok((StatusCode::SEE_OTHER, gone).into_response())
}

/// What is done by a form alone, asked for by its address.
pub(super) async fn home() -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response()
}

fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
