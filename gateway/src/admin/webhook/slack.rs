//! A message for an incoming webhook of Slack: blocks of plain text, in which nothing is markup.

use super::super::Api;
use super::super::page::Told;
use crate::plain::plain;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::words::{duration, role};
use portcullis_policy::ledger::{Card, State};
use portcullis_policy::secret::Secrets;
use serde_json::{Value, json};

/// Longest text of a section that Slack takes, in characters, is 3,000.
const ARGUMENTS_CHARS_MAX: usize = 2_500;
/// Longest text of a field that Slack takes, in characters, is 2,000.
const FIELD_CHARS_MAX: usize = 300;

/// The body; none for a card that waits no more by now, since nobody has to come for it.
pub(super) fn body(api: &Api, state: State, card: &Card, url: &str) -> Option<String> {
    if state == State::Parked && card.state() != State::Parked {
        return None;
    }
    let asked = card.asked();
    let call = cut(&format!("{} · {}", asked.server, asked.tool.as_str()), FIELD_CHARS_MAX);
    let agent = asked.agent.as_str();
    let parked = state == State::Parked;
    let head = match parked {
        true => format!("{agent} asks for {call}"),
        false => format!("{call} for {agent}: {}", state.as_str()),
    };
    let mut fields =
        vec![field("Agent", agent), field("Run", &asked.run), field("Rule", &asked.rule)];
    if let Some(limit) = card.deadline() {
        let left = duration(limit.left_at(api.parked.now_ms()) / 1_000 * 1_000);
        fields.push(field("Time left", &left));
    }
    let roles: Vec<_> = asked.approvers.iter().map(|one| role(*one)).collect();
    fields.push(field("Decides", &roles.join(" or ")));
    if let Some(decision) = card.decision().filter(|_| !parked) {
        fields.push(field("Decided by", &decision.by.name));
    }
    fields.push(field("By its server's word it", Told::of(api, card).risk()));
    let open = if parked { "Look and decide" } else { "Look" };
    let body = json!({
        // Shown where blocks are not: in notifications. `<`, `>` and `&` are Slack's own.
        "text": escaped(&head),
        "blocks": [
            {"type": "header", "text": text(&cut(&head, 150))},
            {"type": "section", "fields": fields},
            {"type": "section", "text": text(&arguments(card))},
            {"type": "actions", "elements": [
                {"type": "button", "style": "primary", "text": text(open), "url": url},
            ]},
        ],
    });
    Some(body.to_string())
}

fn arguments(card: &Card) -> String {
    let secrets = Secrets::new(&card.asked().secret);
    let masked = secrets.mask(card.arguments(), JsonLimits::default()).unwrap_or_default();
    let whole = plain(&masked);
    let count = whole.chars().count();
    if count <= ARGUMENTS_CHARS_MAX {
        return whole;
    }
    let head: String = whole.chars().take(ARGUMENTS_CHARS_MAX).collect();
    format!("{head}… ({} more characters on the page)", count - ARGUMENTS_CHARS_MAX)
}

fn field(name: &str, value: &str) -> Value {
    text(&format!("{name}: {}", cut(value, FIELD_CHARS_MAX)))
}

fn text(text: &str) -> Value {
    json!({"type": "plain_text", "text": text, "emoji": false})
}

fn cut(text: &str, chars: usize) -> String {
    let shown = plain(text);
    if shown.chars().count() <= chars {
        return shown;
    }
    shown.chars().take(chars - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
