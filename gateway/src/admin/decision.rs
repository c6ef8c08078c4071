//! `POST /v1/approvals/{id}/decision`: on record first, then in effect.

use super::Api;
use super::answer::Fault;
use super::approvals::{find, unavailable};
use crate::audit::{AuditError, Choice, Decided};
use crate::identity::Admin;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use portcullis_policy::canonical::Digest;
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{self, Card, Decider, Verdict};
use serde::Deserialize;
use std::sync::Arc;

use crate::parked::DecideError;

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 2_000;

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

/// A decision on exactly what its maker saw.
#[derive(Clone)]
struct Word {
    verdict: Verdict,
    digest: Option<Digest>,
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
    if word.digest.is_some_and(|digest| digest != card.asked().digest) {
        return Err(wrong_digest());
    }
    // A card that is decided already gets no second record: nothing can come of it.
    let open = card.state() == ledger::State::Parked;
    if open {
        record(&api, &admin, &card, &word, Step::Before).await?;
    }
    let by = Decider { name: admin.name().to_owned(), role: Approver::Human };
    let decided = api.parked.decide(card.id(), word.verdict.clone(), word.digest, &by).await;
    match decided {
        Ok(card) => {
            if open {
                let asked = card.asked();
                let tool = (asked.server.as_str(), asked.tool.as_str());
                api.metrics.decided(&asked.agent, tool, choice(&word.verdict));
            }
            Ok(Json(api.shown(&card, &admin)).into_response())
        }
        Err(error) => {
            if open {
                record(&api, &admin, &card, &word, Step::Void(error.to_string())).await?;
            }
            refused(&api, &admin, &error)
        }
    }
}

/// Which record of a decision.
enum Step {
    Before,
    Void(String),
}

// Writing waits for the disk, so it has a thread of its own.
async fn record(
    api: &Arc<Api>,
    admin: &Admin,
    card: &Card,
    word: &Word,
    step: Step,
) -> Result<(), Fault> {
    let (audit, by, card, word) =
        (Arc::clone(&api.audit), admin.name().to_owned(), card.clone(), word.clone());
    let written = tokio::task::spawn_blocking(move || {
        let asked = card.asked();
        let decided = Decided {
            card: card.id(),
            agent: &asked.agent,
            run: &asked.run,
            server: &asked.server,
            tool: asked.tool.as_str(),
            arguments: asked.digest,
            choice: choice(&word.verdict),
            reason: reason(&word.verdict),
            by: &by,
        };
        match step {
            Step::Before => audit.decision(&decided),
            Step::Void(why) => audit.decision_void(&decided, &why),
        }
    })
    .await;
    match written {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(unrecorded(&error)),
        Err(error) => {
            tracing::error!(%error, "the record of a decision was not written");
            Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, "audit", NOT_RECORDED))
        }
    }
}

const NOT_RECORDED: &str =
    "the decision cannot be put on record, so it has no effect; see the gateway's log";

fn unrecorded(error: &AuditError) -> Fault {
    tracing::error!(%error, "a decision could not be recorded");
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, "audit", NOT_RECORDED)
}

fn refused(api: &Api, admin: &Admin, error: &DecideError) -> Result<Response, Fault> {
    match error {
        DecideError::Unknown => Err(Fault::no_approval()),
        DecideError::Settled(card) => {
            Ok((StatusCode::CONFLICT, Json(api.shown(card, admin))).into_response())
        }
        DecideError::WrongDigest => Err(wrong_digest()),
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
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = media.map(|media| media.split(';').next().unwrap_or_default().trim());
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let message = "send the decision as `application/json`";
        return Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", message));
    }
    let wire: WireDecision = serde_json::from_slice(body)
        .map_err(|error| Fault::bad("body", format!("the decision cannot be read: {error}")))?;
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

fn wrong_digest() -> Fault {
    Fault::bad(
        "wrong_digest",
        "the digest is not that of the card; read the card again and decide on what it shows",
    )
}

fn choice(verdict: &Verdict) -> Choice {
    match verdict {
        Verdict::Approve => Choice::Approve,
        Verdict::Deny { .. } => Choice::Deny,
    }
}

fn reason(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Deny { reason } if !reason.is_empty() => Some(reason),
        Verdict::Approve | Verdict::Deny { .. } => None,
    }
}
