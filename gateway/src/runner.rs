//! How an approved call is decided anew and sent: the ledger's side of a permit.

use crate::audit::{Asked, Audit, Intent, Outcome, Verdict};
use crate::parked::{Executed, ProgressSender, Runner, Running};
use crate::record::Ending;
use crate::run::is_tool_error;
use crate::scopes::Scopes;
use crate::upstream::{Forward, Reply, Upstreams};
use portcullis_policy::decide::{Permit, Reason, Refusal, decide_approved};
use portcullis_policy::ledger::{Approved, Card};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::mpsc;

/// The closures that the parked calls run by.
pub(crate) fn runner(
    scopes: Scopes,
    upstreams: Upstreams,
    audit: Arc<Audit>,
    requests: Arc<AtomicU64>,
) -> Runner {
    Runner {
        judge: Box::new(move |card, approved| judge(&scopes, card, approved)),
        run: Box::new(move |card, permit, progress| {
            let request = requests.fetch_add(1, Ordering::Relaxed) + 1;
            let sending =
                Sending { upstreams: upstreams.clone(), audit: Arc::clone(&audit), request };
            sending.run(card, permit, progress)
        }),
    }
}

fn judge(scopes: &Scopes, card: &Card, approved: &Approved) -> Result<Permit, Refusal> {
    let generation = scopes.snapshot();
    match generation.scopes.get(&card.asked().agent) {
        Some(scope) => decide_approved(scope, approved),
        None => Err(Refusal {
            reason: Reason::Revoked,
            text: "The policy does not define this agent any more. The call did not run."
                .to_owned(),
        }),
    }
}

struct Sending {
    upstreams: Upstreams,
    audit: Arc<Audit>,
    request: u64,
}

impl Sending {
    fn run(self, card: Card, permit: Permit, progress: ProgressSender) -> Running {
        let Self { upstreams, audit, request } = self;
        Box::pin(async move {
            let began = Instant::now();
            let generation = permit.generation();
            if let Err(error) = audit.intent(&Intent { asked: asked(&card, request, generation) }) {
                tracing::error!(%error, "an intent could not be recorded; nothing was sent");
                return Executed::NotSent {
                    text: "the audit record could not be written".to_owned(),
                };
            }
            let server = permit.target().server().clone();
            let (sender, mut notes) = mpsc::channel(crate::run::NOTES_QUEUED_MAX);
            let forward = Forward { progress: Some(sender), ..Forward::default() };
            let call = upstreams.call(permit, forward);
            tokio::pin!(call);
            let reply = loop {
                tokio::select! {
                    biased;
                    Some(params) = notes.recv() => progress.send(params),
                    reply = &mut call => break reply,
                }
            };
            let (executed, outcome) = match reply {
                Ok(Reply::Result(raw)) => {
                    let is_error = is_tool_error(&raw);
                    let outcome = if is_error { Ending::ToolError } else { Ending::Ok };
                    (Executed::Result { raw, is_error }, outcome)
                }
                Ok(Reply::Error(raw)) => (Executed::Error { raw }, Ending::RpcError),
                Err(failure) if failure.may_have_run() => {
                    (Executed::Unknown { text: failure.text(&server) }, Ending::Unknown)
                }
                Err(failure) => {
                    (Executed::NotSent { text: failure.text(&server) }, Ending::NotSent)
                }
            };
            let outcome = Outcome {
                asked: asked(&card, request, generation),
                decision: Verdict::Run,
                reason: None,
                outcome: outcome.as_str(),
                duration: began.elapsed(),
            };
            if let Err(error) = audit.outcome(&outcome) {
                tracing::error!(%error, card = card.id(), "an outcome could not be recorded");
            }
            executed
        })
    }
}

fn asked(card: &Card, request: u64, generation: u64) -> Asked<'_> {
    let asked = card.asked();
    Asked {
        request,
        agent: &asked.agent,
        run: &asked.run,
        method: "tools/call",
        name: Some(&asked.exposed),
        server: Some(asked.server.as_str()),
        tool: Some(asked.tool.as_str()),
        generation,
        arguments: Some(asked.digest),
        card: Some(card.id()),
    }
}
