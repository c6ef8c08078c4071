//! What the caller of a parked call reads. A role is named, never an approver.

use super::{Card, Outcome, State, Verdict};
use crate::decide::shown;
use crate::definition::Approver;

/// Longest reason or detail that a caller reads, in characters.
pub const DETAIL_CHARS_MAX: usize = 2_000;

/// The word for who decides.
#[must_use]
pub fn role(approver: Approver) -> &'static str {
    match approver {
        Approver::Parent => "parent",
        Approver::Human => "operator",
        Approver::User => "user",
    }
}

/// What a caller reads while it waits.
#[must_use]
pub fn waiting(card: &Card) -> String {
    let roles: Vec<_> = card.asked().approvers.iter().map(|approver| role(*approver)).collect();
    let asked = card.asked();
    let voted = card.votes().len();
    let of = if asked.count > 1 {
        format!(" ({voted} of {} approvals)", asked.count)
    } else {
        String::new()
    };
    format!("waiting for approval `{}` by {}{of}", card.id(), roles.join(" or "))
}

/// What a caller reads that cannot wait any longer.
#[must_use]
pub fn pending(card: &Card) -> String {
    format!(
        "This call did NOT run. Approval `{}` is pending. Collect with `approval_status` and this id, \
         or make the identical call again.",
        card.id()
    )
}

/// What a caller reads whose call ended without an answer of the tool; `None` while the card
/// lives and for a call that ran.
#[must_use]
pub fn settled(card: &Card) -> Option<String> {
    let name = shown(&card.asked().exposed);
    let detail = clause(card.detail());
    let text = match card.state() {
        State::Parked | State::Approved | State::Executing => return None,
        State::Done => match card.outcome() {
            Some(Outcome::NotSent) => {
                format!("{name} was approved but not sent: {detail}. It did not run.")
            }
            Some(Outcome::Ok | Outcome::ToolError | Outcome::RpcError) | None => return None,
        },
        State::Unknown => format!(
            "{name}: outcome unknown, it may have run ({detail}). Find out whether it took effect \
             before you call it again."
        ),
        State::Denied => denied(card, &name),
        State::Expired => format!(
            "{name}: nobody decided in {}; it did not run.",
            duration(card.asked().decide_within_ms)
        ),
        State::Lapsed => format!(
            "{name} was approved, but nobody collected it in {}; it did not run. Make the identical \
             call to ask again.",
            duration(card.asked().use_within_ms)
        ),
        State::Revoked => card.detail().to_owned(),
        State::Stopped => format!("{name} was stopped: {detail}. It did not run."),
        State::Cancelled => format!("{name} was cancelled: {detail}. It did not run."),
    };
    Some(text)
}

/// What a caller reads whose call ran, but whose answer is not there any more: `bytes` long if
/// it was too long to keep, else handed over before or too old.
#[must_use]
pub fn not_kept(card: &Card, bytes: Option<u64>) -> String {
    let name = shown(&card.asked().exposed);
    let at = utc(card.updated_ms());
    match bytes {
        Some(bytes) => format!("{name} ran at {at}; its answer of {bytes} bytes was not kept."),
        None => {
            format!(
                "{name} ran at {at}; its answer was handed over before or is not kept any more."
            )
        }
    }
}

fn denied(card: &Card, name: &str) -> String {
    let Some(decision) = card.decision() else {
        return format!("{name} was denied. It did not run.");
    };
    let by = role(decision.by.role);
    match &decision.verdict {
        Verdict::Deny { reason } if !reason.trim().is_empty() => {
            format!("{name} was denied by the {by}: {}. It did not run.", clause(reason))
        }
        Verdict::Deny { .. } | Verdict::Approve => {
            format!("{name} was denied by the {by}, without a reason. It did not run.")
        }
    }
}

// A text as part of a sentence: cut to its limit, without the full stop at its end.
fn clause(text: &str) -> String {
    let text = text.trim();
    let cut: String = text.chars().take(DETAIL_CHARS_MAX).collect();
    if cut.len() < text.len() {
        return format!("{cut}…");
    }
    cut.trim_end_matches('.').to_owned()
}

/// A duration as people write it: `10m`, `1h30m`, `45s`, `250ms`.
#[must_use]
pub fn duration(ms: u64) -> String {
    let parts = [
        (ms / 3_600_000, "h"),
        (ms / 60_000 % 60, "m"),
        (ms / 1_000 % 60, "s"),
        (ms % 1_000, "ms"),
    ];
    let text: String = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A wall time in UTC, to the second: `2026-11-30T13:38:29Z`.
#[must_use]
pub fn utc(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days, for days after 1970: years start in March.
    let shifted = days + 719_468;
    let era_day = shifted % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let march_month = (5 * year_day + 2) / 153;
    let day = year_day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era_year + shifted / 146_097 * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
