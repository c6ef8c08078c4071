//! Random schedules of everything that can happen to one parked call at once: whatever the
//! order, one outcome, at most one execution, and nobody who waits is forgotten.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails says so by panicking, inside the schedule that fails"
)]

mod model;

use bytes::Bytes;
use model::{Desk, End, NOW, Plant, Ticket};
use portcullis_policy::canonical::Digest;
use portcullis_policy::catalogue::{Catalogue, Offer, Status, ToolOffer};
use portcullis_policy::decide::{Ask, Decision, Usage, decide};
use portcullis_policy::definition::{Approver, OnCallerGone};
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::{
    Asked, Card, Decider, Event, Outcome, State, Unmoved, Verdict, Word,
};
use portcullis_policy::name::{AgentName, ServerName};
use portcullis_policy::scope::Scope;
use portcullis_policy::source::{SourceFile, read};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Arc;
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Schedules of each of the four races with everybody in it. Four times this and the next are
/// 100,000.
const CROWDED: usize = 20_000;
/// Schedules of each of them with nobody but callers and an approver.
const QUIET: usize = 5_000;
/// Schedules of each of them that favour one task, and then another.
const FAVOURING: usize = 2_500;
/// How often such a schedule changes its mind.
const CHANGES: usize = 3;

/// Who takes part.
#[derive(Debug, Clone, Copy)]
struct Race {
    gone: OnCallerGone,
    caller: Caller,
    others: Others,
    plant: Plant,
}

/// Whether anything happens beside the call, its approval and its repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Each of them in half of all schedules: without some, others never come up.
    Perhaps,
    Away,
}

/// What the caller that made the card does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Stays,
    Leaves,
}

fn card(gone: OnCallerGone) -> Card {
    let gone = match gone {
        OnCallerGone::Keep => "keep",
        OnCallerGone::Settle => "settle",
    };
    let text = format!(
        "apiVersion: portcullis.dev/v1\nkind: Agent\nmetadata: {{name: support}}\nspec:\n  tools: [{{server: crm, allow: [refund]}}]\n  approval: {{onCallerGone: {gone}}}\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: crm}}\nspec: {{http: {{url: \"http://127.0.0.1:1\"}}}}\n"
    );
    let (definition, found) = read(&[SourceFile { name: "race.yaml".into(), text: &text }]);
    assert!(found.is_empty(), "{found:?}");
    let tool = r#"{"name":"refund","inputSchema":{}}"#;
    let tool = std::sync::Arc::new(ToolOffer::parse(tool, JsonLimits::default()).unwrap());
    let offer = Offer { status: Status::Ready, tools: vec![tool], ..Offer::default() };
    let crm = ServerName::new("crm").unwrap();
    let catalogue = Catalogue { servers: [(crm, std::sync::Arc::new(offer))].into() };
    let agent = AgentName::new("support").unwrap();
    let scope = Scope::resolve(&definition.agents[&agent], &definition, &catalogue, 1).0;
    let arguments = Some(Bytes::from_static(br#"{"amount":7}"#));
    let ask = Ask::Tool { name: "crm__refund".to_owned(), arguments };
    let Decision::Park(request) = decide(&scope, &scope.all, ask, &Usage::default()) else {
        panic!("it does not ask");
    };
    Card::new("apr_a".to_owned(), Asked::new(&agent, "run_a", &[], &request), NOW)
}

fn decided(word: Word, name: &str) -> Event {
    Event::Decide { word, by: Decider { name: name.to_owned(), role: Approver::Human } }
}

fn approve() -> Event {
    decided(Word::approve(Digest::of(br#"{"amount":7}"#)), "ann")
}

fn deny() -> Event {
    decided(Word::deny("no"), "bob")
}

fn stop() -> Event {
    Event::Stop { why: "enough".to_owned() }
}

type Answer = Option<Result<Card, Unmoved>>;

fn plays<T: Send + 'static>(
    desk: &Arc<Desk>,
    part: impl FnOnce(&Arc<Desk>) -> T + Send + 'static,
) -> JoinHandle<T> {
    let desk = Arc::clone(desk);
    thread::spawn(move || part(&desk))
}

fn calls(desk: &Arc<Desk>, caller: Caller, card: &Card) -> Option<Ticket> {
    stays_or_leaves(desk, caller, desk.park(card)?)
}

fn repeats(desk: &Arc<Desk>, caller: Caller) -> Option<Ticket> {
    stays_or_leaves(desk, caller, desk.attend()?)
}

fn stays_or_leaves(desk: &Arc<Desk>, caller: Caller, ticket: Ticket) -> Option<Ticket> {
    match caller {
        Caller::Stays => Some(ticket),
        Caller::Leaves => {
            desk.leave(&ticket);
            None
        }
    }
}

/// The caller, a repeat that stays and one that leaves; approve, deny, expire, lapse and stop:
/// at once.
fn race(racing: Race, card: &Card) {
    let desk = Desk::new(racing.plant);
    let card = card.clone();
    let perhaps = |event: Event| {
        let there = racing.others == Others::Perhaps && thread_rng().gen_bool(0.5);
        plays(&desk, move |desk| if there { desk.advance(&event) } else { None })
    };
    let calls = plays(&desk, move |desk| calls(desk, racing.caller, &card));
    let stays = plays(&desk, |desk| repeats(desk, Caller::Stays));
    let leaves = plays(&desk, |desk| repeats(desk, Caller::Leaves));
    let yes = plays(&desk, |desk| desk.advance(&approve()));
    let [no, late, unused] = [deny(), Event::Expire, Event::Lapse].map(perhaps);
    let stopping = racing.others == Others::Perhaps && thread_rng().gen_bool(0.5);
    let stops = plays(&desk, move |desk| if stopping { desk.stop(&stop()) } else { None });
    let tickets = [calls, stays, leaves].map(|waits| waits.join().unwrap());
    let [yes, no, _, _] = [yes, no, late, unused].map(|answer| answer.join().unwrap());
    let stopped = stops.join().unwrap();
    desk.rest();
    desk.time_passes();
    desk.rest();
    let end = desk.end();
    for told in tickets.into_iter().flatten().map(Ticket::wait) {
        assert_eq!(Some(&told), end.card.as_ref(), "a waiter was told another end");
    }
    judge(&end, [&yes, &no], stopped.as_ref());
}

fn judge(end: &End, [yes, no]: [&Answer; 2], stopped: Option<&Card>) {
    let Some(card) = &end.card else {
        // Its run was over before it was there.
        assert!(yes.is_none() && no.is_none() && end.sent == 0);
        return;
    };
    let state = card.state();
    assert_eq!((end.ends, state.is_settled()), (1, true), "{state:?}");
    let verdict = card.decision().map(|decision| &decision.verdict);
    let took = |answer: &Answer| answer.as_ref().is_some_and(Result::is_ok);
    assert_eq!(took(yes), verdict == Some(&Verdict::Approve), "{yes:?}, {verdict:?}");
    assert_eq!(took(no), matches!(verdict, Some(Verdict::Deny { .. })), "{no:?}, {verdict:?}");
    if let Some(stopped) = stopped {
        assert_eq!(stopped, card, "it went on after the stop");
    }
    let (least, most) = match (state, card.outcome()) {
        (State::Done, Some(Outcome::Ok)) => (1, 1),
        (State::Unknown, _) => (0, 1),
        _ => (0, 0),
    };
    assert!((least..=most).contains(&end.sent), "{state:?}, and sent {} times", end.sent);
    assert!(end.sent == 0 || took(yes), "it was sent without an approval");
}

fn run(scheduler: impl Scheduler + 'static, persistence: FailurePersistence, racing: Race) {
    let mut config = Config::new();
    config.failure_persistence = persistence;
    let card = card(racing.gone);
    Runner::new(scheduler, config).run(move || race(racing, &card));
}

fn random(racing: Race, schedules: usize) {
    run(RandomScheduler::new(schedules), FailurePersistence::Print, racing);
}

fn holds(gone: OnCallerGone, caller: Caller) {
    random(Race { gone, caller, others: Others::Perhaps, plant: Plant::Nothing }, CROWDED);
    random(Race { gone, caller, others: Others::Away, plant: Plant::Nothing }, QUIET);
}

#[test]
fn a_caller_that_stays_hears_the_one_end() {
    holds(OnCallerGone::Keep, Caller::Stays);
}

#[test]
fn a_caller_that_leaves_changes_no_end_of_others() {
    holds(OnCallerGone::Keep, Caller::Leaves);
}

#[test]
fn a_caller_that_stays_hears_the_one_end_where_leaving_cancels() {
    holds(OnCallerGone::Settle, Caller::Stays);
}

#[test]
fn a_caller_that_leaves_cancels_once_or_not_at_all() {
    holds(OnCallerGone::Settle, Caller::Leaves);
}

#[test]
fn schedules_that_favour_one_and_then_another_end_alike() {
    for gone in [OnCallerGone::Keep, OnCallerGone::Settle] {
        for caller in [Caller::Stays, Caller::Leaves] {
            let racing = Race { gone, caller, others: Others::Perhaps, plant: Plant::Nothing };
            run(PctScheduler::new(CHANGES, FAVOURING), FailurePersistence::Print, racing);
        }
    }
}

// A search that finds no planted mistake would prove nothing.
fn finds(plant: Plant, caller: Caller, others: Others) {
    let racing = Race { gone: OnCallerGone::Keep, caller, others, plant };
    let scheduler = RandomScheduler::new(CROWDED + QUIET);
    let search = || run(scheduler, FailurePersistence::None, racing);
    assert!(catch_unwind(AssertUnwindSafe(search)).is_err(), "{plant:?} was not found");
}

#[test]
fn a_store_that_takes_every_step_is_found_out() {
    finds(Plant::BlindStore, Caller::Stays, Others::Perhaps);
}

#[test]
fn a_caller_that_sits_down_too_late_is_found_out() {
    finds(Plant::LateSeat, Caller::Stays, Others::Perhaps);
}

#[test]
fn a_call_that_is_sent_before_its_approval_is_used_up_is_found_out() {
    finds(Plant::SentFirst, Caller::Stays, Others::Perhaps);
}

#[test]
fn an_executor_that_does_not_look_again_is_found_out() {
    finds(Plant::NoSecondLook, Caller::Leaves, Others::Away);
}
