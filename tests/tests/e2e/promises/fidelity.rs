//! What an approver is shown is what is digested, and what the server receives: byte for byte,
//! whatever the arguments are and however they were written.

use super::{open, policy, text};
use portcullis_policy::canonical::{Digest, canonical};
use portcullis_policy::catalogue::{Catalogue, Offer, Status, ToolOffer};
use portcullis_policy::decide::{
    Ask, Decision, Reason, Request, Target, Usage, decide, decide_approved,
};
use portcullis_policy::definition::Approver as Role;
use portcullis_policy::json::JsonLimits;
use portcullis_policy::ledger::{Asked, Card, Decider, Effect, Event, Word, step};
use portcullis_policy::name::{AgentName, ServerName};
use portcullis_policy::scope::Scope;
use portcullis_policy::source::{SourceFile, read};
use portcullis_tests::agent::{Agent, Answer, Speaks};
use portcullis_tests::approver::Approver;
use portcullis_tests::arguments::{Dice, Tree};
use portcullis_tests::house::House;
use portcullis_tests::upstream;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Arguments that go straight through the policy; an unoptimised one has time for a quarter.
const STRAIGHT: usize = if cfg!(debug_assertions) { 25_000 } else { 100_000 };
/// Those that are spoiled.
const SPOILED: usize = 20_000;
/// Threads that share them.
const THREADS: usize = 4;
/// Arguments that go over the wire, and how many of them at one time.
const WIRED: usize = 500;
const AT_ONCE: usize = 25;

fn seed() -> u64 {
    let seed = RandomState::new().build_hasher().finish();
    eprintln!("seed {seed}");
    seed
}

fn scope() -> Scope {
    let text = policy("http://127.0.0.1:1/mcp", &[("support", "decideWithin: 10m")]);
    let (definition, found) = read(&[SourceFile { name: "policy.yaml".into(), text: &text }]);
    assert!(found.is_empty(), "{found:?}");
    let tool = ToolOffer::parse(&upstream::tool("refund"), JsonLimits::default()).unwrap();
    let offer = Offer { status: Status::Ready, tools: vec![Arc::new(tool)], ..Offer::default() };
    let crm = ServerName::new("crm").unwrap();
    let catalogue = Catalogue { servers: [(crm, Arc::new(offer))].into() };
    let agent = &definition.agents[&AgentName::new("support").unwrap()];
    Scope::resolve(agent, &definition, &catalogue, 1).0
}

fn ask(scope: &Scope, arguments: &str) -> Decision {
    let arguments = Some(bytes::Bytes::copy_from_slice(arguments.as_bytes()));
    let ask = Ask::Tool { name: "crm__refund".to_owned(), arguments };
    decide(scope, &scope.all, ask, &Usage::default())
}

fn parked(scope: &Scope, arguments: &str) -> Request {
    let Decision::Park(request) = ask(scope, arguments) else { panic!("no card: {arguments}") };
    request
}

/// From the words of the agent over a record on disk to what the server gets.
fn straight(scope: &Scope, dice: &mut Dice) {
    let tree = Tree::arguments(dice);
    let due = tree.canonical();
    let request = parked(scope, &tree.sloppy(dice));
    assert_eq!(request.arguments, due, "shown is something else");
    assert_eq!(request.digest, Digest::of(due.as_bytes()));
    assert_eq!(canonical(due.as_bytes(), JsonLimits::default()).as_ref(), Ok(&due));
    let agent = &scope.agent.name;
    let asked = Asked::new(agent, "run_a", &[], &request);
    let again = Asked::new(agent, "run_a", &[], &parked(scope, &tree.sloppy(dice)));
    assert_eq!(asked.key(), again.key(), "the identical call is another one");
    let card = Card::new("apr_a".to_owned(), asked, 1);
    let card = Card::read(&card.write().unwrap()).unwrap();
    let by = Decider { name: "ann".to_owned(), role: Role::Human };
    let approve = Event::Decide { word: Word::approve(card.digest()), by };
    let card = step(&card, approve, 1).unwrap().0;
    let effects = step(&card, Event::Execute, 1).unwrap().1;
    let approved = effects.into_iter().find_map(|effect| match effect {
        Effect::Run(approved) => Some(approved),
        Effect::Publish | Effect::Offer | Effect::Abort => None,
    });
    let permit = decide_approved(scope, &approved.unwrap()).unwrap();
    let Target::Tool { arguments, .. } = permit.spend() else { panic!("another target") };
    assert_eq!(arguments.as_deref(), Some(due.as_bytes()), "sent is something else");
}

/// A character that is gone, added or replaced: what is still taken is JSON for others too.
fn spoiled(scope: &Scope, dice: &mut Dice) {
    let tree = Tree::arguments(dice);
    let mut text: Vec<char> = tree.sloppy(dice).chars().collect();
    let other = ['"', '\\', '{', '}', '[', ']', ',', ':', '0', '-', 'e', 'u', '\u{1}', '.'];
    let (at, other) = (dice.below(text.len()), other[dice.below(other.len())]);
    match dice.below(3) {
        0 => drop(text.remove(at)),
        1 => text.insert(at, other),
        _ => text[at] = other,
    }
    let text: String = text.into_iter().collect();
    match ask(scope, &text) {
        Decision::Park(request) => {
            assert!(serde_json::from_str::<IgnoredAny>(&text).is_ok(), "no JSON: {text}");
            let again = canonical(request.arguments.as_bytes(), JsonLimits::default());
            assert_eq!(again.as_ref(), Ok(&request.arguments), "{text}");
        }
        Decision::Refuse(refusal) => {
            assert_eq!(refusal.reason, Reason::Arguments, "{text}");
            assert!(refusal.text.contains("Nothing was sent"), "{}", refusal.text);
        }
        Decision::Run(_) => panic!("{text} runs"),
    }
    if let Some(twice) = tree.with_a_member_twice(dice) {
        assert!(matches!(ask(scope, &twice), Decision::Refuse(_)), "a member twice: {twice}");
    }
}

fn in_threads(count: usize, case: fn(&Scope, &mut Dice)) {
    let seed = seed();
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            threads.spawn(move || {
                let mut dice = Dice::new(seed.wrapping_add(thread as u64));
                let scope = scope();
                for _ in 0..count / THREADS {
                    case(&scope, &mut dice);
                }
            });
        }
    });
}

#[test]
fn arguments_are_shown_digested_and_sent_in_one_form() {
    in_threads(STRAIGHT, straight);
}

#[test]
fn what_is_not_exactly_json_is_refused_and_a_member_twice_is() {
    in_threads(SPOILED, spoiled);
}

/// A card with its arguments as they are written in the answer.
#[derive(Deserialize)]
struct Shown<'a> {
    id: String,
    arguments: String,
    #[serde(borrow, rename = "argumentsView")]
    view: &'a RawValue,
    digest: String,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<Shown<'a>>,
}

fn call(agent: &Agent, arguments: &str) -> JoinHandle<Result<Answer, String>> {
    let agent = agent.clone();
    let params = format!(r#"{{"name":"crm__refund","arguments":{arguments}}}"#);
    tokio::spawn(async move { agent.raw("1", "tools/call", &params).await })
}

// Every one of `due` is shown as it is digested, and approved as it is shown.
async fn approve(operator: &Approver, due: &BTreeMap<String, JoinHandle<Result<Answer, String>>>) {
    let list = loop {
        let list = operator.text("/v1/approvals?state=parked").await.unwrap();
        let all: List<'_> = serde_json::from_str(&list).unwrap();
        if all.items.len() == due.len() {
            break list;
        }
        sleep(Duration::from_millis(10)).await;
    };
    let list: List<'_> = serde_json::from_str(&list).unwrap();
    for card in list.items {
        assert!(due.contains_key(&card.arguments), "shown is something else: {}", card.arguments);
        assert_eq!(card.view.get(), card.arguments);
        assert_eq!(card.digest, Digest::of(card.arguments.as_bytes()).to_string());
        let decision = serde_json::json!({"id": card.id, "digest": card.digest});
        assert_eq!(operator.decide(&decision, "approve").await.unwrap().0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_shown_digested_and_sent_in_one_form_over_the_wire() {
    let mut dice = Dice::new(seed());
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    let operator = Approver::of(&house);
    let agents = [
        house.agent("support", Speaks::Modern).await,
        house.agent("support", Speaks::Legacy("2025-11-25")).await,
    ];
    let mut all = Vec::new();
    for _ in 0..WIRED / AT_ONCE {
        let mut due = BTreeMap::new();
        while due.len() < AT_ONCE {
            let tree = Tree::arguments(&mut dice);
            // The same arguments twice would be one card.
            if let Entry::Vacant(free) = due.entry(tree.canonical()) {
                let agent = &agents[dice.below(agents.len())];
                free.insert(call(agent, &tree.sloppy(&mut dice)));
            }
        }
        approve(&operator, &due).await;
        for (canonical, held) in due {
            let answer = held.await.unwrap().unwrap();
            assert_eq!(answer.says(), canonical, "{}", answer.text);
            all.push(canonical);
        }
    }
    let mut received = upstream.calls("refund");
    received.sort_unstable();
    all.sort_unstable();
    assert_eq!(received, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_arguments_are_refused_clearly_and_make_no_card() {
    let (house, upstream) = open(&[("support", "decideWithin: 10m")]).await;
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(70), "]".repeat(70));
    let long = format!("{{\"a\":{}}}", "9".repeat(401));
    let malformed = [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"x":[{"a":1,"b":2,"a":3}]}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":"\udc00\ud800"}"#,
        r#"{"a":"\x"}"#,
        "{\"a\":\"\u{1}\"}",
        r#"{"a":01}"#,
        r#"{"a":1.}"#,
        r#"{"a":.5}"#,
        r#"{"a":+1}"#,
        r#"{"a":1e}"#,
        r#"{"a":NaN}"#,
        r#"{"a":Infinity}"#,
        r#"{"a":1,}"#,
        r#"{"a" 1}"#,
        r#"{a:1}"#,
        r#"{'a':1}"#,
        r#"{"a":1"#,
        r#"{"a":tru}"#,
        "[1]",
        r#""{}""#,
        "7",
        "null",
        &deep,
        &long,
    ];
    for speaks in [Speaks::Modern, Speaks::Legacy("2025-11-25"), Speaks::Legacy("2025-03-26")] {
        let agent = house.agent("support", speaks.clone()).await;
        for arguments in malformed {
            let answer = call(&agent, arguments).await.unwrap().unwrap();
            clear(&house, &answer, arguments).await;
        }
    }
    assert!(upstream.calls("refund").is_empty());
}

// Refused, with a reason in words, and nothing parked.
async fn clear(house: &House, answer: &Answer, arguments: &str) {
    let said = answer.json();
    let error = text(&said["error"], "message");
    let refused = !error.is_empty() || (answer.is_error() && answer.says().contains("Nothing was"));
    assert!(refused && (answer.status == 200 || answer.status == 400), "{arguments}: {answer:?}");
    let (_, list) = house.api("GET", "/v1/approvals", None).await;
    assert_eq!(list["items"], serde_json::json!([]), "{arguments}");
}
