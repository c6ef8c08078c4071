//! Cards below a run: listed, awaited, decided.

use super::{ChildTool, Done, Refused, read};
use crate::asked::Asked;
use crate::decisions::{DecisionFault, Wish, WishedChoice};
use crate::parked::{Clock, DecideError};
use crate::run::cancelled;
use crate::store::Named;
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Card, Decider, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Most cards that one list shows.
const SHOWN_MAX: usize = 100;
/// Most decisions in one call.
const DECISIONS_MAX: usize = 50;
/// Longest wait: shorter than the time that clients give a call.
const WAIT_MAX: Duration = Duration::from_secs(50);
const WAIT_DEFAULT: u64 = 20;
/// Most approvals that one call watches.
const WATCHED_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    run: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Waiting {
    ids: Option<Vec<String>>,
    mode: Option<Mode>,
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Any,
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deciding {
    decisions: Vec<Wish>,
}

/// `approvals_list`.
pub(super) fn list(asked: &Asked, arguments: &str) -> Done {
    let Listing { run } = read(ChildTool::List, arguments)?;
    let cards = waiting(asked, |card| {
        let of = |id: &String| {
            let asked = card.asked();
            asked.run == *id || asked.is_below(id)
        };
        run.as_ref().is_none_or(of)
    });
    Ok(shown(&cards))
}

/// `approvals_wait`.
pub(super) async fn wait(asked: &Asked, arguments: &str) -> Done {
    let wanted: Waiting = read(ChildTool::Wait, arguments)?;
    let seconds = wanted.timeout_seconds.unwrap_or(WAIT_DEFAULT);
    let until = Instant::now() + Duration::from_secs(seconds).min(WAIT_MAX);
    let mode = wanted.mode.unwrap_or(Mode::Any);
    let in_flight = asked.enter();
    if let Some(ids) = &wanted.ids {
        let distinct: HashSet<&String> = ids.iter().collect();
        if ids.len() > WATCHED_MAX || distinct.len() < ids.len() {
            let text = format!("`ids` has at most {WATCHED_MAX} entries, each once.");
            return Err(Refused::arguments(text));
        }
    }
    // Followed before the first look, so that nothing happens between them unseen.
    let mut changes = asked.shared.parked.changes();
    loop {
        changes.borrow_and_update();
        let (done, mut found) = match &wanted.ids {
            None => {
                let cards = waiting(asked, |card| card.state() == State::Parked && decidable(card));
                (!cards.is_empty(), shown(&cards))
            }
            Some(ids) => watched(asked, ids, mode).await?,
        };
        let timed_out = !done
            && tokio::select! {
                changed = timeout_at(until, changes.changed()) => changed.is_err(),
                () = asked.shared.stopping() => true,
                () = cancelled(in_flight.as_ref()) => true,
            };
        if done || timed_out {
            if let Some(found) = found.as_object_mut() {
                found.insert("timedOut".to_owned(), Value::Bool(timed_out));
            }
            return Ok(found);
        }
    }
}

async fn watched(asked: &Asked, ids: &[String], mode: Mode) -> Result<(bool, Value), Refused> {
    let mut items = Vec::new();
    let mut decided = 0;
    for id in ids {
        let card = below(asked, id).await?.ok_or_else(|| unknown(id))?;
        decided += usize::from(card.state() != State::Parked);
        items.push(item(&card));
    }
    let done = match mode {
        Mode::Any => decided > 0 || ids.is_empty(),
        Mode::All => decided == ids.len(),
    };
    Ok((done, json!({"items": items})))
}

/// `approvals_decide`.
pub(super) async fn decide(asked: &Asked, arguments: &str) -> Done {
    let Deciding { decisions } = read(ChildTool::Decide, arguments)?;
    let mut seen = HashSet::new();
    if decisions.is_empty() || decisions.len() > DECISIONS_MAX {
        let text = format!("`decisions` has 1 to {DECISIONS_MAX} entries. Nothing was decided.");
        return Err(Refused::arguments(text));
    }
    for wish in &decisions {
        let Some(id) = &wish.id else {
            return Err(Refused::arguments("Every decision names its `id`. Nothing was decided."));
        };
        if !seen.insert(id) {
            let id = portcullis_policy::decide::shown(id);
            return Err(Refused::arguments(format!("{id} stands twice. Nothing was decided.")));
        }
    }
    let mut results = Vec::with_capacity(decisions.len());
    for mut wish in decisions {
        let id = wish.id.take().unwrap_or_default();
        results.push(decide_one(asked, &id, wish).await);
    }
    Ok(json!({"results": results}))
}

async fn decide_one(asked: &Asked, id: &str, wish: Wish) -> Value {
    let outcome = decided(asked, id, wish).await;
    match outcome {
        Ok(card) => json!({"id": id, "done": true, "state": card.state().as_str()}),
        Err(Verdictless { why, state }) => {
            json!({"id": id, "done": false, "why": why, "state": state.map(State::as_str)})
        }
    }
}

struct Verdictless {
    why: String,
    state: Option<State>,
}

async fn decided(asked: &Asked, id: &str, wish: Wish) -> Result<Card, Verdictless> {
    let no = |why: String| Verdictless { why, state: None };
    let card = below(asked, id).await.map_err(|refused| no(refused.text))?;
    let card = card.ok_or_else(|| no(unknown(id).text))?;
    if wish.decision == WishedChoice::Approve && !card.asked().secret.is_empty() {
        let why = "its arguments hold secrets that are not shown here, so an operator approves it";
        return Err(no(why.to_owned()));
    }
    if wish.digest.is_none() {
        return Err(no("name the `digest` of what you were shown".to_owned()));
    }
    let principal = &asked.visit.principal;
    let by = Decider::parent(&principal.agent, &principal.run);
    match asked.shared.decisions.wish(&card, wish, &by).await {
        Ok(card) => Ok(card),
        Err(DecisionFault::Decide(DecideError::Settled(card))) => Err(Verdictless {
            why: "it was settled before this decision".to_owned(),
            state: Some(card.state()),
        }),
        Err(DecisionFault::Decide(DecideError::Store(fault))) => {
            Err(no(Refused::failed("the decision was not stored", &fault).text))
        }
        Err(error) => Err(no(error.to_string())),
    }
}

// The live cards below the asker, the oldest first.
fn waiting(asked: &Asked, pick: impl Fn(&Card) -> bool) -> Vec<Arc<Card>> {
    let asker = &asked.visit.principal.run;
    let mut cards = asked.shared.parked.live(|card| card.asked().is_below(asker) && pick(card));
    cards.sort_by(|a, b| (a.created_ms(), a.id()).cmp(&(b.created_ms(), b.id())));
    cards
}

// The card of that id, if it is below the asker.
async fn below(asked: &Asked, id: &str) -> Result<Option<Card>, Refused> {
    let asker = &asked.visit.principal.run;
    if let Some(card) = asked.shared.parked.live_card(id) {
        return Ok(Some((*card).clone()).filter(|card| card.asked().is_below(asker)));
    }
    let found = asked.shared.parked.get(id).await;
    let found = found.map_err(|fault| Refused::failed("an approval could not be read", &fault))?;
    Ok(match found {
        Named::One(card) if card.id() == id && card.asked().is_below(asker) => Some(*card),
        Named::One(_) | Named::None | Named::Several => None,
    })
}

fn unknown(id: &str) -> Refused {
    let id = portcullis_policy::decide::shown(id);
    Refused::unknown(format!("There is no approval {id} below your run."))
}

// What it cannot see whole it does not approve.
fn decidable(card: &Card) -> bool {
    card.asked().approvers.contains(&Approver::Parent) && card.asked().secret.is_empty()
}

fn shown(cards: &[Arc<Card>]) -> Value {
    let items: Vec<Value> = cards.iter().take(SHOWN_MAX).map(|card| item(card)).collect();
    json!({"items": items, "more": cards.len().saturating_sub(SHOWN_MAX)})
}

fn item(card: &Card) -> Value {
    let asked = card.asked();
    let masked = !asked.secret.is_empty();
    json!({
        "id": card.id(),
        "state": card.state().as_str(),
        "agent": asked.agent.as_str(),
        "run": asked.run,
        "server": asked.server.as_str(),
        "tool": asked.tool.as_str(),
        // Byte for byte what is digested and sent.
        "arguments": (!masked).then_some(card.arguments()),
        "digest": card.digest().to_string(),
        "edited": card.edit().is_some(),
        "approvals": json!({"made": card.votes().len(), "needed": asked.count}),
        "youMayApprove": decidable(card),
        "unattended": card.unattended(),
        "secondsLeft": card.deadline().map(|deadline| deadline.left_at(Clock::system().wall_ms()) / 1_000),
    })
}
