//! A call that waits for an approval, as its caller sees it: held open within the client's
//! time, settled honestly when that ends, collected by the identical repeat or by
//! `approval_status`.

use crate::answer::{Answer, Kind};
use crate::asked::Asked;
use crate::call::{own, refused};
use crate::mcp::answer::{self, Remedy, tool_error};
use crate::mcp::envelope::{Raw, member_of};
use crate::mcp::progress;
use crate::mcp::sse::{Body, EventSender, Gone};
use crate::parked::{AttachError, Origin, ParkError, Settlement, Ticket, TicketEvent};
use crate::record::{Ending, Record};
use crate::serve::takes_stream;
use crate::sessions::InFlight;
use crate::shared::Shared;
use crate::{own_tools, reply};
use bytes::Bytes;
use http::{HeaderMap, Response};
use portcullis_policy::decide::{Reason, Request};
use portcullis_policy::definition::{Approval, Approver};
use portcullis_policy::ledger::State;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// How often a held call shows that it still waits.
const SIGN_OF_LIFE: Duration = Duration::from_secs(12);

/// Parks `request` and holds its caller.
pub(crate) async fn park(
    asked: Asked,
    headers: &HeaderMap,
    request: Request,
    mut record: Record,
) -> Response<Body> {
    record.parks(&request);
    if let Err(error) = asked.shared.runs.ensure(&asked.visit.principal).await {
        return unparked(&asked, record, error);
    }
    let origin =
        Origin { above: asked.shared.above(&asked.visit), scope: Arc::clone(&asked.visit.scope) };
    match asked.shared.parked.park(&asked.caller(), request, origin).await {
        Ok(ticket) => hold(asked, headers, ticket, record).await,
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

/// `approval_status`: joins the waiting of a card of this run.
pub(crate) async fn collect(
    asked: Asked,
    headers: &HeaderMap,
    arguments: Option<&Raw>,
) -> Response<Body> {
    let id = arguments.and_then(|arguments| member_of(arguments, "id", asked.shared.limits.json));
    let Some(id) = id.as_ref().and_then(|id| Some(id.text()?.into_owned())) else {
        return own(
            &asked,
            &tool_error("`approval_status` needs `id`, a string.", Remedy::None, None),
        );
    };
    let mut record = Record::new(&asked, "approval_status", None);
    match asked.shared.parked.attach(&asked.caller(), &id).await {
        Ok(ticket) => hold(asked, headers, ticket, record).await,
        Err(AttachError::Store(error)) => {
            record.finish(Ending::StoreFailed);
            tracing::error!(%error, "an approval could not be looked up");
            let text = "the approval store is unavailable; try again later";
            let body = answer::error(Some(&asked.call.id), answer::STORE_UNAVAILABLE, text, None);
            reply::json(body)
        }
        Err(AttachError::Stopping) => {
            record.finish(Ending::NotSent);
            let text = "the gateway is stopping; ask again when it is back";
            own(&asked, &tool_error(text, Remedy::None, None))
        }
        Err(AttachError::Unknown) => {
            record.refuse(Reason::Unknown);
            let text = format!(
                "There is no approval {} of yours. Make the call itself; it will ask again if it must.",
                portcullis_policy::decide::shown(&id)
            );
            own(&asked, &tool_error(&text, Remedy::Unavailable, None))
        }
    }
}

struct Hold {
    shared: Arc<Shared>,
    answer: Answer,
    token: Option<Raw>,
    in_flight: Option<InFlight>,
    record: Record,
    budget: Duration,
    waiting: String,
    // The tool that collects at this endpoint.
    collects: &'static str,
}

async fn hold(
    asked: Asked,
    headers: &HeaderMap,
    ticket: Ticket,
    mut record: Record,
) -> Response<Body> {
    let token = asked.progress_token().cloned();
    let approval = &asked.visit.scope.approval;
    record.card(ticket.id());
    let hold = Hold {
        budget: asked.shared.hold.budget(approval.hold, &asked.client(), token.is_some()),
        waiting: format!("waiting for approval {} by {}", ticket.id(), approvers(approval)),
        answer: Answer {
            id: asked.call.id.clone(),
            era: asked.era,
            kind: Kind::Tool,
            server: ticket.card().asked().server.clone(),
        },
        in_flight: asked.enter(),
        collects: own_tools::status_name(&asked.visit),
        shared: Arc::clone(&asked.shared),
        token,
        record,
    };
    if takes_stream(headers) {
        return reply::stream(Body::stream(move |events| async move {
            // The caller may leave at any time; its ticket says so to the ledger.
            let _ = hold.stream(ticket, &events).await;
        }));
    }
    hold.plain(ticket).await
}

fn approvers(approval: &Approval) -> String {
    let names: Vec<&str> = approval
        .approvers
        .iter()
        .map(|approver| match approver {
            Approver::Parent => "the parent agent",
            Approver::Human => "an operator",
        })
        .collect();
    if names.is_empty() {
        "nobody: the policy names no approver".to_owned()
    } else {
        names.join(" or ")
    }
}

enum Step {
    Progress(Bytes),
    Settled(Settlement),
    SignOfLife,
    OutOfTime,
    Cancelled,
}

impl Hold {
    async fn stream(mut self, mut ticket: Ticket, events: &EventSender) -> Result<(), Gone> {
        let mut beat = tokio::time::interval(SIGN_OF_LIFE);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = Instant::now() + self.budget;
        // Progress must increase: what does not is left out.
        let mut told = 0.0;
        loop {
            match self.step(&mut ticket, &mut beat, deadline).await {
                Step::Progress(params) => told = self.relay(&params, told, events).await?,
                Step::SignOfLife if ticket.card().state() == State::Executing => {
                    events.comment().await?;
                }
                Step::SignOfLife => told = self.show_life(told + 1.0, events).await?,
                Step::Settled(settlement) => {
                    let message = self.settled(settlement, &ticket);
                    events.message(&message).await?;
                    events.drained().await;
                    ticket.delivered().await;
                    return Ok(());
                }
                Step::OutOfTime => {
                    events.message(&self.pending(&ticket)).await?;
                    events.drained().await;
                    ticket.told_pending();
                    return Ok(());
                }
                Step::Cancelled => return Ok(()),
            }
        }
    }

    async fn relay(&self, params: &Bytes, told: f64, events: &EventSender) -> Result<f64, Gone> {
        let value = progress::value(params).unwrap_or(told);
        let message = self.token.as_ref().and_then(|token| progress::relayed(params, token));
        match message {
            Some(message) if value > told => {
                events.message(&message).await?;
                Ok(value)
            }
            _ => Ok(told),
        }
    }

    async fn show_life(&self, value: f64, events: &EventSender) -> Result<f64, Gone> {
        match &self.token {
            Some(token) => events.message(&progress::own(token, value, &self.waiting)).await?,
            None => events.comment().await?,
        }
        Ok(value)
    }

    async fn plain(mut self, mut ticket: Ticket) -> Response<Body> {
        let mut beat = tokio::time::interval(SIGN_OF_LIFE);
        let deadline = Instant::now() + self.budget;
        loop {
            match self.step(&mut ticket, &mut beat, deadline).await {
                Step::Progress(_) | Step::SignOfLife => {}
                Step::Settled(settlement) => {
                    let message = self.settled(settlement, &ticket);
                    ticket.delivered().await;
                    return reply::json(message);
                }
                Step::OutOfTime => {
                    let message = self.pending(&ticket);
                    ticket.told_pending();
                    return reply::json(message);
                }
                Step::Cancelled => return reply::accepted(),
            }
        }
    }

    async fn step(
        &self,
        ticket: &mut Ticket,
        beat: &mut tokio::time::Interval,
        deadline: Instant,
    ) -> Step {
        let cancelled = async {
            match &self.in_flight {
                Some(in_flight) => in_flight.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = ticket.next() => match event {
                TicketEvent::Progress(params) => Step::Progress(params),
                TicketEvent::Settled(settlement) => Step::Settled(settlement),
            },
            () = cancelled => Step::Cancelled,
            () = tokio::time::sleep_until(deadline) => Step::OutOfTime,
            // Held requests settle at once when the gateway drains; their cards stay.
            () = self.shared.stopping() => Step::OutOfTime,
            _ = beat.tick() => Step::SignOfLife,
        }
    }

    // The last rung: an honest result that the model can act on.
    fn pending(&mut self, ticket: &Ticket) -> Bytes {
        self.record.finish(Ending::Parked);
        let result = if ticket.card().state() == State::Executing {
            let text = format!(
                "This call was approved and is running now; how it ends is not known yet. Do not make another \
                 one: collect the result with `{}` and the id `{}`, or make the identical call again.",
                self.collects,
                ticket.id()
            );
            tool_error(&text, Remedy::None, None)
        } else {
            let text =
                ticket.pending_text().replace("`approval_status`", &format!("`{}`", self.collects));
            tool_error(&text, Remedy::Undisclosed, Some(ticket.id()))
        };
        answer::result(&self.answer.id, result.as_bytes())
    }

    fn settled(&mut self, settlement: Settlement, ticket: &Ticket) -> Bytes {
        match settlement {
            Settlement::Result { raw, is_error } => {
                self.record.finish(if is_error { Ending::ToolError } else { Ending::Ok });
                self.answer.result(&raw)
            }
            Settlement::Error { raw } => {
                self.record.finish(Ending::RpcError);
                self.answer.error(&raw)
            }
            Settlement::NotRun { state, text } => {
                // A call that was approved and not sent is `done` for the ledger.
                let ending =
                    if state == State::Done { Ending::NotSent } else { Ending::Settled(state) };
                self.record.finish(ending);
                let result = tool_error(&text, Remedy::Unavailable, Some(ticket.id()));
                answer::result(&self.answer.id, result.as_bytes())
            }
            Settlement::NotKept { text } => {
                self.record.finish(Ending::Ok);
                self.answer.failed(&text)
            }
            Settlement::Unknown { text } => {
                self.record.finish(Ending::Unknown);
                self.answer.failed(&text)
            }
        }
    }
}
