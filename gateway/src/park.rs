//! A call that waits for an approval, as its caller sees it: held open within the client's
//! time, settled honestly when that ends, collected by the identical repeat or by
//! `approval_status`.

mod leg;
mod user;
mod wait;

use crate::asked::Asked;
use crate::call::{invalid, own, refused};
use crate::mcp::answer::{self, Remedy, tool_error};
use crate::mcp::envelope::{Raw, member_of};
use crate::mcp::sse::Body;
use crate::parked::{AttachError, Origin, ParkError};
use crate::record::{Ending, Record};
use crate::{reply, tasks};
use http::Response;
use leg::{Binding, Leg};
use portcullis_policy::canonical::{Digest, canonical};
use portcullis_policy::decide::{Caps, Reason, Request};
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::State;

/// Parks `request`, and answers with a task or holds its caller.
pub(crate) async fn park(
    asked: Asked,
    name: &str,
    request: Request,
    mut record: Record,
) -> Response<Body> {
    record.parks(&request);
    if let Err(error) = asked.shared.runs.ensure(&asked.visit.principal).await {
        return unparked(&asked, record, error);
    }
    let visit = &asked.visit;
    let caps = Caps::of(&visit.scope, &visit.generation.definition, &request.tool.server);
    // A harness that asks for leave waits for the answer itself.
    let external = request.external.is_some();
    let task = tasks::declared(&asked) && !external;
    let origin = Origin { above: asked.shared.above(visit), caps, task };
    match asked.shared.parked.park(&asked.caller(), request, origin).await {
        Ok(ticket) if task && ticket.waits() => tasks::created(&asked, ticket, record),
        Ok(ticket) if external => wait::wait(asked, name, ticket, (record, Leg::LAST)).await,
        Ok(ticket) => match user::asks(&asked, name, &ticket) {
            Some(question) => user::ask(&asked, question, ticket, record),
            None => wait::wait(asked, name, ticket, (record, Leg::FIRST)).await,
        },
        Err(error) => unparked(&asked, record, error),
    }
}

fn unparked(asked: &Asked, mut record: Record, error: ParkError) -> Response<Body> {
    match error {
        ParkError::Full(refusal) => {
            record.refuse(refusal.reason);
            refused(asked, &refusal)
        }
        ParkError::RunEnded => {
            record.finish(Ending::Settled(State::Stopped));
            let text = "This run has ended, so the call did not run and was not queued.";
            own(asked, &tool_error(text, Remedy::Unavailable, None))
        }
        ParkError::Store(_) | ParkError::Random(_) | ParkError::Stopping => {
            record.finish(Ending::StoreFailed);
            tracing::error!(%error, "a call could not be parked");
            let text = "the approval store is unavailable, so this call did not run and was not queued; try again later";
            reply::json(answer::error(Some(&asked.call.id), answer::STORE_UNAVAILABLE, text, None))
        }
    }
}

/// Goes on with a call that was parked and whose caller comes back with the state it was given.
pub(crate) async fn resume(
    asked: Asked,
    state: &Raw,
    name: &str,
    arguments: Option<&Raw>,
) -> Response<Body> {
    let mut record = Record::new(&asked, name, arguments);
    let arguments = arguments.map_or(&b"{}"[..], |arguments| arguments.bytes());
    let opened = canonical(arguments, JsonLimits::default()).ok().and_then(|arguments| {
        let binding = Binding::new(&asked, name, Digest::of(arguments.as_bytes()));
        binding.open(&asked.shared, &state.text()?)
    });
    let Some((id, leg)) = opened else {
        record.refuse(Reason::Arguments);
        return invalid(&asked, leg::FOREIGN);
    };
    asked.shared.hold.came_back(&id);
    if user::declined(&asked)
        && let Err(error) = asked.shared.parked.cancel(&asked.caller(), &id).await
    {
        return unattached(&asked, record, &id, error);
    }
    match asked.shared.parked.attach(&asked.caller(), &id).await {
        Ok(ticket) => wait::wait(asked, name, ticket, (record, leg)).await,
        Err(error) => unattached(&asked, record, &id, error),
    }
}

/// `approval_status`: joins the waiting of a card of this run.
pub(crate) async fn collect(asked: Asked, arguments: Option<&Raw>) -> Response<Body> {
    let id = arguments.and_then(|arguments| member_of(arguments, "id", asked.shared.limits.json));
    let Some(id) = id.as_ref().and_then(|id| Some(id.text()?.into_owned())) else {
        return own(
            &asked,
            &tool_error("`approval_status` needs `id`, a string.", Remedy::None, None),
        );
    };
    let record = Record::new(&asked, "approval_status", None);
    match asked.shared.parked.attach(&asked.caller(), &id).await {
        Ok(ticket) => wait::wait(asked, "", ticket, (record, Leg::LAST)).await,
        Err(error) => unattached(&asked, record, &id, error),
    }
}

fn unattached(asked: &Asked, mut record: Record, id: &str, error: AttachError) -> Response<Body> {
    match error {
        AttachError::Store(error) => {
            record.finish(Ending::StoreFailed);
            tracing::error!(%error, "an approval could not be looked up");
            let text = "the approval store is unavailable; try again later";
            let body = answer::error(Some(&asked.call.id), answer::STORE_UNAVAILABLE, text, None);
            reply::json(body)
        }
        AttachError::Stopping => {
            record.finish(Ending::NotSent);
            let text = "the gateway is stopping; ask again when it is back";
            own(asked, &tool_error(text, Remedy::None, None))
        }
        AttachError::Unknown => {
            record.refuse(Reason::Unknown);
            let text = format!(
                "There is no approval {} of yours. Make the call itself; it will ask again if it must.",
                portcullis_policy::decide::shown(id)
            );
            own(asked, &tool_error(&text, Remedy::Unavailable, None))
        }
    }
}
