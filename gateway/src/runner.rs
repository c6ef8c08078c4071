//! How an approved call is decided anew and sent: the ledger's side of a permit.

use crate::audit::{Asked, Audit, Intent, Outcome, Verdict};
use crate::parked::{Executed, ProgressSender, Runner, Running};
use crate::record::Ending;
use crate::run::is_tool_error;
use crate::scopes::Scopes;
use crate::upstream::{Failure, Forward, Reply, Upstreams};
use portcullis_policy::decide::{Permit, Reason, Refusal, decide_approved};
use portcullis_policy::ledger::{Approved, Card};
use portcullis_policy::name::ServerName;
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
        Box::pin(async move { self.send(&card, permit, progress).await })
    }

    async fn send(self, card: &Card, permit: Permit, progress: ProgressSender) -> Executed {
        let began = Instant::now();
        let generation = permit.generation();
        let asked = asked(card, self.request, generation);
        if let Err(error) = self.audit.intent(&Intent { asked }) {
            tracing::error!(%error, "an intent could not be recorded; nothing was sent");
            return Executed::NotSent { text: "the audit record could not be written".to_owned() };
        }
        let server = permit.target().server().clone();
        let reply = self.call(permit, progress).await;
        let (executed, ending) = ended(reply, &server);
        let outcome = Outcome {
            asked,
            decision: Verdict::Run,
            reason: None,
            outcome: ending.as_str(),
            duration: began.elapsed(),
        };
        if let Err(error) = self.audit.outcome(&outcome) {
            tracing::error!(%error, card = card.id(), "an outcome could not be recorded");
        }
        executed
    }

    async fn call(&self, permit: Permit, progress: ProgressSender) -> Result<Reply, Failure> {
        let (sender, mut notes) = mpsc::channel(crate::run::NOTES_QUEUED_MAX);
        let forward = Forward { progress: Some(sender), ..Forward::default() };
        let call = self.upstreams.call(permit, forward);
        tokio::pin!(call);
        loop {
            tokio::select! {
                biased;
                Some(params) = notes.recv() => progress.send(params),
                reply = &mut call => return reply,
            }
        }
    }
}

fn ended(reply: Result<Reply, Failure>, server: &ServerName) -> (Executed, Ending) {
    match reply {
        Ok(Reply::Result(raw)) => {
            let is_error = is_tool_error(&raw);
            let ending = if is_error { Ending::ToolError } else { Ending::Ok };
            (Executed::Result { raw, is_error }, ending)
        }
        Ok(Reply::Error(raw)) => (Executed::Error { raw }, Ending::RpcError),
        Err(failure) if failure.may_have_run() => {
            tracing::warn!(%failure, %server, "an approved call has no known outcome");
            (Executed::Unknown { text: failure.text(server) }, Ending::Unknown)
        }
        Err(failure) => {
            tracing::warn!(%failure, %server, "an approved call was not sent");
            (Executed::NotSent { text: failure.text(server) }, Ending::NotSent)
        }
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
