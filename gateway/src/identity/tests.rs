use super::*;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("portcullis-identity-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        chmod(&path, 0o600);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn name(text: &str) -> AgentName {
    AgentName::new(text).unwrap()
}

fn header(token: &Token) -> String {
    format!("Bearer {}", token.reveal())
}

fn entry(agent: &str, token: &Token) -> TokenEntry {
    TokenEntry { agent: name(agent), hash: token.hash(), expires: None, source: Source::Configured }
}

fn admin_entry(name: &str, role: Role, token: &Token) -> AdminEntry {
    AdminEntry { name: name.to_owned(), role, hash: token.hash(), expires: None }
}

#[test]
fn a_token_names_its_agent_and_its_run() {
    let (one, two) = (Token::generate(Kind::Agent).unwrap(), Token::generate(Kind::Agent).unwrap());
    let tokens = Tokens::new([entry("support", &one), entry("support", &two)]);
    let first = tokens.identify(Some(&header(&one))).unwrap();
    assert_eq!(first.agent, name("support"));
    assert_eq!(first.run.len(), "run_".len() + 26);
    assert_eq!(first, tokens.identify(Some(&header(&one))).unwrap());
    let second = tokens.identify(Some(&header(&two))).unwrap();
    assert_ne!(first.run, second.run);
    assert_ne!(first.credential, second.credential);
}

#[test]
fn nothing_else_names_anyone() {
    let token = Token::generate(Kind::Agent).unwrap();
    let admin = Token::generate(Kind::Admin).unwrap();
    let old = Token::generate(Kind::Agent).unwrap();
    let expired = TokenEntry { expires: Some(SystemTime::UNIX_EPOCH), ..entry("old", &old) };
    let tokens = Tokens::new([entry("support", &token), expired]);
    let failure = |header: Option<&str>| tokens.identify(header).unwrap_err();
    assert_eq!(failure(None), IdentityError::Missing);
    let bare = token.reveal();
    let twice = format!("{0}, {0}", header(&token));
    let basic = format!("Basic {bare}");
    let short = header(&token).chars().take(40).collect::<String>();
    for bad in ["", "Bearer ", bare, &twice, &basic, &short, &header(&admin), "Bearer \u{e9}"] {
        assert_eq!(failure(Some(bad)), IdentityError::Malformed, "{bad}");
    }
    let stranger = header(&Token::generate(Kind::Agent).unwrap());
    assert_eq!(failure(Some(&stranger)), IdentityError::Unknown);
    assert_eq!(failure(Some(&header(&old))), IdentityError::Expired);
    assert!(Tokens::default().identify(Some(&header(&token))).is_err());
}

#[test]
fn a_token_is_never_printed() {
    let token = Token::generate(Kind::Agent).unwrap();
    let principal = Principal::of(&entry("support", &token));
    let printed = format!("{token:?} {:?} {principal:?}", token.hash());
    assert!(!printed.contains(token.reveal().trim_start_matches("pcl_agent_")), "{printed}");
    assert!(printed.starts_with("Token(…) TokenHash(…)"), "{printed}");
}

#[test]
fn a_file_with_secrets_that_others_can_read_is_refused() {
    let folder = Folder::new("loose");
    let agents = [name("support")];
    quickstart_tokens(&folder.0, &agents).unwrap();
    let path = folder.0.join(QUICKSTART_TOKENS_FILE);
    chmod(&path, 0o640);
    let error = quickstart_tokens(&folder.0, &agents).unwrap_err().to_string();
    assert!(error.contains("may be read by others (mode 640)"), "{error}");
    chmod(&path, 0o600);
    let elsewhere = folder.0.join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(quickstart_tokens(&folder.0, &agents).is_err());
}

#[test]
fn quickstart_tokens_are_made_once() {
    let folder = Folder::new("quickstart");
    let agents = [name("support"), name("billing")];
    let first = quickstart_tokens(&folder.0, &agents[..1]).unwrap();
    let second = quickstart_tokens(&folder.0, &agents).unwrap();
    assert_eq!(first[&agents[0]].reveal(), second[&agents[0]].reveal());
    assert_eq!(second.len(), 2);
    assert_eq!(mode(&folder.0.join(QUICKSTART_TOKENS_FILE)), 0o600);
    assert_eq!(quickstart_tokens(&folder.0, &agents[..1]).unwrap().len(), 1);
    folder.file(QUICKSTART_TOKENS_FILE, "support hello\n");
    assert!(matches!(quickstart_tokens(&folder.0, &agents), Err(QuickstartError::Line(1))));
}

#[test]
fn the_operator_token_is_made_at_the_first_start_and_kept() {
    let folder = Folder::new("admin");
    let state = folder.0.join("state");
    let approver = Token::generate(Kind::Admin).unwrap();
    let configured = vec![admin_entry("dana", Role::Approver, &approver)];
    let admins = Admins::open(&state, configured.clone()).unwrap();
    let path = state.join(OPERATOR_TOKEN_FILE);
    assert_eq!(mode(&path), 0o600);
    let operator = read_operator_token(&state).unwrap();
    let admin = admins.identify(Some(&header(&operator))).unwrap();
    assert_eq!((admin.name(), admin.role()), ("operator", &Role::Operator));
    let dana = admins.identify(Some(&header(&approver))).unwrap();
    assert_eq!(dana.name(), "dana");
    assert!(dana.may_decide());
    let again = Admins::open(&state, configured).unwrap();
    assert!(again.identify(Some(&header(&operator))).is_ok());
    chmod(&path, 0o644);
    assert!(matches!(Admins::open(&state, Vec::new()), Err(PrivateFileError::Loose { .. })));
}

#[test]
fn roles_see_and_decide_what_they_may() {
    let folder = Folder::new("roles");
    let token = Token::generate(Kind::Admin).unwrap();
    let role = Role::Harness { agents: vec![name("support")], also_approver: false };
    let admins = Admins::open(&folder.0, vec![admin_entry("harness-1", role, &token)]).unwrap();
    let harness = admins.identify(Some(&header(&token))).unwrap();
    assert!(!harness.may_decide() && !harness.may_see_all());
    assert!(harness.may_see(&name("SUPPORT")) && !harness.may_see(&name("billing")));
    assert!(harness.may_run(&name("SUPPORT")) && !harness.may_run(&name("billing")));
    assert!(!harness.may_mint());
}

#[test]
fn many_failures_are_told_to_wait_and_lock_nobody_out() {
    let folder = Folder::new("rate");
    let admins = Admins::open(&folder.0, Vec::new()).unwrap();
    let stranger = header(&Token::generate(Kind::Admin).unwrap());
    for _ in 0..FAILURES_PER_MINUTE_MAX {
        let failure = admins.identify(Some(&stranger)).unwrap_err();
        assert_eq!(failure, AdminFailure::Unauthorized(IdentityError::Unknown));
    }
    // Who sends nothing guesses nothing, and is told what to send.
    let nothing = admins.identify(None).unwrap_err();
    assert_eq!(nothing, AdminFailure::Unauthorized(IdentityError::Missing));
    let AdminFailure::Wait(wait) = admins.identify(Some(&stranger)).unwrap_err() else { panic!() };
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(60));
    let operator = read_operator_token(&folder.0).unwrap();
    assert!(admins.identify(Some(&header(&operator))).is_ok());
}

#[test]
fn base32_has_26_characters_and_no_padding() {
    let text = token::base32(0xe3b0_c442_98fc_1c14_9afb_f4c8_996f_b924);
    assert_eq!(text, "4oymiquy7qobjgx36tejs35zeq");
}

#[test]
fn tokens_of_a_file_come_and_go_and_the_others_stay() {
    let make = || Token::generate(Kind::Agent).unwrap();
    let (kept, gone, fresh, minted) = (make(), make(), make(), make());
    let tokens = Tokens::new([entry("support", &kept), entry("support", &gone)]);
    let source = Source::Minted { id: "tok_a".to_owned(), run: Some("run_of_old".to_owned()) };
    tokens.add(TokenEntry { source, ..entry("support", &minted) });
    let before = tokens.identify(Some(&header(&kept))).unwrap();
    let turnover = tokens.configure(vec![entry("support", &kept), entry("billing", &fresh)]);
    assert_eq!(turnover.came.len(), 1);
    assert_eq!(turnover.came[0].agent, name("billing"));
    assert_eq!(turnover.went.len(), 1);
    assert_eq!(tokens.identify(Some(&header(&gone))).unwrap_err(), IdentityError::Unknown);
    // The same lease as before: what is open on it goes on.
    assert_eq!(tokens.identify(Some(&header(&kept))).unwrap(), before);
    assert_eq!(tokens.identify(Some(&header(&minted))).unwrap().run, "run_of_old");
    // A token that changes hands is another credential, with nothing of the former's open.
    let turnover = tokens.configure(vec![entry("billing", &kept), entry("billing", &fresh)]);
    assert_eq!((turnover.came.len(), turnover.went.len()), (1, 1));
    assert_eq!(turnover.went[0].lease, before.lease);
    assert_ne!(tokens.identify(Some(&header(&kept))).unwrap().lease, before.lease);
}

#[test]
fn an_expired_token_is_told_apart_once() {
    let token = Token::generate(Kind::Agent).unwrap();
    let tokens = Tokens::new([entry("support", &token)]);
    let principal = tokens.identify(Some(&header(&token))).unwrap();
    assert!(tokens.expired(SystemTime::now()).is_empty());
    tokens.limit(&token.hash(), SystemTime::now());
    let later = SystemTime::now() + Duration::from_secs(1);
    assert_eq!(tokens.expired(later), std::slice::from_ref(&principal));
    assert_eq!(tokens.identify(Some(&header(&token))).unwrap_err(), IdentityError::Expired);
    principal.lease.end();
    assert!(tokens.expired(later).is_empty());
    assert!(tokens.agents(later).is_empty());
}

#[tokio::test]
async fn what_is_open_on_a_lease_hears_of_its_end() {
    let (credential, run) = (Lease::new(), Lease::new());
    let pass = Pass::new([credential.clone(), run.clone()]);
    let held = pass.clone();
    assert!(!run.vacant(Duration::from_millis(10)).await);
    assert!(tokio::time::timeout(Duration::from_millis(10), pass.over()).await.is_err());
    let open = tokio::spawn(async move { held.over().await });
    run.end();
    open.await.unwrap();
    assert!(pass.is_over() && run.is_over() && !credential.is_over());
    drop(pass);
    assert!(run.vacant(Duration::from_secs(5)).await);
    assert!(credential.vacant(Duration::from_secs(5)).await);
}
