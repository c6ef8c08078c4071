//! Asking the caller's own user, where the policy names one: the client opens the page on which
//! that person decides. What the client answers is never a decision.

use super::leg::{Binding, Leg};
use crate::asked::Asked;
use crate::mcp::answer::{self, URL_ELICITATION_REQUIRED};
use crate::mcp::envelope::member_of;
use crate::mcp::era::Era;
use crate::mcp::sse::Body;
use crate::parked::Ticket;
use crate::record::{Ending, Record};
use crate::reply;
use http::Response;
use portcullis_policy::definition::Approver;
use portcullis_policy::json::{JsonLimits, quote};
use portcullis_policy::ledger::State;

/// The key of our question among the input requests of a result.
const KEY: &str = "dev.portcullis/approval";

/// A question to send.
pub(super) enum Question {
    /// A result that asks for input (MCP 2026-07-28, multi round-trip requests).
    Rounds(String),
    /// The error that asks for a URL to be opened (MCP 2025-11-25, elicitation).
    Error,
}

/// The question to ask for the card of `ticket`, if its user decides and the client can ask.
pub(super) fn asks(asked: &Asked, name: &str, ticket: &Ticket) -> Option<Question> {
    let card = ticket.card();
    let user = card.asked().approvers.contains(&Approver::User);
    // Asked once: whoever repeats the call waits for what comes of it.
    let waits = card.state() == State::Parked && !ticket.joined();
    if !user || !waits || !asked.opens_urls() {
        return None;
    }
    match asked.era {
        Era::Modern => {
            let leg = Leg::FIRST.next()?;
            let binding = Binding::new(asked, name, card.asked().digest);
            Some(Question::Rounds(binding.state(&asked.shared, card.id(), leg)?))
        }
        Era::Legacy => Some(Question::Error),
    }
}

/// Sends the question; the card waits meanwhile.
pub(super) fn ask(
    asked: &Asked,
    question: Question,
    ticket: Ticket,
    mut record: Record,
) -> Response<Body> {
    record.card(ticket.id());
    record.finish(Ending::Parked);
    let url = quote(&asked.shared.approve_url(ticket.id()));
    let text = quote(&format!(
        "The call of `{}` needs your approval. It has not run. Open the page to see it and decide.",
        ticket.card().asked().exposed
    ));
    let body = match question {
        Question::Rounds(state) => {
            let result = format!(
                "{{\"resultType\":\"input_required\",\"inputRequests\":{{\"{KEY}\":{{\"method\":\"elicitation/create\",\"params\":{{\"mode\":\"url\",\"message\":{text},\"url\":{url}}}}}}},\"requestState\":{}}}",
                quote(&state)
            );
            answer::result(&asked.call.id, result.as_bytes())
        }
        Question::Error => {
            let data = format!(
                "{{\"elicitations\":[{{\"mode\":\"url\",\"elicitationId\":{},\"message\":{text},\"url\":{url}}}]}}",
                quote(ticket.id())
            );
            let message = format!(
                "This call did NOT run: it needs the approval of your user. When it is given, make the identical call again. Approval `{}`.",
                ticket.id()
            );
            answer::error(Some(&asked.call.id), URL_ELICITATION_REQUIRED, &message, Some(&data))
        }
    };
    ticket.told_pending();
    reply::json(body)
}

/// True if the caller comes back with the word that its user will not decide for it.
pub(super) fn declined(asked: &Asked) -> bool {
    let limits = JsonLimits::default();
    let answer = asked.call.params.value("inputResponses");
    let answer = answer.and_then(|answers| member_of(answers, KEY, limits));
    let action = answer.and_then(|answer| member_of(&answer, "action", limits));
    action.is_some_and(|action| action.text().as_deref() == Some("decline"))
}
