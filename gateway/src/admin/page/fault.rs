//! What a person reads when something does not work: what happened, and what to do.

use super::super::answer::Fault;
use super::frame::render;
use crate::store::StoreFault;
use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// Why a page is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageFault {
    status: StatusCode,
    title: String,
    text: String,
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage<'a> {
    title: &'a str,
    text: &'a str,
}

impl PageFault {
    pub(super) fn new(
        status: StatusCode,
        title: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self { status, title: title.into(), text: text.into() }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "That did not work", text)
    }

    pub(super) fn foreign() -> Self {
        let text = "The request did not come from a page of this gateway, or names it in a way it \
                    does not know. Nothing was decided. Open the page by its own address; \
                    `publicUrl.admin` in gateway.yaml says which that is.";
        Self::new(StatusCode::FORBIDDEN, "This is not the way in", text)
    }

    pub(super) fn stale() -> Self {
        let text = "The page was too old, or belonged to another session, so nothing was decided. \
                    Go back to what waits and decide there.";
        Self::new(StatusCode::FORBIDDEN, "This page is out of date", text)
    }

    pub(super) fn signed_out() -> Self {
        let text = "Your session has ended, so nothing was decided. Sign in again; what waits still \
                    waits.";
        Self::new(StatusCode::UNAUTHORIZED, "You are signed out", text)
    }

    pub(super) fn no_approval() -> Self {
        let text = "There is no such approval, it is not kept any more, or you may not see it. \
                    Settled ones are in the history for as long as the gateway keeps them.";
        Self::new(StatusCode::NOT_FOUND, "Nothing here", text)
    }

    pub(super) fn role(what: &str) -> Self {
        let text = format!("Your credential may not {what}. Nothing was changed.");
        Self::new(StatusCode::FORBIDDEN, "That is not for you", text)
    }

    pub(super) fn unable(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "a page could not be made");
        let text = "The gateway cannot do that at the moment; its log says why. Nothing was \
                    decided. Try again.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not at the moment", text)
    }

    /// What to do about it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<StoreFault> for PageFault {
    fn from(fault: StoreFault) -> Self {
        Self::unable(&fault)
    }
}

impl From<Fault> for PageFault {
    fn from(fault: Fault) -> Self {
        if fault.status == StatusCode::NOT_FOUND {
            return Self::no_approval();
        }
        let mut text = fault.message;
        // The API's messages begin small, as parts of sentences do.
        if let Some(first) = text.get(..1) {
            text = first.to_uppercase() + text.get(1..).unwrap_or_default();
        }
        Self::new(fault.status, "That did not work", text)
    }
}

impl IntoResponse for PageFault {
    fn into_response(self) -> Response {
        let page = FaultPage { title: &self.title, text: &self.text };
        (self.status, render(&page)).into_response()
    }
}
