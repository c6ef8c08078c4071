mod deciding;

use super::*;
use crate::definition::{Approver, StandingMost};
use crate::name::{AgentName, ToolName};
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000_000;

fn asked(on_caller_gone: OnCallerGone) -> Asked {
    let arguments = r#"{"id":7}"#.to_owned();
    Asked {
        agent: AgentName::new("support").unwrap(),
        above: Vec::new(),
        run: "run_a".to_owned(),
        server: ServerName::new("crm").unwrap(),
        tool: ToolName::new("refund").unwrap(),
        exposed: "crm__refund".to_owned(),
        digest: Digest::of(arguments.as_bytes()),
        arguments,
        secret: Vec::new(),
        definition: Digest::of(b"definition"),
        generation: 3,
        external: None,
        rule: "support.agents.json:12:7".to_owned(),
        approvers: vec![Approver::Parent, Approver::Human],
        count: 1,
        user: None,
        standing: StandingMost::Tool,
        on_caller_gone,
        decide_within_ms: 600_000,
        use_within_ms: 600_000,
    }
}

fn parked() -> Card {
    Card::new("apr_a".to_owned(), asked(OnCallerGone::Keep), NOW)
}

fn operator() -> Decider {
    Decider { name: "ann".to_owned(), role: Approver::Human }
}

fn approve() -> Event {
    Event::Decide { word: Word::approve(Digest::of(br#"{"id":7}"#)), by: operator() }
}

fn deny(reason: &str) -> Event {
    Event::Decide { word: Word::deny(reason), by: operator() }
}

fn finish(outcome: Outcome) -> Event {
    Event::Finish { outcome, detail: "the server is unreachable".to_owned() }
}

fn after(events: impl IntoIterator<Item = Event>) -> Card {
    events.into_iter().fold(parked(), |card, event| step(&card, event, NOW).unwrap().0)
}

fn in_state(state: State) -> Card {
    let stop = Event::Stop { why: "the parent ended the run".to_owned() };
    let text = "The approval no longer holds.".to_owned();
    match state {
        State::Parked => parked(),
        State::Approved => after([approve()]),
        State::Executing => after([approve(), Event::Execute]),
        State::Done => after([approve(), Event::Execute, finish(Outcome::Ok)]),
        State::Unknown => after([
            approve(),
            Event::Execute,
            Event::Lose { why: "the gateway restarted while it ran".to_owned() },
        ]),
        State::Denied => after([deny("use the EU form.")]),
        State::Expired => after([Event::Expire]),
        State::Lapsed => after([approve(), Event::Lapse]),
        State::Revoked => after([approve(), Event::Revoke { text }]),
        State::Stopped => after([stop]),
        State::Cancelled => after([Event::Cancel]),
    }
}

fn every_event() -> Vec<(&'static str, Event)> {
    vec![
        ("approve", approve()),
        ("deny", deny("no")),
        ("execute", Event::Execute),
        ("finish", finish(Outcome::ToolError)),
        ("lose", Event::Lose { why: "lost".to_owned() }),
        ("expire", Event::Expire),
        ("lapse", Event::Lapse),
        ("revoke", Event::Revoke { text: "gone".to_owned() }),
        ("stop", Event::Stop { why: "stopped".to_owned() }),
        ("cancel", Event::Cancel),
        ("leave", Event::Leave),
        ("detach", Event::Detach),
        ("attend", Event::Attend),
        ("mark", Event::Mark { left_ms: 5 }),
        ("follow", Event::Follow),
    ]
}

// One row a state, one column an event, in the order of `every_event`; `-` changes nothing.
const TABLE: [(State, &str); 11] = [
    (
        State::Parked,
        "approved denied - - - expired - revoked stopped cancelled parked parked - parked parked",
    ),
    (
        State::Approved,
        "- - executing - - - lapsed revoked stopped cancelled approved approved - approved approved",
    ),
    (
        State::Executing,
        "- - - done unknown - - - unknown unknown executing executing - - executing",
    ),
    (State::Done, "- - - - - - - - - - - - - - -"),
    (State::Unknown, "- - - - - - - - - - - - - - -"),
    (State::Denied, "- - - - - - - - - - - - - - -"),
    (State::Expired, "- - - - - - - - - - - - - - -"),
    (State::Lapsed, "- - - - - - - - - - - - - - -"),
    (State::Revoked, "- - - - - - - - - - - - - - -"),
    (State::Stopped, "- - - - - - - - - - - - - - -"),
    (State::Cancelled, "- - - - - - - - - - - - - - -"),
];

#[test]
fn every_event_in_every_state_does_what_the_table_says() {
    for (state, row) in TABLE {
        let card = in_state(state);
        assert_eq!(card.state(), state);
        let columns: Vec<_> = row.split_whitespace().collect();
        assert_eq!(columns.len(), every_event().len());
        for ((name, event), expected) in every_event().into_iter().zip(columns) {
            let became = match step(&card, event, NOW) {
                Ok((next, _)) => {
                    assert_eq!(next.version(), card.version() + 1);
                    next.state().as_str()
                }
                Err(_) => "-",
            };
            assert_eq!(became, expected, "{name} in {}", state.as_str());
        }
    }
}

#[test]
fn only_the_step_to_executing_makes_an_approved() {
    for (state, _) in TABLE {
        for (name, event) in every_event() {
            let runs = step(&in_state(state), event, NOW).is_ok_and(|(_, effects)| {
                effects.iter().any(|effect| matches!(effect, Effect::Run(_)))
            });
            assert_eq!(runs, state == State::Approved && name == "execute");
        }
    }
}

#[test]
fn an_approval_covers_exactly_what_was_asked() {
    let card = in_state(State::Approved);
    let (_, mut effects) = step(&card, Event::Execute, NOW).unwrap();
    let Some(Effect::Run(approved)) = effects.pop() else { panic!("no approval") };
    assert_eq!(approved.server(), &card.asked().server);
    assert_eq!(approved.tool(), "refund");
    assert_eq!(approved.exposed(), "crm__refund");
    assert_eq!(approved.definition(), card.asked().definition);
    assert_eq!(approved.arguments(), card.asked().arguments);
}

#[test]
fn what_started_and_is_stopped_may_have_run() {
    let executing = in_state(State::Executing);
    let (next, effects) =
        step(&executing, Event::Stop { why: "the run was stopped".to_owned() }, NOW).unwrap();
    assert_eq!(next.state(), State::Unknown);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Abort)));
}

#[test]
fn a_caller_that_leaves_keeps_or_ends_its_card_as_the_policy_says() {
    let (kept, _) = step(&parked(), Event::Leave, NOW).unwrap();
    assert_eq!((kept.state(), kept.unattended()), (State::Parked, true));
    let (back, _) = step(&kept, Event::Attend, NOW).unwrap();
    assert!(!back.unattended());
    let pending = Card::new("apr_b".to_owned(), asked(OnCallerGone::Settle), NOW);
    let (told, _) = step(&pending, Event::Detach, NOW).unwrap();
    assert_eq!((told.state(), told.unattended()), (State::Parked, true));
    let settle = Card::new("apr_b".to_owned(), asked(OnCallerGone::Settle), NOW);
    let (ended, _) = step(&settle, Event::Leave, NOW).unwrap();
    assert_eq!(ended.state(), State::Cancelled);
    // What runs, runs to its end: its answer is kept.
    let (approved, _) = step(&settle, approve(), NOW).unwrap();
    let (running, _) = step(&approved, Event::Execute, NOW).unwrap();
    let (left, _) = step(&running, Event::Leave, NOW).unwrap();
    assert_eq!((left.state(), left.unattended()), (State::Executing, true));
}

#[test]
fn who_is_not_listed_does_not_decide() {
    let mut narrow = asked(OnCallerGone::Keep);
    narrow.approvers = vec![Approver::Parent];
    let card = Card::new("apr_c".to_owned(), narrow, NOW);
    assert_eq!(step(&card, approve(), NOW).unwrap_err(), Unmoved::NotApprover(Approver::Human));
}

#[test]
fn no_clock_jump_lengthens_a_deadline() {
    let deadline = Deadline { left_ms: 1_000, written_ms: NOW };
    assert_eq!(deadline.left_at(NOW), 1_000);
    assert_eq!(deadline.left_at(NOW + 400), 600);
    assert_eq!(deadline.left_at(NOW + 86_400_000), 0);
    assert_eq!(deadline.left_at(NOW - 86_400_000), 1_000);
    let (marked, _) = step(&parked(), Event::Mark { left_ms: u64::MAX }, NOW - 5).unwrap();
    assert_eq!(marked.deadline().unwrap().left_ms, 600_000);
    let (approved, _) = step(&marked, approve(), NOW).unwrap();
    let limit = approved.deadline().unwrap();
    assert_eq!(limit, Deadline { left_ms: 600_000, written_ms: NOW });
}

#[test]
fn the_key_knows_an_identical_call_and_no_other() {
    let base = asked(OnCallerGone::Keep);
    let mut folded = base.clone();
    folded.agent = AgentName::new("SUPPORT").unwrap();
    assert_eq!(base.key(), folded.key());
    let mut other_run = base.clone();
    other_run.run = "run_b".to_owned();
    let mut other_tool = base.clone();
    other_tool.tool = ToolName::new("Refund").unwrap();
    let mut other_arguments = base.clone();
    other_arguments.digest = Digest::of(b"{}");
    for other in [other_run, other_tool, other_arguments] {
        assert_ne!(base.key(), other.key());
    }
}

#[test]
fn a_record_reads_back_and_a_forged_one_does_not() {
    for state in State::ALL {
        let card = in_state(state);
        let record = card.write().unwrap();
        assert_eq!(Card::read(&record).unwrap(), card);
        assert!(Card::read(&record.replacen('{', r#"{"extra":1,"#, 1)).is_err());
        assert_eq!(State::parse(state.as_str()), Some(state));
    }
    let forged = parked().write().unwrap().replace(r#"{\"id\":7}"#, r#"{\"id\":8}"#);
    assert!(matches!(Card::read(&forged), Err(CardFault::Digest(_))));
}

#[test]
fn callers_read_what_became_of_their_call() {
    let mut texts = vec![words::waiting(&parked()), words::pending(&parked())];
    texts.extend(State::ALL.into_iter().filter_map(|state| words::settled(&in_state(state))));
    let not_sent = after([approve(), Event::Execute, finish(Outcome::NotSent)]);
    texts.extend(words::settled(&not_sent));
    texts.extend(words::settled(&after([deny("")])));
    texts.push(words::not_kept(&in_state(State::Done), Some(2_000_000)));
    texts.push(words::not_kept(&in_state(State::Done), None));
    assert!(texts.iter().all(|text| !text.contains("ann")));
    insta::assert_snapshot!(texts.join("\n"), @r"
    waiting for approval `apr_a` by parent or operator
    This call did NOT run. Approval `apr_a` is pending. Collect with `approval_status` and this id, or make the identical call again.
    `crm__refund`: outcome unknown, it may have run (the gateway restarted while it ran). Find out whether it took effect before you call it again.
    `crm__refund` was denied by the operator: use the EU form. It did not run.
    `crm__refund`: nobody decided in 10m; it did not run.
    `crm__refund` was approved, but nobody collected it in 10m; it did not run. Make the identical call to ask again.
    The approval no longer holds.
    `crm__refund` was stopped: the parent ended the run. It did not run.
    `crm__refund` was cancelled: its caller cancelled it. It did not run.
    `crm__refund` was approved but not sent: the server is unreachable. It did not run.
    `crm__refund` was denied by the operator, without a reason. It did not run.
    `crm__refund` ran at 2027-01-15T08:00:00Z; its answer of 2000000 bytes was not kept.
    `crm__refund` ran at 2027-01-15T08:00:00Z; its answer was handed over before or is not kept any more.
    ");
}

#[test]
fn times_read_as_people_write_them() {
    assert_eq!(words::duration(600_000), "10m");
    assert_eq!(words::duration(5_400_250), "1h30m250ms");
    assert_eq!(words::duration(0), "0s");
    assert_eq!(words::utc(0), "1970-01-01T00:00:00Z");
    assert_eq!(words::utc(951_782_400_000), "2000-02-29T00:00:00Z");
    assert_eq!(words::utc(1_709_251_199_000), "2024-02-29T23:59:59Z");
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let events: Vec<_> = every_event().into_iter().map(|(_, event)| event).collect();
    prop::collection::vec(prop::sample::select(events), 0..40)
}

proptest! {
    #[test]
    fn every_parked_call_settles_once(events in any_events(), settle in any::<bool>()) {
        let gone = if settle { OnCallerGone::Settle } else { OnCallerGone::Keep };
        let mut card = Card::new("apr_p".to_owned(), asked(gone), NOW);
        let mut settled: Option<Card> = None;
        let (mut approvals, mut runs) = (0, 0);
        for event in events {
            let before = card.clone();
            let Ok((next, effects)) = step(&card, event.clone(), NOW) else { continue };
            prop_assert!(settled.is_none(), "{event:?} moved a settled card");
            prop_assert_eq!(next.version(), before.version() + 1);
            prop_assert_eq!(next.asked(), before.asked());
            approvals += usize::from(next.state() == State::Approved && before.state() == State::Parked);
            runs += effects.iter().filter(|effect| matches!(effect, Effect::Run(_))).count();
            if next.state() == State::Executing {
                prop_assert!(matches!(before.state(), State::Approved | State::Executing));
            }
            if matches!(next.state(), State::Done | State::Unknown) {
                prop_assert_eq!(before.state(), State::Executing);
            }
            prop_assert_eq!(next.deadline().is_some(), matches!(next.state(), State::Parked | State::Approved));
            card = next;
            if card.state().is_settled() {
                settled = Some(card.clone());
            }
        }
        prop_assert!(runs <= approvals && approvals <= 1);
        if let Some(settled) = settled {
            prop_assert_eq!(&card, &settled);
            let ran = matches!(settled.outcome(), Some(Outcome::Ok | Outcome::ToolError | Outcome::RpcError));
            prop_assert_eq!(words::settled(&settled).is_none(), ran);
        }
    }

    #[test]
    fn a_deadline_never_grows(left in any::<u64>(), written in any::<u64>(), now in any::<u64>()) {
        let deadline = Deadline { left_ms: left, written_ms: written };
        prop_assert!(deadline.left_at(now) <= left);
    }
}
