//! What stands around the content of every page.

use super::super::Api;
use super::fault::PageFault;
use super::session::Visitor;
use crate::seal::Seal;
use crate::store::Store;
use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use super::super::cursor::Place;

/// Where a page stands in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// What waits.
    Waiting,
    /// What was decided.
    History,
    /// What passes without asking.
    Standing,
}

/// What stands around the content.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) at: At,
    pub(super) who: String,
    pub(super) role: &'static str,
    /// How many cards wait.
    pub(super) waiting: usize,
    /// For the forms of the page.
    pub(super) form: String,
    /// Where the events after this page begin.
    pub(super) live: String,
}

impl Frame {
    /// Made before what the page shows is read, so that nothing happens in between unseen.
    pub(super) async fn new(api: &Api, visitor: &Visitor, at: At) -> Result<Self, PageFault> {
        let live = last(&api.store, &api.seal, visitor.admin.name(), api.parked.now_ms()).await?;
        Ok(Self {
            at,
            who: visitor.admin.name().to_owned(),
            role: visitor.admin.role().as_str(),
            waiting: 0,
            form: visitor.token(api),
            live,
        })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.at == At::Waiting
    }

    pub(super) fn is_history(&self) -> bool {
        self.at == At::History
    }

    pub(super) fn is_standing(&self) -> bool {
        self.at == At::Standing
    }
}

async fn last(store: &Store, seal: &Seal, admin: &str, now_ms: u64) -> Result<String, PageFault> {
    let last = store.last_event().await?;
    Ok(Place { seal, admin, now_ms }.id_of(last))
}

/// A page as an answer.
pub(super) fn render(page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
