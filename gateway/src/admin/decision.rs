//! `POST /v1/approvals/{id}/decision`: on record first, then in effect.

use super::Api;
use super::answer::{Fault, json_body, unavailable};
use super::approvals::find;
use crate::decisions::{DecisionFault, REASON_CHARS_MAX, Word};
use crate::identity::Admin;
use crate::parked::DecideError;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::canonical::Digest;
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Decider, Verdict};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireDecision {
    decision: WireChoice,
    digest: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum WireChoice {
    Approve,
    Deny,
}

pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    Extension(admin): Extension<Admin>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let word = read(&headers, &body)?;
    if !admin.may_decide() {
        return Err(Fault::role("decide"));
    }
    let card = find(&api.parked, &admin, &id).await?;
    let by = Decider { name: admin.name().to_owned(), role: Approver::Human };
    match api.decisions.decide(&card, &word, &by).await {
        Ok(card) => Ok(Json(api.shown(&card, &admin)).into_response()),
        Err(error) => refused(&api, &admin, &error),
    }
}

fn refused(api: &Api, admin: &Admin, error: &DecisionFault) -> Result<Response, Fault> {
    let error = match error {
        DecisionFault::Record => {
            return Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, "audit", error.to_string()));
        }
        DecisionFault::Decide(error) => error,
    };
    match error {
        DecideError::Unknown => Err(Fault::no_approval()),
        DecideError::Settled(card) => {
            Ok((StatusCode::CONFLICT, Json(api.shown(card, admin))).into_response())
        }
        DecideError::WrongDigest => Err(Fault::bad("wrong_digest", error.to_string())),
        DecideError::NotApprover(_) => {
            Err(Fault::new(StatusCode::FORBIDDEN, "not_approver", error.to_string()))
        }
        DecideError::Store(fault) => Err(unavailable(fault)),
        DecideError::Stopping => {
            Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string()))
        }
    }
}

fn read(headers: &HeaderMap, body: &[u8]) -> Result<Word, Fault> {
    let wire: WireDecision = json_body(headers, body)?;
    let digest = match wire.digest {
        None => None,
        Some(text) => Some(Digest::parse(&text).ok_or_else(|| {
            Fault::bad("digest", "`digest` is `sha256:` and 64 lower-case hex digits")
        })?),
    };
    let reason = wire.reason.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        let message = format!("`reason` has at most {REASON_CHARS_MAX} characters");
        return Err(Fault::bad("reason", message));
    }
    match wire.decision {
        WireChoice::Approve if digest.is_none() => Err(Fault::bad(
            "digest_missing",
            "an approval names the `digest` of the card, so that it covers what was shown",
        )),
        WireChoice::Approve if !reason.is_empty() => {
            Err(Fault::bad("reason", "`reason` goes with `deny` only"))
        }
        WireChoice::Approve => Ok(Word { verdict: Verdict::Approve, digest }),
        WireChoice::Deny => Ok(Word { verdict: Verdict::Deny { reason }, digest }),
    }
}
