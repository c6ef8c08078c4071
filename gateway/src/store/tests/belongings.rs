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

fn grant(id: &str, arguments: Option<Digest>) -> GrantRow {
    GrantRow {
        id: id.to_owned(),
        card: "apr_a".to_owned(),
        agent: AgentName::new("Support").unwrap(),
        run: None,
        server: ServerName::new("CRM").unwrap(),
        tool: ToolName::new("refund").unwrap(),
        arguments,
        definition: Digest::of(b"definition"),
        by: "ann".to_owned(),
        created_ms: NOW,
        expires_ms: None,
        ended_ms: None,
    }
}

#[tokio::test]
async fn a_standing_approval_covers_what_it_names_until_it_ends() {
    let ground = Ground::new(KIND);
    let store = open(&ground).await;
    store.ensure_run(&run("run_a")).await.unwrap();
    let (agent, server) = (AgentName::new("support").unwrap(), ServerName::new("crm").unwrap());
    let (exact, other) = (Digest::of(b"{}"), Digest::of(b"[]"));
    let wanted = |arguments| Wanted {
        agent: &agent,
        run: "run_a",
        server: &server,
        tool: "refund",
        arguments,
        definition: Digest::of(b"definition"),
    };
    let any = GrantRow { expires_ms: Some(NOW + 10), ..grant("gr_any", None) };
    let of_run = GrantRow { run: Some("run_a".to_owned()), ..grant("gr_run", Some(exact)) };
    for grant in [&any, &of_run] {
        assert!(store.insert_grant(grant).await.unwrap());
    }
    let found = |arguments, now_ms| {
        let (store, wanted) = (store.clone(), wanted(arguments));
        async move { store.grant_for(&wanted, now_ms).await.unwrap() }
    };
    assert_eq!(found(exact, NOW).await, Some(of_run));
    assert_eq!(found(other, NOW).await, Some(any));
    assert_eq!(found(other, NOW + 10).await, None);
    let changed = Wanted { definition: other, ..wanted(exact) };
    assert_eq!(store.grant_for(&changed, NOW).await.unwrap(), None);
    let elsewhere = Wanted { run: "run_b", ..wanted(exact) };
    assert_eq!(store.grant_for(&elsewhere, NOW).await.unwrap().unwrap().id, "gr_any");

    assert!(end_runs(&store, &["run_a"], &[]).await);
    assert_eq!(found(exact, NOW).await.unwrap().id, "gr_any");
    assert!(store.end_grant("gr_any", NOW).await.unwrap());
    assert!(!store.end_grant("gr_any", NOW).await.unwrap());
    assert_eq!(found(exact, NOW).await, None);
    let late = GrantRow { run: Some("run_a".to_owned()), ..grant("gr_late", None) };
    assert!(!store.insert_grant(&late).await.unwrap());
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
