//! Several approvers, edited arguments, standing approvals.

use super::*;

const EDITED: &str = r#"{"id":8}"#;

fn by(name: &str, role: Approver) -> Decider {
    Decider { name: name.to_owned(), role }
}

fn decide(card: &Card, word: Word, who: &str) -> Result<Card, Unmoved> {
    let event = Event::Decide { word, by: by(who, Approver::Human) };
    step(card, event, NOW).map(|(card, _)| card)
}

fn yes(card: &Card) -> Word {
    Word::approve(card.digest())
}

fn edited(card: &Card) -> Word {
    Word { edited: Some(EDITED.to_owned()), ..yes(card) }
}

fn for_all(count: u32) -> Card {
    Card::new("apr_n".to_owned(), Asked { count, ..asked(OnCallerGone::Keep) }, NOW)
}

#[test]
fn as_many_different_approvers_as_the_policy_says_must_approve() {
    let mut card = for_all(3);
    for (who, left) in [("ann", 2), ("bob", 1)] {
        card = decide(&card, yes(&card), who).unwrap();
        assert_eq!((card.state(), card.votes().len()), (State::Parked, 3 - left));
        assert_eq!(decide(&card, yes(&card), who).unwrap_err(), Unmoved::Voted);
    }
    assert!(words::waiting(&card).ends_with("(2 of 3 approvals)"));
    assert_eq!(Card::read(&card.write().unwrap()).unwrap(), card);
    let denied = decide(&card, Word::deny("no"), "ann").unwrap();
    assert_eq!((denied.state(), denied.votes().len()), (State::Denied, 0));
    let approved = decide(&card, yes(&card), "cyd").unwrap();
    assert_eq!(approved.state(), State::Approved);
    assert_eq!(approved.decision().unwrap().by.name, "cyd");
}

fn above(run: &str) -> Ancestor {
    Ancestor { agent: AgentName::new("Lead").unwrap(), run: run.to_owned() }
}

#[test]
fn runs_above_the_caller_decide_and_all_of_them_are_one_approver() {
    let above = vec![above("run_p"), above("run_g")];
    let asked = Asked { count: 2, above, ..asked(OnCallerGone::Keep) };
    let card = Card::new("apr_r".to_owned(), asked, NOW);
    let says = |card: &Card, run: &str| {
        let by = Decider::parent(&AgentName::new("lead").unwrap(), run);
        step(card, Event::Decide { word: yes(card), by }, NOW).map(|(card, _)| card)
    };
    for stranger in ["run_a", "run_x", "p", ""] {
        let refused = says(&card, stranger).unwrap_err();
        assert_eq!(refused, Unmoved::NotApprover(Approver::Parent), "{stranger}");
    }
    // One of them holds the token of the other.
    let voted = says(&card, "run_p").unwrap();
    assert_eq!(says(&voted, "run_g").unwrap_err(), Unmoved::Voted);
    assert_eq!(decide(&voted, yes(&card), "ann").unwrap().state(), State::Approved);
}

#[test]
fn one_person_in_two_roles_is_one_approver() {
    let approvers = vec![Approver::Parent, Approver::Human, Approver::User];
    let user = Some("ann".to_owned());
    let asked = Asked { count: 2, approvers, user, ..asked(OnCallerGone::Keep) };
    let card = Card::new("apr_r".to_owned(), asked, NOW);
    let voted = decide(&card, yes(&card), "ann").unwrap();
    let again = Event::Decide { word: yes(&card), by: by("ann", Approver::User) };
    assert_eq!(step(&voted, again, NOW).unwrap_err(), Unmoved::Voted);
    let other = Event::Decide { word: yes(&card), by: by("bob", Approver::Human) };
    assert_eq!(step(&voted, other, NOW).unwrap().0.state(), State::Approved);
}

#[test]
fn only_the_person_that_the_policy_names_is_the_user() {
    let mut asked = asked(OnCallerGone::Keep);
    asked.approvers = vec![Approver::User];
    for (user, who, decides) in
        [(Some("ann"), "ann", true), (Some("ann"), "bob", false), (None, "ann", false)]
    {
        asked.user = user.map(str::to_owned);
        assert_eq!(asked.is_decided_by(&by(who, Approver::User)), decides, "{user:?} {who}");
        assert!(!asked.is_decided_by(&by(who, Approver::Human)));
    }
}

#[test]
fn what_an_approver_made_of_the_arguments_runs_and_what_was_asked_for_is_kept() {
    let card = decide(&parked(), edited(&parked()), "ann").unwrap();
    assert_eq!((card.arguments(), card.digest()), (EDITED, Digest::of(EDITED.as_bytes())));
    assert_eq!(card.asked(), parked().asked());
    assert_eq!(card.asked().key(), parked().asked().key(), "the repeat is of what was asked for");
    let (_, mut effects) = step(&card, Event::Execute, NOW).unwrap();
    let Some(Effect::Run(approved)) = effects.pop() else { panic!("no approval") };
    assert_eq!(approved.arguments(), EDITED);
    let forged = card.write().unwrap().replace(r#"{\"id\":8}"#, r#"{\"id\":9}"#);
    assert!(matches!(Card::read(&forged), Err(CardFault::Digest(_))));
    // The same arguments are no edit.
    let same = Word { edited: Some(parked().arguments().to_owned()), ..yes(&parked()) };
    assert_eq!(decide(&parked(), same, "ann").unwrap().edit(), None);
}

#[test]
fn an_edit_takes_back_what_was_said_of_other_arguments() {
    let card = decide(&for_all(2), yes(&for_all(2)), "ann").unwrap();
    let card = decide(&card, edited(&card), "bob").unwrap();
    let voters: Vec<_> = card.votes().iter().map(|vote| vote.by.name.as_str()).collect();
    assert_eq!((card.state(), voters), (State::Parked, vec!["bob"]));
    assert_eq!(decide(&card, yes(&parked()), "ann").unwrap_err(), Unmoved::WrongDigest);
    assert_eq!(decide(&card, yes(&card), "bob").unwrap_err(), Unmoved::Voted);
    let approved = decide(&card, yes(&card), "ann").unwrap();
    assert_eq!((approved.state(), approved.arguments()), (State::Approved, EDITED));
}

#[test]
fn an_approval_without_the_right_digest_is_none() {
    for digest in [None, Some(Digest::of(b"{}"))] {
        let word = Word { digest, ..yes(&parked()) };
        assert_eq!(decide(&parked(), word, "ann").unwrap_err(), Unmoved::WrongDigest);
    }
    let wrong = Word { digest: Some(Digest::of(b"{}")), ..Word::deny("no") };
    assert_eq!(decide(&parked(), wrong, "ann").unwrap_err(), Unmoved::WrongDigest);
    assert_eq!(decide(&parked(), Word::deny("no"), "ann").unwrap().state(), State::Denied);
}

fn standing(covers: Covers, lasts_ms: Option<u64>, of: Whose) -> Standing {
    Standing { covers, lasts_ms, of }
}

#[test]
fn one_approval_covers_no_more_than_it_may() {
    let run = standing(Covers::Tool, None, Whose::Run);
    let minute = standing(Covers::Arguments, Some(60_000), Whose::Agent);
    let given = |card: &Card, standing: Standing, role| {
        let word = Word { standing: Some(standing), ..yes(card) };
        step(card, Event::Decide { word, by: by("ann", role) }, NOW).map(|(card, _)| card)
    };
    let human = Approver::Human;
    for fits in [run, minute, standing(Covers::Tool, Some(STANDING_MS_MAX), Whose::Run)] {
        let card = given(&parked(), fits, human).unwrap();
        assert_eq!(card.decision().unwrap().standing, Some(fits));
    }
    for (over, role) in [
        (standing(Covers::Tool, None, Whose::Agent), human),
        (standing(Covers::Tool, Some(0), Whose::Run), human),
        (standing(Covers::Tool, Some(STANDING_MS_MAX + 1), Whose::Run), human),
    ] {
        let refused = given(&parked(), over, role).unwrap_err();
        assert!(matches!(refused, Unmoved::TooMuch(_)), "{over:?}");
    }
    let below = Asked { above: vec![above("run_p")], ..asked(OnCallerGone::Keep) };
    let below = Card::new("apr_b".to_owned(), below, NOW);
    for (standing, fits) in [(run, true), (minute, false)] {
        let word = Word { standing: Some(standing), ..yes(&below) };
        let by = Decider::parent(&AgentName::new("lead").unwrap(), "run_p");
        let given = step(&below, Event::Decide { word, by }, NOW);
        assert_eq!(given.is_ok(), fits, "a parent decides for runs below it: {given:?}");
    }
    for (most, tool, arguments) in
        [(StandingMost::Never, false, false), (StandingMost::Arguments, false, true)]
    {
        let asked = Asked { standing: most, ..asked(OnCallerGone::Keep) };
        let card = Card::new("apr_m".to_owned(), asked, NOW);
        assert_eq!(given(&card, run, human).is_ok(), tool);
        assert_eq!(given(&card, minute, human).is_ok(), arguments);
    }
    assert!(matches!(given(&for_all(2), run, human), Err(Unmoved::TooMuch(_))));
    let both = Word { standing: Some(run), ..edited(&parked()) };
    assert!(matches!(decide(&parked(), both, "ann"), Err(Unmoved::TooMuch(_))));
}

fn grant(card: &Card, standing: Standing) -> Grant {
    let word = Word { standing: Some(standing), ..yes(card) };
    Grant::given("gra_a".to_owned(), &decide(card, word, "ann").unwrap()).unwrap()
}

#[test]
fn nothing_is_given_that_nobody_said() {
    for state in State::ALL {
        assert_eq!(Grant::given("gra_a".to_owned(), &in_state(state)), None, "{state:?}");
    }
}

#[test]
fn a_card_by_a_standing_approval_runs_once_like_any_other() {
    let grant = grant(&parked(), standing(Covers::Tool, None, Whose::Run));
    let other = Asked { arguments: EDITED.to_owned(), ..asked(OnCallerGone::Keep) };
    let other = Asked { digest: Digest::of(EDITED.as_bytes()), ..other };
    let card = Card::by_grant("apr_g".to_owned(), other, &grant, NOW).unwrap();
    assert_eq!((card.state(), card.version()), (State::Approved, 1));
    let decision = card.decision().unwrap();
    assert_eq!((decision.grant.as_deref(), decision.by.name.as_str()), (Some("gra_a"), "ann"));
    // It gives nothing on: only somebody who looked does.
    assert_eq!(Grant::given("gra_b".to_owned(), &card), None);
    let (running, _) = step(&card, Event::Execute, NOW).unwrap();
    assert!(step(&running, Event::Execute, NOW).is_err());
    assert_eq!(Card::read(&card.write().unwrap()).unwrap(), card);
}

// What a standing approval allows, said the long way round.
fn allows(grant: &Grant, asked: &Asked, given: &Asked, standing: Standing, now_ms: u64) -> bool {
    let same_tool = asked.server == given.server && asked.tool.as_str() == given.tool.as_str();
    let same_call = same_tool && asked.digest == given.digest;
    let within = match standing.covers {
        Covers::Tool => same_tool && asked.standing == StandingMost::Tool,
        Covers::Arguments => same_call && asked.standing != StandingMost::Never,
    };
    let whose = match standing.of {
        Whose::Agent => asked.agent == given.agent,
        Whose::Run => asked.agent == given.agent && asked.run == given.run,
    };
    let lasts = now_ms < NOW + standing.lasts_ms.unwrap_or(STANDING_MS_MAX);
    let decides = asked.approvers.contains(&grant.by.role);
    within && whose && lasts && decides && asked.definition == given.definition && asked.count == 1
}

proptest! {
    #[test]
    fn a_standing_approval_allows_what_it_says_and_nothing_else(
        tool in any::<bool>(), agent_wide in any::<bool>(), lasts in prop::option::of(1..5_u64),
        changes in prop::collection::vec(0..9_u8, 0..3), later in 0..6_u64,
    ) {
        let standing = Standing {
            covers: if tool { Covers::Tool } else { Covers::Arguments },
            lasts_ms: lasts.or(agent_wide.then_some(9)),
            of: if agent_wide { Whose::Agent } else { Whose::Run },
        };
        let grant = grant(&parked(), standing);
        let mut wanted = asked(OnCallerGone::Settle);
        for change in changes {
            match change {
                0 => wanted.agent = AgentName::new("other").unwrap(),
                1 => wanted.run = "run_b".to_owned(),
                2 => wanted.server = ServerName::new("crm2").unwrap(),
                3 => wanted.tool = ToolName::new("Refund").unwrap(),
                4 => wanted.digest = Digest::of(b"{}"),
                5 => wanted.definition = Digest::of(b"another"),
                6 => wanted.standing = StandingMost::Arguments,
                7 => wanted.count = 2,
                _ => wanted.approvers = vec![Approver::Parent],
            }
        }
        let now_ms = NOW + later;
        let model = allows(&grant, &wanted, parked().asked(), standing, now_ms);
        prop_assert_eq!(grant.allows(&wanted, now_ms), model);
        let card = Card::by_grant("apr_g".to_owned(), wanted, &grant, now_ms);
        prop_assert_eq!(card.is_some(), model);
    }
}
