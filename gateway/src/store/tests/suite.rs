//! What cards, runs and records are made of.

mod belongings;
mod cards;
mod events;
mod prune;
mod race;
mod runs;
mod writes;

use super::KIND;
use crate::store::ground::Ground;
use crate::store::*;
use bytes::Bytes;
use portcullis_policy::canonical::Digest;
use portcullis_policy::definition::{Approver, OnCallerGone, StandingMost};
use portcullis_policy::ledger::{
    Asked, Card, Covers, Decider, Event, Grant, Standing as Stands, State, Whose, Word, step,
};
use portcullis_policy::name::{AgentName, ServerName, ToolName};

pub(in crate::store::tests) const NOW: u64 = 1_800_000_000_000;

pub(in crate::store::tests) fn card(id: &str, number: u32) -> Card {
    card_of("run_a", id, number)
}

fn card_of(run: &str, id: &str, number: u32) -> Card {
    let arguments = format!(r#"{{"id":{number}}}"#);
    let asked = Asked {
        agent: AgentName::new("Support").unwrap(),
        above: Vec::new(),
        run: run.to_owned(),
        server: ServerName::new("crm").unwrap(),
        tool: ToolName::new("refund").unwrap(),
        exposed: "crm__refund".to_owned(),
        digest: Digest::of(arguments.as_bytes()),
        arguments,
        secret: Vec::new(),
        definition: Digest::of(b"definition"),
        generation: 1,
        rule: "support.agents.json:12".to_owned(),
        approvers: vec![Approver::Human],
        count: 1,
        user: None,
        standing: StandingMost::Tool,
        on_caller_gone: OnCallerGone::Keep,
        decide_within_ms: 600_000,
        use_within_ms: 600_000,
        external: None,
    };
    Card::new(id.to_owned(), asked, NOW + u64::from(number))
}

fn denied(card: &Card) -> Change {
    denied_by(card, "ann")
}

fn denied_by(card: &Card, name: &str) -> Change {
    let by = Decider { name: name.to_owned(), role: Approver::Human };
    let word = Word::deny("no");
    let (card, _) = step(card, Event::Decide { word, by }, NOW).unwrap();
    let kept = Kept {
        kind: KeptKind::Text,
        bytes: Bytes::from_static(b"denied"),
        expires_ms: NOW + 10,
        delivered: false,
    };
    Change { card, kept: Some(kept), decided: true, given: None, silent: false }
}

fn stopped(card: &Card) -> Change {
    let (card, _) = step(card, Event::Stop { why: "its run ended".to_owned() }, NOW).unwrap();
    Change { card, kept: None, decided: false, given: None, silent: false }
}

pub(in crate::store::tests) fn run(id: &str) -> RunRow {
    RunRow {
        id: id.to_owned(),
        agent: AgentName::new("Support").unwrap(),
        parent: None,
        unnamed: true,
        token: None,
        narrow: None,
        unattended: false,
        created_ms: NOW,
        created_by: "support".to_owned(),
        deadline: None,
        ended: None,
    }
}

fn below(parent: &str, id: &str) -> RunRow {
    RunRow { parent: Some(parent.to_owned()), unnamed: false, ..run(id) }
}

fn end() -> RunEnd {
    RunEnd { at_ms: NOW + 1, why: "its parent said so".to_owned() }
}

pub(in crate::store::tests) async fn add(store: &Store, card: &Card) -> Inserted {
    store.insert(card, Some(&run("run_a")), None).await.unwrap()
}

async fn open(ground: &Ground) -> Store {
    Store::open(&ground.settings()).await.unwrap()
}

async fn end_runs(store: &Store, ids: &[&str], changes: &[Change]) -> bool {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    store.end_runs(&ids, &end(), changes).await.unwrap()
}
