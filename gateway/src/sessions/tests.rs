//! What a session id is worth to whom, and for how long.

use super::table::{ENDED_MAX, KNOWN_MAX, KNOWN_PER_CREDENTIAL_MAX};
use super::*;
use crate::parked::ManualClock;
use crate::seal::rotate;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::time::SystemTime;

const START_MS: u64 = 1_796_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A key file of its own that goes when the test ends.
struct Keys(PathBuf);

impl Keys {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portcullis-sessions-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn file(&self) -> PathBuf {
        self.0.join("seal.json")
    }

    fn seal(&self) -> Seal {
        Seal::from_file(&self.file()).unwrap()
    }

    /// A gateway with these keys, as one that was just started.
    fn sessions(&self, ended: Option<Ended>) -> (Sessions, ManualClock) {
        let (clock, hands) = Clock::manual(START_MS);
        let ended = ended.map(|ended| ended.hash);
        (Sessions::new(self.seal(), ended, clock), hands)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(sessions: &Sessions) -> String {
    let opening = Opening {
        credential: "cred",
        path: "/a/support/mcp",
        version: "2025-06-18",
        client: "claude-code ü",
        opens_urls: false,
    };
    sessions.open(&opening).unwrap()
}

fn find(sessions: &Sessions, id: &str) -> Option<Arc<Session>> {
    sessions.find(id, "cred", "/a/support/mcp")
}

#[test]
fn an_id_carries_what_was_agreed_on_through_a_restart() {
    let keys = Keys::new();
    let id = open(&keys.sessions(None).0);
    assert!(id.bytes().all(|byte| byte.is_ascii_graphic()) && id.len() < 512, "{id}");
    let (sessions, _) = keys.sessions(None);
    let session = find(&sessions, &id).unwrap();
    assert_eq!((session.version, session.client.as_str()), ("2025-06-18", "claude-code ü"));
    assert!(Arc::ptr_eq(&session, &find(&sessions, &id).unwrap()), "it is opened once");
}

#[test]
fn an_id_is_worth_nothing_to_anyone_else_or_anywhere_else() {
    let keys = Keys::new();
    let (sessions, _) = keys.sessions(None);
    let id = open(&sessions);
    for used_before in [false, true] {
        assert!(sessions.find(&id, "other", "/a/support/mcp").is_none(), "{used_before}");
        assert!(sessions.find(&id, "cred", "/mcp").is_none(), "{used_before}");
        assert!(sessions.find(&id, "cred", "/a/SUPPORT/mcp").is_none(), "{used_before}");
        assert!(find(&sessions, id.get(1..).unwrap()).is_none() && find(&sessions, "").is_none());
        assert!(find(&sessions, &id.repeat(9)).is_none(), "too long to look at");
        assert!(find(&sessions, &id).is_some());
    }
    assert!(find(&Keys::new().sessions(None).0, &id).is_none(), "another gateway's keys");
}

#[test]
fn a_session_lives_a_week_used_or_not() {
    let keys = Keys::new();
    let (sessions, clock) = keys.sessions(None);
    let (used, unused) = (open(&sessions), open(&sessions));
    for _ in 0..6 {
        clock.advance(DAY_MS);
        assert!(find(&sessions, &used).is_some());
    }
    clock.advance(DAY_MS - 1);
    assert!(find(&sessions, &used).is_some());
    clock.advance(1);
    assert!(find(&sessions, &used).is_none() && find(&sessions, &unused).is_none());
}

#[test]
fn an_ended_session_stays_ended() {
    let keys = Keys::new();
    let (sessions, _) = keys.sessions(None);
    let (id, other) = (open(&sessions), open(&sessions));
    let ended = sessions.end(&find(&sessions, &id).unwrap()).unwrap();
    assert_eq!(ended.expires_ms, START_MS + 7 * DAY_MS);
    assert!(find(&sessions, &id).is_none() && find(&sessions, &other).is_some());
    let (again, _) = keys.sessions(Some(ended));
    assert!(find(&again, &id).is_none(), "also where only its end is known");
    assert!(find(&again, &other).is_some());
}

#[tokio::test]
async fn the_end_of_a_session_reaches_its_streams() {
    let keys = Keys::new();
    let (sessions, _) = keys.sessions(None);
    let session = find(&sessions, &open(&sessions)).unwrap();
    let mut stream = std::pin::pin!(session.ended());
    let waiting = std::future::poll_fn(|cx| std::task::Poll::Ready(stream.as_mut().poll(cx)));
    assert!(waiting.await.is_pending());
    sessions.end(&session).unwrap();
    stream.await;
}

#[test]
fn a_session_outlives_one_change_of_keys_and_not_two() {
    let keys = Keys::new();
    let (sessions, _) = keys.sessions(None);
    let (used, unused) = (open(&sessions), open(&sessions));
    find(&sessions, &used).unwrap();
    rotate(&keys.file(), SystemTime::now()).unwrap();
    sessions.seal.look(&keys.file());
    assert!(find(&sessions, &used).is_some() && find(&sessions, &unused).is_some());
    rotate(&keys.file(), SystemTime::now()).unwrap();
    sessions.seal.look(&keys.file());
    assert!(find(&sessions, &used).is_none(), "though it was opened before");
    assert!(find(&sessions, &unused).is_none());
}

#[test]
fn soft_state_is_bounded_and_nobody_loses_a_session_by_that() {
    let keys = Keys::new();
    let (sessions, _) = keys.sessions(None);
    let first = open(&sessions);
    let held = find(&sessions, &first).unwrap();
    "error".clone_into(&mut held.log_level.lock());
    let idle = open(&sessions);
    "error".clone_into(&mut find(&sessions, &idle).unwrap().log_level.lock());
    for _ in 0..KNOWN_PER_CREDENTIAL_MAX + 10 {
        find(&sessions, &open(&sessions)).unwrap();
        assert!(sessions.table.read().known_count() <= KNOWN_PER_CREDENTIAL_MAX);
    }
    assert!(Arc::ptr_eq(&held, &find(&sessions, &first).unwrap()), "it is in use");
    let anew = find(&sessions, &idle).unwrap();
    assert_eq!(*anew.log_level.lock(), "debug", "made anew");
}

#[test]
fn many_credentials_share_one_limit() {
    let keys = Keys::new();
    let (sessions, _) = keys.sessions(None);
    for number in 0..KNOWN_MAX + 1 {
        let credential = format!("cred-{number}");
        let opening = Opening {
            credential: &credential,
            path: "/mcp",
            version: "2025-11-25",
            client: "",
            opens_urls: true,
        };
        let id = sessions.open(&opening).unwrap();
        assert!(sessions.find(&id, &credential, "/mcp").is_some());
    }
    assert!(sessions.table.read().known_count() <= KNOWN_MAX);
}

#[test]
fn more_ends_than_can_be_remembered_are_refused_until_some_are_over() {
    let keys = Keys::new();
    let (clock, hands) = Clock::manual(START_MS);
    let ended = (1..=ENDED_MAX as u64).map(|number| {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    });
    let sessions = Sessions::new(keys.seal(), ended, clock);
    let id = open(&sessions);
    let session = find(&sessions, &id).unwrap();
    assert!(matches!(sessions.end(&session), Err(SessionError::Full)));
    assert!(find(&sessions, &id).is_some(), "then it has not ended");
    hands.advance(7 * DAY_MS);
    sessions.end(&session).unwrap();
    assert!(find(&sessions, &id).is_none());
}
