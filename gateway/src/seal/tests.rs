//! What opens, what does not, and how keys change under a running gateway.

use super::follow::Look;
use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, UNIX_EPOCH};

const BOUND: Bound<'static> = Bound { principal: "cred-1", target: "/a/support/mcp" };
const NOW: u64 = 1_000;
const LATER: u64 = 2_000;

/// A folder of its own that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portcullis-seal-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("keys/seal.json")
    }

    /// The key file with another text in it.
    fn write(&self, text: &str) -> PathBuf {
        if !self.file().exists() {
            rotate(&self.file(), UNIX_EPOCH).unwrap();
        }
        fs::write(self.file(), text).unwrap();
        self.file()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn seal() -> Seal {
    let folder = Folder::new();
    Seal::from_file(&folder.file()).unwrap()
}

fn open(seal: &Seal, text: &str) -> Option<Vec<u8>> {
    seal.open(Purpose::Session, &BOUND, text, NOW)
}

#[test]
fn a_value_opens_for_what_it_was_made_for_and_nothing_else() {
    let seal = seal();
    let text = seal.seal(Purpose::Session, &BOUND, b"payload", LATER);
    assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{text}");
    assert_eq!(open(&seal, &text).unwrap(), b"payload");
    assert_eq!(seal.open(Purpose::Session, &BOUND, &text, LATER - 1).unwrap(), b"payload");
    assert_eq!(seal.open(Purpose::Session, &BOUND, &text, LATER), None, "its time is over");
    for purpose in [Purpose::Cursor, Purpose::RequestState, Purpose::Task, Purpose::Handle] {
        assert_eq!(seal.open(purpose, &BOUND, &text, NOW), None, "{purpose:?}");
    }
    for bound in [
        Bound { principal: "cred-2", ..BOUND },
        Bound { target: "/mcp", ..BOUND },
        Bound { principal: "cred-1/", target: "a/support/mcp" },
        Bound { principal: BOUND.target, target: BOUND.principal },
    ] {
        assert_eq!(seal.open(Purpose::Session, &bound, &text, NOW), None, "{bound:?}");
    }
    assert_eq!(open(&self::seal(), &text), None, "another key");
    assert_ne!(text, seal.seal(Purpose::Session, &BOUND, b"payload", LATER), "no two are alike");
}

#[test]
fn no_bit_can_be_changed() {
    let seal = seal();
    let text = seal.seal(Purpose::Session, &BOUND, b"payload", LATER);
    let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert_eq!(open(&seal, &URL_SAFE_NO_PAD.encode(changed)), None, "bit {at}");
    }
    // Each value has one spelling: the hash of the text stands for the value.
    for at in 0..text.len() {
        for other in (0x20..0x7f_u8).filter(|other| *other != text.as_bytes()[at]) {
            let mut changed = text.clone().into_bytes();
            changed[at] = other;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(&seal, &changed), None, "{changed}");
        }
        assert_eq!(open(&seal, text.get(..at).unwrap()), None, "cut at {at}");
    }
    for more in ["=", "A", "AAAA", " "] {
        assert_eq!(open(&seal, &format!("{text}{more}")), None, "{more:?} after it");
    }
    for nonsense in ["", "x", "ses_00", "ä", "AQAAAAAA"] {
        assert_eq!(open(&seal, nonsense), None, "{nonsense}");
    }
}

#[test]
fn what_is_too_long_is_neither_sealed_nor_looked_into() {
    let seal = seal();
    let most = TEXT_BYTES_MAX / 4 * 3 - 41;
    let text = seal.seal(Purpose::Session, &BOUND, &vec![7; most], LATER);
    assert_eq!(text.len(), TEXT_BYTES_MAX);
    assert_eq!(open(&seal, &text).unwrap(), vec![7; most]);
    assert_eq!(seal.seal(Purpose::Session, &BOUND, &vec![7; most + 1], LATER), "");
    assert_eq!(open(&seal, &"A".repeat(TEXT_BYTES_MAX + 4)), None);
}

static SEALER: LazyLock<Seal> = LazyLock::new(seal);

proptest! {
    #[test]
    fn every_payload_comes_back(
        payload in prop::collection::vec(any::<u8>(), 0..400),
        principal in ".{0,40}",
        target in ".{0,40}",
        expires in 1_u64..,
    ) {
        let bound = Bound { principal: &principal, target: &target };
        let text = SEALER.seal(Purpose::Handle, &bound, &payload, expires);
        prop_assert_eq!(SEALER.open(Purpose::Handle, &bound, &text, expires - 1), Some(payload));
        prop_assert_eq!(SEALER.open(Purpose::Handle, &bound, &text, expires), None);
    }

    #[test]
    fn different_bounds_never_open_each_others(a in "[ab]{0,3}", b in "[ab]{0,3}", c in "[ab]{0,3}", d in "[ab]{0,3}") {
        let (one, two) = (Bound { principal: &a, target: &b }, Bound { principal: &c, target: &d });
        let text = SEALER.seal(Purpose::Task, &one, b"x", LATER);
        prop_assert_eq!(SEALER.open(Purpose::Task, &two, &text, NOW).is_some(), one == two);
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        prop_assert_eq!(open(&SEALER, &text), None);
    }
}

#[test]
fn the_file_is_made_once_and_for_its_owner_alone() {
    let folder = Folder::new();
    let first = Seal::from_file(&folder.file()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.file()), 0o600);
    assert_eq!(mode(folder.file().parent().unwrap()), 0o700);
    let text = first.seal(Purpose::Session, &BOUND, b"x", LATER);
    let second = Seal::from_file(&folder.file()).unwrap();
    assert_eq!(open(&second, &text).unwrap(), b"x", "after a restart, or in another gateway");
    let missing = Seal::from_existing(&folder.0.join("none.json")).unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}

#[test]
fn two_rotations_end_what_was_sealed_before() {
    let folder = Folder::new();
    let seal = Seal::from_file(&folder.file()).unwrap();
    let old = seal.seal(Purpose::Session, &BOUND, b"old", LATER);
    let epoch = seal.epoch();
    assert_eq!(seal.look(&folder.file()), Look::Same);
    let first = rotate(&folder.file(), SystemTime::now()).unwrap();
    assert_eq!((first.kept.is_some(), &first.dropped), (true, &None));
    assert_eq!(seal.look(&folder.file()), Look::Taken);
    assert_ne!(seal.epoch(), epoch);
    assert_eq!(open(&seal, &old).unwrap(), b"old");
    let new = seal.seal(Purpose::Session, &BOUND, b"new", LATER);
    let second = rotate(&folder.file(), SystemTime::now()).unwrap();
    assert_eq!((second.kept.as_ref(), second.dropped), (Some(&first.made), first.kept));
    assert_eq!(seal.look(&folder.file()), Look::Taken);
    assert_eq!((open(&seal, &old), open(&seal, &new).unwrap()), (None, b"new".to_vec()));
    let ids: Vec<String> = keys(&folder.file()).unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(ids, [second.made, first.made]);
}

#[tokio::test]
async fn a_running_gateway_follows_the_file() {
    let folder = Folder::new();
    let seal = Seal::from_file(&folder.file()).unwrap();
    let follow = seal.follow(&folder.file());
    let changed = async {
        let epoch = seal.epoch();
        rotate(&folder.file(), SystemTime::now()).unwrap();
        while seal.epoch() == epoch {
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
    };
    tokio::select! {
        () = follow => panic!("it runs until it is dropped"),
        () = changed => {}
        () = tokio::time::sleep(Duration::from_secs(10)) => panic!("the change was not taken up"),
    }
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing_and_is_reported_once() {
    let folder = Folder::new();
    let seal = Seal::from_file(&folder.file()).unwrap();
    let text = seal.seal(Purpose::Session, &BOUND, b"x", LATER);
    let good = fs::read_to_string(folder.file()).unwrap();
    let broken: [&dyn Fn(); 3] = [
        &|| fs::write(folder.file(), "{}").unwrap(),
        &|| fs::remove_file(folder.file()).unwrap(),
        &|| {
            fs::write(folder.file(), &good).unwrap();
            fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o640)).unwrap();
        },
    ];
    for (at, harm) in broken.iter().enumerate() {
        harm();
        assert_eq!(seal.look(&folder.file()), Look::Kept, "{at}");
        assert_eq!(seal.look(&folder.file()), Look::Same, "{at}");
        assert_eq!(open(&seal, &text).unwrap(), b"x");
    }
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(seal.look(&folder.file()), Look::Taken);
    assert_eq!(open(&seal, &text).unwrap(), b"x");
}

#[test]
fn what_is_no_key_file_is_refused_with_a_reason_that_tells_no_key() {
    // 32 bytes.
    let secret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let key = |id: &str, key: &str, created: &str| {
        format!("{{\"id\":\"{id}\",\"key\":\"{key}\",\"created\":\"{created}\"}}")
    };
    let good = key("0a0b0c0d", secret, "2026-01-02T00:00:00Z");
    let older = key("0000000d", secret, "2026-01-01T00:00:00Z");
    let keys = |list: &[&String]| {
        let list: Vec<&str> = list.iter().map(|key| key.as_str()).collect();
        format!("{{\"keys\":[{}]}}", list.join(","))
    };
    let folder = Folder::new();
    assert!(Seal::from_file(&folder.write(&keys(&[&good, &older]))).is_ok());
    for (text, reason) in [
        (String::new(), "line 1, column 0"),
        (format!("\"{secret}\""), "line 1, column 46"),
        (format!("{{\"keys\":\"{secret}\"}}"), "line 1"),
        (keys(&[&good]).replace("created", "made"), "line 1"),
        (keys(&[&good]).replace("\"keys\"", "\"version\":1,\"keys\""), "line 1"),
        (keys(&[&good]).replace("\"id\"", "\"id\":\"x\",\"id\""), "line 1"),
        (keys(&[]), "it holds 0 keys"),
        (keys(&[&good, &older, &key("00000001", secret, "2025-01-01")]), "it holds 3 keys"),
        (keys(&[&good.replace("0a0b0c0d", "0A0B0C0D")]), "the `id` of key 1"),
        (keys(&[&good.replace("0a0b0c0d", "+a0b0c0d")]), "the `id` of key 1"),
        (keys(&[&good, &older.replace("0000000d", "d")]), "the `id` of key 2"),
        (keys(&[&good, &good]), "the same `id`"),
        (keys(&[&good.replace(secret, "c2hvcnQ=")]), "the `key` of key 1 is not 32 bytes"),
        (keys(&[&good.replace(secret, &secret.replace('=', ""))]), "the `key` of key 1"),
        (keys(&[&good.replace("2026-01-02T", "yesterday ")]), "`created` of key 1"),
        (keys(&[&older, &good]), "the newest key does not stand first"),
    ] {
        let path = folder.write(&text);
        let said = Seal::from_file(&path).unwrap_err().to_string();
        assert!(said.contains(reason) && said.contains("keys/seal.json"), "{reason}: {said}");
        assert!(!said.contains("AAAAAAA"), "{said}");
        assert!(rotate(&path, SystemTime::now()).is_err(), "it is not overwritten either");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn no_key_is_ever_printed() {
    let folder = Folder::new();
    let seal = Seal::from_file(&folder.file()).unwrap();
    let rotation = rotate(&folder.file(), SystemTime::now()).unwrap();
    let text = fs::read_to_string(folder.file()).unwrap();
    let shown = format!("{seal:?} {rotation:?} {:?}", keys(&folder.file()).unwrap());
    for line in text.lines().filter(|line| line.contains("\"key\"")) {
        let key = line.split('"').nth(3).unwrap();
        assert_eq!(key.len(), 44);
        assert!(!shown.contains(key), "{shown}");
    }
    assert!(shown.contains(&rotation.made));
}
