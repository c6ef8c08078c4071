//! `GET /standing`: what passes without asking, and its end.

use super::super::Api;
use super::super::grants;
use super::fault::PageFault;
use super::frame::{At, Frame, render};
use super::list::waiting;
use super::session::Visitor;
use super::time::Moment;
use crate::plain::plain;
use crate::store::{GrantFilter, GrantRow};
use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use portcullis_policy::ledger::Covers;
use std::sync::Arc;

#[derive(Template)]
#[template(path = "standing.html")]
struct StandingPage {
    frame: Frame,
    grants: Vec<GrantLine>,
    may_decide: bool,
}

struct GrantLine {
    id: String,
    card: String,
    agent: String,
    run: Option<String>,
    server: String,
    tool: String,
    covers: &'static str,
    by: String,
    created: Moment,
    expires: Moment,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, PageFault> {
    let mut frame = Frame::new(&api, &visitor, At::Standing).await?;
    frame.waiting = waiting(&api, &visitor.admin).await?.len();
    let now_ms = api.parked.now_ms();
    let rows = match visitor.admin.sees_of(Vec::new()) {
        None => Vec::new(),
        Some(agents) => {
            let live_at_ms = Some(now_ms);
            api.store.grants(&GrantFilter { agents, live_at_ms, ..GrantFilter::default() }).await?
        }
    };
    let grants = rows.iter().map(|row| line(row, now_ms)).collect();
    Ok(render(&StandingPage { frame, grants, may_decide: visitor.admin.may_decide() }))
}

fn line(row: &GrantRow, now_ms: u64) -> GrantLine {
    let grant = &row.grant;
    GrantLine {
        id: grant.id.clone(),
        card: grant.card.clone(),
        agent: grant.agent.to_string(),
        run: grant.run.as_deref().map(plain),
        server: grant.server.to_string(),
        tool: plain(grant.tool.as_str()),
        covers: match grant.covers() {
            Covers::Arguments => "this exact call",
            Covers::Tool => "any call of it",
        },
        by: plain(&grant.by.name),
        created: Moment::past(grant.created_ms, now_ms),
        expires: Moment::ahead(grant.expires_ms.saturating_sub(now_ms), now_ms),
    }
}

/// `POST /standing/{id}/end`
pub(super) async fn end(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, PageFault> {
    grants::ended(&api, &visitor.admin, &id).await?;
    Ok((StatusCode::SEE_OTHER, [(LOCATION, "/standing")]).into_response())
}
