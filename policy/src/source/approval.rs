//! The key `approval` of an agent: who decides, how many of them, and how long all may wait.

use super::agent::LIMIT_MAX;
use super::reader::Reader;
use super::wire;
use crate::definition::{Approval, Approver, OnCallerGone, OnNoApprover, StandingMost};
use serde_saphyr::Spanned;
use std::time::Duration;

/// Longest time that a card may wait for a decision or for its caller.
pub const CARD_WAIT_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Longest time that a call is held on the wire.
pub const HOLD_MAX: Duration = Duration::from_secs(3_600);

const SECOND: Duration = Duration::from_secs(1);
const ROLES: &[(&str, Approver)] =
    &[("parent", Approver::Parent), ("human", Approver::Human), ("user", Approver::User)];
const STANDING: &[(&str, StandingMost)] = &[
    ("never", StandingMost::Never),
    ("arguments", StandingMost::Arguments),
    ("tool", StandingMost::Tool),
];

pub(super) fn approval(reader: &mut Reader<'_>, wire: &wire::Approval) -> Approval {
    let usual = Approval::default();
    let mut time = |text: &Option<wire::Text>, most: Duration| {
        text.as_ref().and_then(|text| reader.duration(text, SECOND..=most))
    };
    let decide_within = time(&wire.decide_within, CARD_WAIT_MAX);
    let use_within = time(&wire.use_within, CARD_WAIT_MAX);
    let hold = time(&wire.hold, HOLD_MAX);
    let on_no_approver = wire.on_no_approver.as_ref().and_then(|text| {
        reader.choice(text, &[("wait", OnNoApprover::Wait), ("deny", OnNoApprover::Deny)])
    });
    let on_caller_gone = wire.on_caller_gone.as_ref().and_then(|text| {
        reader.choice(text, &[("keep", OnCallerGone::Keep), ("settle", OnCallerGone::Settle)])
    });
    let standing = wire.standing.as_ref().and_then(|text| reader.choice(text, STANDING));
    let (approvers, count) = match &wire.approvers {
        None => (usual.approvers, 1),
        Some(written) => several(reader, written),
    };
    let user = user(reader, wire, &approvers);
    Approval {
        approvers,
        count,
        user,
        standing: standing.unwrap_or(usual.standing),
        decide_within: decide_within.unwrap_or(usual.decide_within),
        use_within: use_within.unwrap_or(usual.use_within),
        on_no_approver: on_no_approver.unwrap_or(usual.on_no_approver),
        on_caller_gone: on_caller_gone.unwrap_or(usual.on_caller_gone),
        hold,
    }
}

fn several(reader: &mut Reader<'_>, written: &Spanned<wire::Approvers>) -> (Vec<Approver>, u32) {
    let several = match &written.value {
        wire::Approvers::AnyOne(listed) => return (roles(reader, listed, written), 1),
        wire::Approvers::Several(several) => several,
    };
    let approvers = roles(reader, &several.any_of.value, &several.any_of);
    let count = reader.count(&several.count, 1..=LIMIT_MAX).unwrap_or(1);
    // One run is the parent and one person the user; of the others there may be any number.
    let there_are = u32::try_from(approvers.len()).unwrap_or(u32::MAX);
    if !approvers.is_empty() && !approvers.contains(&Approver::Human) && count > there_are {
        let text = format!(
            "`count: {count}` can never be reached: of `parent` and `user` there is one each; add \
             `human` to `anyOf` or lower the count"
        );
        reader.error("bad_number", &reader.place(&several.count), text);
    }
    (approvers, count)
}

fn roles<T>(reader: &mut Reader<'_>, listed: &[wire::Text], at: &Spanned<T>) -> Vec<Approver> {
    if listed.is_empty() {
        let text = "`approvers` is empty, so nobody could approve; write `[parent, human]`, or \
                    leave out of `allow` what must never run";
        reader.error("missing_value", &reader.place(at), text);
    }
    let mut approvers = Vec::new();
    for text in listed {
        let Some(approver) = reader.choice(text, ROLES) else { continue };
        if approvers.contains(&approver) {
            let message = format!("`{}` stands twice; keep one", approver.as_str());
            reader.error("duplicate_value", &reader.place(text), message);
            continue;
        }
        approvers.push(approver);
    }
    approvers
}

fn user(reader: &mut Reader<'_>, wire: &wire::Approval, approvers: &[Approver]) -> Option<String> {
    let listed = approvers.contains(&Approver::User);
    match (&wire.user, &wire.approvers) {
        (Some(name), _) if name.value.trim().is_empty() => {
            let text = "`user` is empty; write the name of the admin principal for whom this \
                        agent works";
            reader.error("missing_value", &reader.place(name), text);
            None
        }
        (Some(name), _) if !listed => {
            let text = "`user` decides nothing here: add `user` to `approvers`, or remove the key";
            reader.error("unused_key", &reader.place(name), text);
            None
        }
        (None, Some(written)) if listed => {
            let text = "`approvers` lists `user`, but nobody says who that is; add `user: NAME` \
                        beside it, the name of an admin principal";
            reader.error("missing_key", &reader.place(written), text);
            None
        }
        (name, _) => name.as_ref().map(|name| name.value.clone()),
    }
}
