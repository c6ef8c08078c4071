//! How an approved call is decided anew and sent: the ledger's side of a permit.

use crate::answer::is_tool_error;
use crate::audit::{Asked, Audit, Choice, Decided, Intent, Outcome, Verdict};
use crate::identity::Admins;
use crate::parked::{Executed, ProgressSender, Runner};
use crate::permission;
use crate::record::Ending;
use crate::runs::RunTable;
use crate::scopes::Scopes;
use crate::upstream::{Failure, Forward, Reply, Upstreams};
use crate::usage::Counters;
use portcullis_policy::decide::{NotNow, Permit, Reason, Refusal, Target, decide_approved};
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Approved, Card, Grant};
use portcullis_policy::name::ServerName;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::mpsc;

/// What approved calls are sent with.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    /// Where the scope of the moment is.
    pub(crate) scopes: Scopes,
    /// Where runs and what they may reach are.
    pub(crate) table: Arc<RunTable>,
    /// The way out.
    pub(crate) upstreams: Upstreams,
    /// Where intent and outcome go.
    pub(crate) audit: Arc<Audit>,
    /// Numbers requests.
    pub(crate) requests: Arc<AtomicU64>,
    /// Who may decide.
    pub(crate) admins: Arc<Admins>,
    /// Counts calls in flight.
    pub(crate) counters: Arc<Counters>,
}

/// The closures that the parked calls run by.
pub(crate) fn runner(sending: Sending) -> Runner {
    let (scopes, table) = (sending.scopes.clone(), Arc::clone(&sending.table));
    let (audit, admins) = (Arc::clone(&sending.audit), Arc::clone(&sending.admins));
    Runner {
        vouch: Arc::new(move |card, grant| vouch(&audit, &admins, card, grant)),
        judge: Box::new(move |card, approved| judge(&scopes, &table, card, approved)),
        run: Box::new(move |card, permit, progress| {
            let sending = sending.clone();
            Box::pin(async move { sending.send(&card, permit, progress).await })
        }),
    }
}

fn vouch(audit: &Audit, admins: &Admins, card: &Card, grant: &Grant) -> bool {
    // A parent is above the caller as long as the caller lives, or the grant does not allow it.
    let decides = grant.by.role == Approver::Parent || admins.decides(&grant.by.name, &grant.agent);
    if !decides {
        return false;
    }
    let decided = Decided::of(card, Choice::Approve, &grant.by.name);
    let decided = Decided { grant: Some(&grant.id), ..decided };
    audit.decision(&decided).inspect_err(|error| {
        tracing::error!(%error, "a decision could not be recorded; the standing approval does not count");
    }).is_ok()
}

fn judge(
    scopes: &Scopes,
    table: &RunTable,
    card: &Card,
    approved: &Approved,
) -> Result<Permit, NotNow> {
    let revoked =
        |text: &str| NotNow::Revoked(Refusal { reason: Reason::Revoked, text: text.to_owned() });
    let Some(run) = table.find(&card.asked().run).filter(|run| !run.is_over()) else {
        return Err(revoked("The run has ended. The call did not run."));
    };
    match run.scope(&scopes.snapshot()) {
        Some(scope) => decide_approved(&scope, approved),
        None => {
            Err(revoked("The policy does not define this agent any more. The call did not run."))
        }
    }
}

impl Sending {
    async fn send(self, card: &Card, permit: Permit, progress: ProgressSender) -> Executed {
        let request = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let (running, _) = self.counters.enter(&card.asked().agent, true);
        running.starts();
        let mut trail = Trail {
            audit: &self.audit,
            asked: asked(card, request, permit.generation()),
            began: Instant::now(),
            ended: false,
        };
        if let Err(error) = self.audit.intent(&Intent { asked: trail.asked }) {
            trail.ended = true;
            tracing::error!(%error, "an intent could not be recorded; nothing was sent");
            return Executed::NotSent { text: "the audit record could not be written".to_owned() };
        }
        if let Target::Permission { input, .. } = permit.target() {
            let raw = permission::allow(&String::from_utf8_lossy(input)).into();
            trail.end(Ending::Ok);
            return Executed::Result { raw, is_error: false };
        }
        let server = permit.target().server().clone();
        let reply = self.call(permit, progress).await;
        let (executed, ending) = ended(reply, &server);
        trail.end(ending);
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

/// The outcome of an intent; one that is dropped without an end has an unknown one.
struct Trail<'a> {
    audit: &'a Audit,
    asked: Asked<'a>,
    began: Instant,
    ended: bool,
}

impl Trail<'_> {
    fn end(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let outcome = Outcome {
            asked: self.asked,
            decision: Verdict::Run,
            reason: None,
            outcome: ending.as_str(),
            duration: self.began.elapsed(),
        };
        if let Err(error) = self.audit.outcome(&outcome) {
            tracing::error!(%error, card = self.asked.card, "an outcome could not be recorded");
        }
    }
}

impl Drop for Trail<'_> {
    fn drop(&mut self) {
        self.end(Ending::Unknown);
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

/// A card as the audit knows it.
pub(crate) fn asked(card: &Card, request: u64, generation: u64) -> Asked<'_> {
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
        arguments: Some(card.digest()),
        card: Some(card.id()),
    }
}
