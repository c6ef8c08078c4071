//! Answers of the admin API: JSON, never stored, never framed.

use crate::store::StoreFault;
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

/// Why a request of the API is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    /// A stable word for programs.
    pub(super) code: &'static str,
    /// What to do about it, for people.
    pub(super) message: String,
}

/// Why a request was not served.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct Body<'a> {
    error: BodyError<'a>,
}

/// A word for programs and a text for people.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Fault")]
pub(super) struct BodyError<'a> {
    /// Stable.
    code: &'a str,
    /// What to do about it.
    message: &'a str,
}

impl Fault {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn body(&self) -> BodyError<'_> {
        BodyError { code: self.code, message: &self.message }
    }

    pub(super) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn no_approval() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is no such approval")
    }

    pub(super) fn role(may: &str) -> Self {
        let message = format!("this credential may not {may}");
        Self::new(StatusCode::FORBIDDEN, "role", message)
    }
}

/// Reads a JSON body strictly.
pub(super) fn json_body<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Fault> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = media.map(|media| media.split(';').next().unwrap_or_default().trim());
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let message = "send the body as `application/json`";
        return Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", message));
    }
    serde_json::from_slice(body)
        .map_err(|error| Fault::bad("body", format!("the body cannot be read: {error}")))
}

/// A view as the text it is sent as: numbers in it keep their spelling.
pub(super) fn raw(view: &impl Serialize) -> Result<Box<RawValue>, Fault> {
    to_raw_value(view)
        .map_err(|error| Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "view", error.to_string()))
}

/// The answer when the store fails; the cause is for the log.
pub(super) fn unavailable(error: &StoreFault) -> Fault {
    tracing::error!(%error, "the store failed");
    let message = "the store cannot be used at the moment; see the gateway's log";
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, "store", message)
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = Body { error: self.body() };
        (self.status, Json(body)).into_response()
    }
}

/// The headers of every answer.
pub(super) fn strict(headers: &mut HeaderMap) {
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
