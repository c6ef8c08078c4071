//! One card, whole, as people read it before they decide.

use super::super::Api;
use super::super::card::Claims;
use super::arguments::{Sheet, editable, sheet};
use super::comparison::{Changes, Last, changes};
use super::fault::PageFault;
use super::time::{Moment, rough, size};
use crate::identity::Admin;
use crate::plain::{lines, plain};
use portcullis_policy::ledger::words::role;
use portcullis_policy::ledger::{Card, Decision, Outcome, State, Verdict};
use portcullis_policy::secret::Secrets;

/// Whether secret values are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reveal {
    /// They are hidden.
    No,
    /// Somebody who may decide asked for them, which is on record.
    Yes,
}

/// A card for a template.
#[derive(Debug)]
pub(super) struct CardPage {
    pub(super) id: String,
    pub(super) version: u64,
    /// `parked`, `approved` and so on.
    pub(super) state: &'static str,
    /// What it means, in a few words.
    pub(super) headline: String,
    /// What happens next, or why it ended.
    pub(super) note: String,
    pub(super) agent: String,
    pub(super) run: String,
    /// Those above it, the outermost first.
    pub(super) chain: Vec<Step>,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) claims: Vec<&'static str>,
    pub(super) risk: &'static str,
    /// `None` if this reader may not see any of them.
    pub(super) sheet: Option<Sheet>,
    pub(super) may_reveal: bool,
    pub(super) size: String,
    /// Empty where the arguments are left out: that of a short secret would tell it.
    pub(super) digest: String,
    pub(super) rule: String,
    pub(super) generation: u64,
    pub(super) created: Moment,
    pub(super) deadline: Option<Moment>,
    pub(super) approvers: String,
    pub(super) needed: u32,
    pub(super) votes: Vec<Said>,
    pub(super) edit: Option<Edited>,
    pub(super) last: Option<Last>,
    pub(super) decision: Option<Said>,
    pub(super) unattended: bool,
    pub(super) task: bool,
    /// What this reader may do.
    pub(super) may_decide: bool,
    pub(super) voted: bool,
    pub(super) standing: Vec<(&'static str, &'static str)>,
    /// The arguments to be edited; none if they may not be seen.
    pub(super) editable: Option<String>,
}

/// One run of a chain.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) agent: String,
    pub(super) run: String,
}

/// A decision that was made.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) what: String,
    pub(super) by: String,
    pub(super) reason: Option<String>,
    pub(super) at: Moment,
}

/// What an approver made of the arguments.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) by: String,
    pub(super) changes: Changes,
}

/// What the tool of a card is said to be.
pub(in crate::admin) struct Told {
    title: Option<String>,
    description: Option<String>,
    claims: Option<Claims>,
}

impl Told {
    pub(in crate::admin) fn of(api: &Api, card: &Card) -> Self {
        let offer = (api.views.offer)(card);
        let description = offer.as_ref().map(|offer| lines(&offer.description));
        Self {
            title: offer.as_ref().and_then(|offer| offer.title.as_deref()).map(plain),
            description: description.filter(|text| !text.trim().is_empty()),
            claims: offer.and_then(|offer| Claims::of(&offer)),
        }
    }

    /// What a call may do by the claims of its server.
    pub(in crate::admin) fn risk(&self) -> &'static str {
        match self.claims.unwrap_or_default().risk() {
            0 => "reads",
            1 => "adds",
            _ => "destroys",
        }
    }
}

impl CardPage {
    /// `card` as `admin` may see it; `last` is the last call of the same kind.
    pub(super) fn of(
        api: &Api,
        admin: &Admin,
        (card, last): (&Card, Option<&Card>),
        reveal: Reveal,
    ) -> Result<Self, PageFault> {
        let asked = card.asked();
        let now_ms = api.parked.now_ms();
        let decides = admin.may_decide();
        let Seen { sheet, secrets: shown, closed, hidden } = Seen::of(card, decides, reveal)?;
        let told = Told::of(api, card);
        let risk = told.risk();
        let voted = card.votes().iter().any(|vote| vote.by.name == admin.name());
        let parked = card.state() == State::Parked;
        let editable = (decides && parked && !hidden).then(|| editable(card.arguments()).ok());
        let (headline, note) = state_text(card, now_ms);
        let edit = card.edit().filter(|_| !closed).map(|edit| Edited {
            by: plain(&edit.by.name),
            changes: changes(&asked.arguments, &edit.arguments, &shown),
        });
        let last = last.and_then(|last| Last::of(last, card, (decides, now_ms)));
        Ok(Self {
            id: card.id().to_owned(),
            version: card.version(),
            state: card.state().as_str(),
            headline,
            note,
            agent: asked.agent.to_string(),
            run: plain(&asked.run),
            chain: asked
                .above
                .iter()
                .rev()
                .filter(|one| admin.may_see(&one.agent))
                .map(step)
                .collect(),
            server: asked.server.to_string(),
            tool: plain(asked.tool.as_str()),
            title: told.title,
            description: told.description,
            claims: told.claims.map(spelled).unwrap_or_default(),
            risk,
            may_reveal: decides && hidden && sheet.is_some(),
            sheet,
            size: size(card.arguments().len()),
            digest: if closed { String::new() } else { card.digest().to_string() },
            rule: plain(&asked.rule),
            generation: asked.generation,
            created: Moment::past(card.created_ms(), now_ms),
            deadline: card.deadline().map(|limit| Moment::ahead(limit.left_at(now_ms), now_ms)),
            approvers: asked
                .approvers
                .iter()
                .map(|one| role(*one))
                .collect::<Vec<_>>()
                .join(" or "),
            needed: asked.count,
            votes: card.votes().iter().map(|vote| said(vote, now_ms)).collect(),
            edit,
            last,
            decision: card.decision().map(|decision| said(decision, now_ms)),
            unattended: card.unattended(),
            task: card.is_task(),
            may_decide: decides && parked,
            voted,
            standing: standing(card),
            editable: editable.flatten(),
        })
    }
}

/// What of a card's arguments is seen.
struct Seen {
    sheet: Option<Sheet>,
    // What stays hidden.
    secrets: Secrets,
    // Nothing is seen.
    closed: bool,
    // Something is not.
    hidden: bool,
}

impl Seen {
    fn of(card: &Card, decides: bool, reveal: Reveal) -> Result<Self, PageFault> {
        let secrets = Secrets::new(&card.asked().secret);
        let closed = !secrets.is_empty() && !decides;
        let secrets = match reveal {
            Reveal::Yes if decides => Secrets::new(&[]),
            Reveal::Yes | Reveal::No => secrets,
        };
        let sheet = (!closed).then(|| sheet(card.arguments(), &secrets)).transpose();
        let sheet = sheet.map_err(|error| PageFault::unable(&error))?;
        let hidden = sheet.as_ref().is_none_or(|sheet| sheet.hidden > 0);
        Ok(Self { sheet, secrets, closed, hidden })
    }
}

fn step(above: &portcullis_policy::ledger::Ancestor) -> Step {
    Step { agent: above.agent.to_string(), run: plain(&above.run) }
}

fn said(decision: &Decision, now_ms: u64) -> Said {
    let (what, reason) = match &decision.verdict {
        Verdict::Approve if decision.grant.is_some() => {
            ("approved by a standing approval of", None)
        }
        Verdict::Approve => ("approved by", None),
        Verdict::Deny { reason } if reason.is_empty() => ("denied by", None),
        Verdict::Deny { reason } => ("denied by", Some(lines(reason))),
    };
    Said {
        what: what.to_owned(),
        by: plain(&decision.by.name),
        reason,
        at: Moment::past(decision.at_ms, now_ms),
    }
}

fn spelled(claims: Claims) -> Vec<&'static str> {
    let word = |hint: Option<bool>, yes, no| hint.map(|hint| if hint { yes } else { no });
    [
        word(claims.read_only_hint, "only reads", "changes something"),
        word(claims.destructive_hint, "may destroy", "destroys nothing"),
        word(claims.idempotent_hint, "twice is as once", "twice is not as once"),
        word(claims.open_world_hint, "reaches out to the world", "stays inside"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

// The state in a few words, and what it means for whoever reads it.
fn state_text(card: &Card, now_ms: u64) -> (String, String) {
    let asked = card.asked();
    let detail = lines(card.detail().trim_end_matches('.'));
    let text = |head: &str, note: String| (head.to_owned(), note);
    match card.state() {
        State::Parked if asked.count > 1 => {
            let note = format!(
                "{} of {} approvals are there. It runs with the last one, or not at all.",
                card.votes().len(),
                asked.count
            );
            text("Waits for a decision", note)
        }
        State::Parked => text("Waits for a decision", "Nothing of it has run.".to_owned()),
        State::Approved if card.unattended() => text(
            "Approved, not run yet",
            "Its caller is not there. It runs once, when the identical call comes again."
                .to_owned(),
        ),
        State::Approved => {
            text("Approved", "It runs once, as soon as its caller collects it.".to_owned())
        }
        State::Executing => {
            text("Runs now", "The call was sent; its answer is awaited.".to_owned())
        }
        State::Done => {
            let took = rough(card.updated_ms().saturating_sub(
                card.decision().map_or(card.updated_ms(), |decision| decision.at_ms.min(now_ms)),
            ));
            match card.outcome() {
                Some(Outcome::Ok) | None => {
                    let when = if took.starts_with("0 ") { "at once" } else { took.as_str() };
                    let after = if when == "at once" { "" } else { " after the decision" };
                    text("Done", format!("It ran {when}{after}."))
                }
                Some(Outcome::ToolError) => {
                    text("Ran, and failed", "The tool answered that it failed.".to_owned())
                }
                Some(Outcome::RpcError) => {
                    text("Ran, and failed", "The server answered with a protocol error.".to_owned())
                }
                Some(Outcome::NotSent) => text("Not sent", format!("It did not run: {detail}.")),
            }
        }
        State::Unknown => text("Outcome unknown", format!("It may have run: {detail}.")),
        State::Denied => text("Denied", "It did not run.".to_owned()),
        State::Expired => text("Expired", "Nobody decided in time. It did not run.".to_owned()),
        State::Lapsed => {
            text("Lapsed", "Nobody collected the approval in time. It did not run.".to_owned())
        }
        State::Revoked => text("Revoked", format!("{detail}.")),
        State::Stopped => text("Stopped", format!("It did not run: {detail}.")),
        State::Cancelled => text("Cancelled", format!("It did not run: {detail}.")),
    }
}

// What one approval may cover, each with the value that the form sends.
fn standing(card: &Card) -> Vec<(&'static str, &'static str)> {
    use portcullis_policy::definition::StandingMost;
    let exact = [
        ("arguments/run", "This exact call, in this run"),
        ("arguments/10m", "This exact call, for 10 minutes"),
        ("arguments/1h", "This exact call, for an hour"),
    ];
    let any = [
        ("tool/run", "Any call of it, in this run"),
        ("tool/10m", "Any call of it, for 10 minutes"),
    ];
    let asked = card.asked();
    match asked.standing {
        _ if asked.count > 1 => Vec::new(),
        StandingMost::Never => Vec::new(),
        StandingMost::Arguments => exact.to_vec(),
        StandingMost::Tool => exact.into_iter().chain(any).collect(),
    }
}
