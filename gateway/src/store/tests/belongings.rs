//! Tokens, standing approvals, pins, counts and ended sessions.

use super::*;

fn token(id: &str, number: u8) -> TokenRow {
    TokenRow {
        id: id.to_owned(),
        holder: Holder::Agent(AgentName::new("Support").unwrap()),
        hash: [number; 32],
        run: Some("run_a".to_owned()),
        note: "for the night".to_owned(),
        created_ms: NOW + u64::from(number),
        created_by: "ann".to_owned(),
        expires_ms: None,
        revoked_ms: None,
    }
}

#[tokio::test]
async fn tokens_come_back_and_their_time_only_gets_shorter() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let agents = vec![AgentName::new("support").unwrap(), AgentName::new("billing").unwrap()];
    let holder = Holder::Admin { name: "dana".to_owned(), role: "harness".to_owned(), agents };
    let admin = TokenRow { holder, run: None, ..token("tok_b", 2) };
    store.insert_token(&token("tok_a", 1), None).await.unwrap();
    store.insert_token(&admin, None).await.unwrap();
    assert_eq!(store.tokens().await.unwrap(), [token("tok_a", 1), admin]);
    assert!(store.insert_token(&token("tok_c", 1), None).await.is_err());

    let limits = [(50, true), (60, false), (50, false), (40, true)];
    for (expires_ms, counts) in limits {
        assert_eq!(store.limit_token("tok_a", expires_ms).await.unwrap(), counts, "{expires_ms}");
    }
    assert!(store.revoke_token("tok_a", NOW).await.unwrap());
    assert!(!store.revoke_token("tok_a", NOW + 1).await.unwrap());
    assert!(!store.limit_token("tok_a", 1).await.unwrap());
    let first = store.tokens().await.unwrap().swap_remove(0);
    assert_eq!((first.expires_ms, first.revoked_ms), (Some(40), Some(NOW)));
    let told = store.events(0, 10).await.unwrap();
    let told: Vec<_> = told.iter().filter_map(|told| told.state.as_deref()).collect();
    assert_eq!(told, ["minted", "minted", "limited", "limited", "revoked"]);
}

#[tokio::test]
async fn a_token_takes_the_place_of_another_one_in_one_step() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.insert_token(&token("tok_a", 1), None).await.unwrap();
    store.insert_token(&token("tok_b", 2), Some(("tok_a", NOW + 9))).await.unwrap();
    // A twin of a token is refused, and then the other one keeps its time.
    let twin = token("tok_c", 2);
    assert!(store.insert_token(&twin, Some(("tok_b", NOW + 3))).await.is_err());
    let ends: Vec<_> =
        store.tokens().await.unwrap().into_iter().map(|row| (row.id, row.expires_ms)).collect();
    assert_eq!(ends, [("tok_a".to_owned(), Some(NOW + 9)), ("tok_b".to_owned(), None)]);
}

fn given(id: &str, standing: Stands) -> (Change, Grant) {
    let by = Decider { name: "ann".to_owned(), role: Approver::Human };
    let card = card(id, 7);
    let word = Word { standing: Some(standing), ..Word::approve(card.digest()) };
    let (card, _) = step(&card, Event::Decide { word, by }, NOW).unwrap();
    let grant = Grant::given(format!("gra_{id}"), &card).unwrap();
    let given = Some(grant.clone());
    (Change { card, kept: None, decided: true, given, silent: false }, grant)
}

#[tokio::test]
async fn a_standing_approval_comes_with_its_decision_and_covers_what_it_names_until_it_ends() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let tool = Stands { covers: Covers::Tool, lasts_ms: Some(10), of: Whose::Agent };
    let exact = Stands { covers: Covers::Arguments, lasts_ms: None, of: Whose::Run };
    let mut grants = Vec::new();
    for (id, standing) in [("apr_any", tool), ("apr_run", exact)] {
        let (change, grant) = given(id, standing);
        // One live card of a call at a time.
        assert_eq!(store.insert(&card(id, 7), None, None).await.unwrap(), Inserted::New);
        assert_eq!(store.commit(std::slice::from_ref(&change)).await.unwrap(), [true]);
        // A decision that does not count gives nothing.
        assert_eq!(store.commit(std::slice::from_ref(&change)).await.unwrap(), [false]);
        let by = Event::Stop { why: "over".to_owned() };
        let (ended, _) = step(&change.card, by, NOW).unwrap();
        let ended = Change { card: ended, kept: None, decided: false, given: None, silent: false };
        assert_eq!(store.commit(&[ended]).await.unwrap(), [true]);
        grants.push(grant);
    }
    let asked = |number| card("apr_x", number).asked().clone();
    let found = |asked: Asked, now_ms| {
        let store = store.clone();
        async move { store.grants_for(&asked, now_ms).await.unwrap() }
    };
    let [any, of_run] = [&grants[0], &grants[1]];
    assert_eq!(found(asked(7), NOW).await, [of_run.clone(), any.clone()]);
    assert_eq!(found(asked(8), NOW).await, std::slice::from_ref(any));
    assert_eq!(found(asked(8), NOW + 10).await, []);
    let other = Digest::of(b"another definition");
    assert_eq!(found(Asked { definition: other, ..asked(7) }, NOW).await, []);
    let elsewhere = Asked { run: "run_b".to_owned(), ..asked(7) };
    assert_eq!(found(elsewhere, NOW).await, std::slice::from_ref(any));
    let live = GrantFilter { live_at_ms: Some(NOW), ..GrantFilter::default() };
    assert_eq!(store.grants(&live).await.unwrap().len(), 2);

    // A card rests on it as long as it holds, and on its run.
    let by = Card::by_grant("apr_by".to_owned(), asked(9), any, NOW).unwrap();
    assert_eq!(store.insert(&by, None, Some(any)).await.unwrap(), Inserted::New);
    assert_eq!(store.decisions("apr_by").await.unwrap().len(), 1);
    assert!(store.end_grant(any, NOW).await.unwrap());
    assert!(!store.end_grant(any, NOW).await.unwrap());
    let late = Card::by_grant("apr_late".to_owned(), asked(10), any, NOW).unwrap();
    assert_eq!(store.insert(&late, None, Some(any)).await.unwrap(), Inserted::GrantEnded);
    let twin = Card::by_grant("apr_twin".to_owned(), asked(7), of_run, NOW).unwrap();
    assert_eq!(store.insert(&twin, None, Some(of_run)).await.unwrap(), Inserted::New);
    assert_eq!(store.grants(&live).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_pin_replaces_the_one_before() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let pin = |tool: &str, doc: &str| PinRow {
        server: ServerName::new("crm").unwrap(),
        tool: ToolName::new(tool).unwrap(),
        definition: Digest::of(doc.as_bytes()),
        doc: doc.to_owned(),
        accepted_ms: NOW,
        accepted_by: "ann".to_owned(),
    };
    for pin in [pin("refund", "old"), pin("find", "as it is"), pin("refund", "new")] {
        store.pin(&pin).await.unwrap();
    }
    let server = ServerName::new("CRM").unwrap();
    let pins = store.pins(&server).await.unwrap();
    assert_eq!(pins, [pin("find", "as it is"), pin("refund", "new")]);
    assert!(store.pins(&ServerName::new("notes").unwrap()).await.unwrap().is_empty());
}

#[tokio::test]
async fn counts_are_of_their_window_and_no_clock_resets_them() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    let window_ms = 1_000;
    for expected in 1..=3 {
        assert_eq!(store.count("a", window_ms, NOW + expected).await.unwrap(), expected);
    }
    assert_eq!(store.count("b", window_ms, NOW).await.unwrap(), 1);
    assert_eq!(store.counted("a", window_ms, NOW + 999).await.unwrap(), 3);
    assert_eq!(store.counted("a", window_ms, NOW + 1_000).await.unwrap(), 0);
    assert_eq!(store.count("a", window_ms, NOW + 1_000).await.unwrap(), 1);
    assert_eq!(store.count("a", window_ms, NOW).await.unwrap(), 2);
    assert_eq!(store.counted("a", window_ms, NOW).await.unwrap(), 2);
}

#[tokio::test]
async fn an_ended_session_is_known_for_as_long_as_its_id_would_count() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.end_session(&[1; 32], NOW + 1).await.unwrap();
    store.end_session(&[1; 32], NOW + 1).await.unwrap();
    store.end_session(&[2; 32], NOW + 2).await.unwrap();
    assert_eq!(store.ended_sessions(NOW).await.unwrap().len(), 2);
    assert_eq!(store.ended_sessions(NOW + 1).await.unwrap(), [[2; 32]]);
}
