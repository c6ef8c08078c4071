//! The wait of one caller on the wire: held with signs of life within its budget, then sent away
//! to come back, or told honestly that its call did not run.

use super::leg::{Binding, Leg};
use crate::answer::{Answer, Kind};
use crate::asked::Asked;
use crate::hold::Budget;
use crate::identity::Pass;
use crate::mcp::answer::{self, Remedy, tool_error};
use crate::mcp::envelope::Raw;
use crate::mcp::era::Era;
use crate::mcp::progress;
use crate::mcp::sse::{Body, EventSender, Gone};
use crate::parked::{Reached, Settlement, Ticket, TicketEvent};
use crate::record::{Ending, Record};
use crate::sessions::InFlight;
use crate::shared::Shared;
use crate::{own_tools, permission, reply};
use bytes::Bytes;
use http::Response;
use portcullis_policy::json::quote;
use portcullis_policy::ledger::{State, words};
use portcullis_policy::name::AgentName;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// How often a held call shows that it still waits.
const SIGN_OF_LIFE: Duration = Duration::from_secs(12);

/// Holds the caller of `ticket` as long as its client's timer allows.
pub(super) async fn wait(
    asked: Asked,
    name: &str,
    ticket: Ticket,
    (mut record, leg): (Record, Leg),
) -> Response<Body> {
    let token = asked.progress_token().cloned();
    record.card(ticket.id());
    if leg == Leg::FIRST && ticket.joined() {
        let agent = &asked.visit.principal.agent;
        asked.shared.hold.made_anew(agent, &asked.client(), ticket.id());
    }
    let budget = budget(&asked, token.is_some());
    // Clients of revisions before 2026-07-28 may give up without closing their stream; who gave a
    // token counts what it hears.
    let silent = asked.era == Era::Legacy && token.is_none() && !budget.is_patient;
    // A policy that says how long a call is held means all of it.
    let next = leg.next().filter(|_| asked.era == Era::Modern && budget.may_be_more);
    let wait = Wait {
        state: next.and_then(|next| {
            let binding = Binding::new(&asked, name, ticket.card().asked().digest);
            binding.state(&asked.shared, ticket.id(), next)
        }),
        patience: Patience::begin(&asked, ticket.id(), silent),
        answer: Answer {
            id: asked.call.id.clone(),
            era: asked.era,
            kind: Kind::Tool,
            server: ticket.card().asked().server.clone(),
        },
        in_flight: asked.enter(),
        collects: own_tools::status_name(&asked.visit),
        shared: Arc::clone(&asked.shared),
        budget: budget.time,
        token,
        record,
    };
    if asked.streams {
        return reply::stream(Body::stream(move |events| async move {
            // The caller may leave at any time; its ticket says so to the ledger.
            let _ = wait.stream(ticket, &events).await;
        }));
    }
    wait.plain(ticket).await
}

fn budget(asked: &Asked, has_token: bool) -> Budget {
    let agent = &asked.visit.principal.agent;
    let policy = asked.visit.scope.approval.hold;
    asked.shared.hold.budget(policy, (agent, &asked.client()), has_token)
}

/// Notes how long a caller waited that left without an answer.
struct Patience {
    shared: Arc<Shared>,
    pass: Pass,
    agent: AgentName,
    client: String,
    card: String,
    // It may give up without a word.
    silent: bool,
    began: std::time::Instant,
    answered: bool,
}

impl Patience {
    fn begin(asked: &Asked, card: &str, silent: bool) -> Self {
        let (agent, client) = (&asked.visit.principal.agent, asked.client());
        let began = match silent {
            true => asked.shared.hold.begins(agent, &client, card),
            false => std::time::Instant::now(),
        };
        Self {
            shared: Arc::clone(&asked.shared),
            pass: asked.visit.pass.clone(),
            agent: agent.clone(),
            client,
            card: card.to_owned(),
            silent,
            began,
            answered: false,
        }
    }
}

/// Shortest time after which a client is known to give up.
const GIVES_UP: Duration = Duration::from_secs(4);

impl Patience {
    fn reached(&self) -> Reached {
        let waited = self.began.elapsed();
        if self.silent && waited >= GIVES_UP { Reached::Perhaps } else { Reached::Surely }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        if self.silent {
            self.shared.hold.ends(&self.card, self.began);
        }
        // One that was sent away, by the end of its credential or of the gateway, did not leave.
        if !self.answered && !self.pass.is_over() && !*self.shared.stop.borrow() {
            self.shared.hold.left(&self.agent, &self.client, self.began.elapsed());
        }
    }
}

struct Wait {
    shared: Arc<Shared>,
    answer: Answer,
    token: Option<Raw>,
    in_flight: Option<InFlight>,
    record: Record,
    budget: Duration,
    patience: Patience,
    // Brings the caller back when its time is over.
    state: Option<String>,
    // The tool that collects at this endpoint.
    collects: &'static str,
}

enum Step {
    Progress(Bytes),
    Settled(Settlement),
    SignOfLife,
    OutOfTime,
    Cancelled,
}

impl Wait {
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
                Step::SignOfLife => {
                    let waiting = words::waiting(&ticket.card());
                    told = self.show_life(told + 1.0, &waiting, events).await?;
                }
                Step::Settled(settlement) => {
                    let reached = self.patience.reached();
                    let message = self.settled(settlement, &ticket);
                    events.message(&message).await?;
                    events.drained().await;
                    ticket.delivered(reached).await;
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

    async fn show_life(
        &self,
        value: f64,
        waiting: &str,
        events: &EventSender,
    ) -> Result<f64, Gone> {
        match &self.token {
            Some(token) => events.message(&progress::own(token, value, waiting)).await?,
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
                    let reached = self.patience.reached();
                    let message = self.settled(settlement, &ticket);
                    ticket.delivered(reached).await;
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
        self.patience.answered = true;
        if let Some(state) = self.state.take().filter(|_| !*self.shared.stop.borrow()) {
            self.shared.hold.sent_away(ticket.id());
            let result =
                format!("{{\"resultType\":\"input_required\",\"requestState\":{}}}", quote(&state));
            return answer::result(&self.answer.id, result.as_bytes());
        }
        let card = ticket.card();
        let result = if card.asked().external.is_some() {
            permission::deny(&format!(
                "Nobody has decided yet (approval {}). It was not done.",
                ticket.id()
            ))
        } else if card.state() == State::Executing {
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
        self.patience.answered = true;
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
                let result = match &ticket.card().asked().external {
                    Some(_) => permission::deny(&text),
                    None => tool_error(&text, Remedy::Unavailable, Some(ticket.id())),
                };
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
