//! The session of a browser: a sealed cookie that names a credential, until it is signed out of,
//! its time is over or the credential ends. Nothing is kept of it but that it was signed out of.

use super::super::Api;
use super::fault::PageFault;
use super::form::Form;
use super::login;
use crate::identity::{Admin, Pass, TokenHash, random_id};
use crate::seal::{Bound, Purpose};
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{COOKIE, HeaderMap};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The `__Host-` prefix keeps other hosts and paths from setting it (RFC 6265bis, 4.1.3.2).
const COOKIE_NAME: &str = "__Host-portcullis";
/// How long a browser stays signed in, in seconds.
const SESSION_SECONDS: u64 = 12 * 60 * 60;

/// Somebody who is signed in.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    pub(super) admin: Admin,
    // Names the session; random.
    id: String,
}

impl Visitor {
    /// A text for the forms of a page. Each page has its own, and all of a session count.
    pub(super) fn token(&self, api: &Api) -> String {
        let expires_ms = api.parked.now_ms().saturating_add(SESSION_SECONDS * 1_000);
        api.seal.seal(Purpose::Handle, &self.forms(), b"form", expires_ms)
    }

    fn forms(&self) -> Bound<'_> {
        Bound { principal: &self.id, target: "page form" }
    }

    /// Ends the session for good.
    pub(super) async fn end(&self, api: &Api) -> Result<(), PageFault> {
        let expires_ms = api.parked.now_ms().saturating_add(SESSION_SECONDS * 1_000);
        api.store.end_session(&hash(&self.id), expires_ms).await?;
        Ok(())
    }
}

/// The cookie of a new session of `admin`.
pub(super) fn begin(api: &Api, admin: &Admin) -> Result<String, PageFault> {
    let id = random_id("web_").map_err(|error| PageFault::unable(&error))?;
    let expires_ms = api.parked.now_ms().saturating_add(SESSION_SECONDS * 1_000);
    let mut payload = admin.credential().as_bytes().to_vec();
    payload.extend_from_slice(id.as_bytes());
    let value = api.seal.seal(Purpose::Session, &BOUND, &payload, expires_ms);
    Ok(cookie(&value, SESSION_SECONDS))
}

/// What makes a browser forget it.
pub(super) fn forget() -> String {
    cookie("", 0)
}

const BOUND: Bound<'static> = Bound { principal: "page", target: "session" };

fn cookie(value: &str, seconds: u64) -> String {
    format!("{COOKIE_NAME}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax")
}

/// Who sent a request, if somebody who is signed in.
pub(super) async fn visitor(api: &Api, headers: &HeaderMap) -> Result<Option<Visitor>, PageFault> {
    let Some(value) = sent(headers) else { return Ok(None) };
    let opened = api.seal.open(Purpose::Session, &BOUND, value, api.parked.now_ms());
    let Some(payload) = opened else { return Ok(None) };
    let Some((credential, id)) = payload.split_first_chunk::<32>() else { return Ok(None) };
    let Ok(id) = std::str::from_utf8(id) else { return Ok(None) };
    // A session that ended is no failed guess.
    let Ok(admin) = api.credentials.admins().find(&TokenHash::from(*credential)) else {
        return Ok(None);
    };
    if api.store.is_ended(&hash(id)).await? {
        return Ok(None);
    }
    Ok(Some(Visitor { admin, id: id.to_owned() }))
}

fn sent(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = pairs
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    // Two of them are a trick.
    values.next().filter(|_| values.next().is_none())
}

fn hash(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

/// Lets those in who are signed in, and their forms if they come from a page of ours.
pub(super) async fn inside(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    match enter(&api, request).await {
        Ok(Entered::Visitor(visitor, request)) => {
            let pass = Pass::new([visitor.admin.lease().clone()]);
            tokio::select! {
                biased;
                response = next.run(*request) => response,
                // Its credential ended while it waited.
                () = pass.over() => PageFault::signed_out().into_response(),
            }
        }
        Ok(Entered::Nobody(path)) => login::for_path(&path),
        Err(fault) => fault.into_response(),
    }
}

enum Entered {
    Visitor(Visitor, Box<Request>),
    Nobody(String),
}

async fn enter(api: &Api, mut request: Request) -> Result<Entered, PageFault> {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let Some(visitor) = visitor(api, request.headers()).await? else {
        if changes {
            return Err(PageFault::signed_out());
        }
        return Ok(Entered::Nobody(request.uri().path().to_owned()));
    };
    if changes {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, super::FORM_BYTES_MAX).await.map_err(|_| {
            PageFault::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "That is too much",
                "The form is too large; nothing was decided.",
            )
        })?;
        let form = Form::read(&parts.headers, &body)?;
        let token = form.one("form")?.unwrap_or_default();
        let opened = api.seal.open(Purpose::Handle, &visitor.forms(), token, api.parked.now_ms());
        if opened.as_deref() != Some(b"form") {
            return Err(PageFault::stale());
        }
        request = Request::from_parts(parts, axum::body::Body::empty());
        request.extensions_mut().insert(form);
    }
    request.extensions_mut().insert(visitor.admin.clone());
    request.extensions_mut().insert(visitor.clone());
    Ok(Entered::Visitor(visitor, Box::new(request)))
}
