//! From the wire to [`Config`], with the defaults and the checks of each key.

use super::setting::{self, Settings, address, boolean, count, origin, size, time};
use super::{
    Approval, Audit, Auth, Config, ConfigError, Durability, Limits, Listen, Policy, Principal,
    PublicUrl, Role, Store, accept, files, wire,
};
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::name::AgentName;
use portcullis_policy::source::{
    API_VERSION, Document, HOLD_MAX, SourceFile, did_you_mean, documents, parse,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a call of an unknown client is held, if nothing else is said.
const HOLD_DEFAULT: Duration = Duration::from_secs(50);
/// How long a result that nobody took is kept, if nothing else is said.
const RESULT_KEEP_DEFAULT: Duration = Duration::from_secs(600);
/// Bounds of the time that results are kept.
const RESULT_KEEP: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
/// Bounds of the time that a call is held.
const HOLD: RangeInclusive<Duration> = Duration::ZERO..=HOLD_MAX;
/// Bounds of the size of requests.
const REQUEST_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 30;
/// Bounds of the size of results.
const RESULT_BYTES: RangeInclusive<u64> = 1 << 10..=4 << 30;

/// See [`Config::load`].
pub(super) fn load(
    path: Option<&Path>,
    env: &BTreeMap<String, String>,
) -> Result<Config, ConfigError> {
    let Some(path) = path else {
        let settings = Settings {
            name: "gateway.yaml".into(),
            document: None,
            env,
            known: Vec::new(),
            found: Vec::new(),
        };
        return resolve(settings, &wire::Spec::default(), Path::new(""));
    };
    let text = files::read(path)?;
    let file = SourceFile { name: path.display().to_string().into(), text: &text };
    let mut found = Vec::new();
    let documents = documents(&file, &mut found);
    let Some(document) = only(&file, &documents, &mut found) else {
        return Err(ConfigError::Refused(found));
    };
    let Some(gateway) = parse::<wire::Gateway>(document, &mut found) else {
        return Err(ConfigError::Refused(found));
    };
    identify(document, &gateway, &mut found);
    let settings = Settings {
        name: file.name.clone(),
        document: Some(document),
        env,
        known: Vec::new(),
        found,
    };
    resolve(settings, &gateway.spec, path.parent().unwrap_or(Path::new("")))
}

/// The one document of a file; a broken one has its finding already.
pub(super) fn only<'a>(
    file: &SourceFile<'_>,
    documents: &'a [Document<'a>],
    found: &mut Vec<Diagnostic>,
) -> Option<&'a Document<'a>> {
    if documents.len() > 1 {
        let text = "the file has several documents; only one is read here, remove the others";
        found.push(Diagnostic::error("too_many_documents", &Location::new(&file.name, 0, 0), text));
        return None;
    }
    documents.first()
}

fn identify(document: &Document<'_>, gateway: &wire::Gateway, found: &mut Vec<Diagnostic>) {
    let due = [(&gateway.api_version, API_VERSION), (&gateway.kind, "Gateway")];
    for (text, due) in due.into_iter().filter(|(text, due)| text.value != *due) {
        let message = format!("`{}` is not `{due}`; write that", text.value.escape_debug());
        found.push(Diagnostic::error("unknown_value", &document.place(text), message));
    }
}

fn resolve(
    mut settings: Settings<'_>,
    spec: &wire::Spec,
    base: &Path,
) -> Result<Config, ConfigError> {
    let s = &mut settings;
    let listen = listen(s, &spec.listen);
    let state_dir = base.join(path(s, "stateDir", spec.state_dir.as_ref(), ".portcullis"));
    let audit_dir = path(s, "audit.dir", spec.audit.dir.as_ref(), "audit");
    let sqlite = path(s, "store.sqlite", spec.store.sqlite.as_ref(), "state.db");
    let token_file = path(s, "auth.tokenFile", spec.auth.token_file.as_ref(), "tokens.yaml");
    let loopback = spec.auth.loopback_without_token.as_ref();
    let config = Config {
        public_url: public_url(s, &spec.public_url, &listen),
        policy: policy(s, &spec.policy, base),
        store: Store { sqlite: state_dir.join(sqlite) },
        audit: Audit {
            dir: state_dir.join(audit_dir),
            durability: s.value(
                "audit.durability",
                spec.audit.durability.as_ref(),
                Durability::Os,
                durability,
            ),
        },
        auth: Auth {
            loopback_without_token: s.value("auth.loopbackWithoutToken", loopback, false, boolean),
            token_file: base.join(token_file),
        },
        principals: principals(s, &spec.admin),
        approval: approval(s, &spec.approval),
        limits: limits(s, &spec.limits),
        warnings: Vec::new(),
        listen,
        state_dir,
    };
    settings.warn_of_near_misses();
    let (config, warnings) = accept(config, settings.found)?;
    Ok(Config { warnings, ..config })
}

fn path(s: &mut Settings<'_>, key: &str, text: Option<&wire::Text>, usual: &str) -> PathBuf {
    s.value(key, text, PathBuf::from(usual), |text| match text.contains('\0') {
        true => Err("a path has no NUL character".to_owned()),
        false => Ok(PathBuf::from(text)),
    })
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "os" => Ok(Durability::Os),
        "disk" => Ok(Durability::Disk),
        _ => Err(format!("`{}` is none of `os`, `disk`", text.escape_debug())),
    }
}

fn listen(s: &mut Settings<'_>, wire: &wire::Listen) -> Listen {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listen = Listen {
        agents: s.value("listen.agents", wire.agents.as_ref(), at(7777), address),
        admin: s.value("listen.admin", wire.admin.as_ref(), at(7778), address),
        observe: s.value("listen.observe", wire.observe.as_ref(), at(7779), address),
    };
    let same = |a: SocketAddr, b: SocketAddr| a == b && a.port() != 0;
    if same(listen.agents, listen.admin)
        || same(listen.agents, listen.observe)
        || same(listen.admin, listen.observe)
    {
        let text = "`listen`: two listeners have the same address; give each its own port";
        let at = wire.agents.as_ref().map_or_else(|| s.whole(), |text| s.place(text));
        s.error("bad_value", &at, text);
    }
    listen
}

/// Without a public address the listening one is used, which must then be one that can be called.
fn public_url(s: &mut Settings<'_>, wire: &wire::PublicUrl, listen: &Listen) -> PublicUrl {
    let mut url = |key: &str, text: Option<&wire::Text>, address: SocketAddr| {
        let written = s.text(key, text);
        let Some(written) = written else {
            if address.ip().is_unspecified() {
                let text = format!(
                    "`{key}` is missing: the gateway listens on `{address}`, so write the address \
                     by which it is reached, such as `https://gateway.example`"
                );
                s.error("missing_value", &s.whole(), text);
            }
            return format!("http://{address}");
        };
        origin(&written.text).unwrap_or_else(|message| {
            s.error("bad_value", &written.at, format!("`{key}`: {message}"));
            String::new()
        })
    };
    PublicUrl {
        agents: url("publicUrl.agents", wire.agents.as_ref(), listen.agents),
        admin: url("publicUrl.admin", wire.admin.as_ref(), listen.admin),
    }
}

/// The folders; the environment twin lists them with `:`.
fn policy(s: &mut Settings<'_>, wire: &wire::Policy, base: &Path) -> Policy {
    let strict = s.value("policy.strict", wire.strict.as_ref(), false, boolean);
    let dirs: Vec<String> = match (s.text("policy.dirs", None), &wire.dirs) {
        (Some(written), _) => written.text.split(':').map(str::to_owned).collect(),
        (None, Some(listed)) => listed.value.iter().map(|text| text.value.clone()).collect(),
        (None, None) => vec!["policy".to_owned()],
    };
    if dirs.is_empty() || dirs.iter().any(String::is_empty) {
        let at = wire.dirs.as_ref().and_then(|listed| listed.value.first());
        let at = at.map_or_else(|| s.whole(), |text| s.place(text));
        s.error("missing_value", &at, "`policy.dirs`: name at least one folder, and none is empty");
    }
    Policy { dirs: dirs.into_iter().map(|dir| base.join(dir)).collect(), strict }
}

fn approval(s: &mut Settings<'_>, wire: &wire::Approval) -> Approval {
    let unattended = s.value("approval.unattended", wire.unattended.as_ref(), false, boolean);
    let hold = wire.hold.default.as_ref();
    let hold = s.value("approval.hold.default", hold, HOLD_DEFAULT, time(HOLD));
    let keep = wire.result_keep.as_ref();
    let result_keep = s.value("approval.resultKeep", keep, RESULT_KEEP_DEFAULT, time(RESULT_KEEP));
    let mut hold_clients = BTreeMap::new();
    for (client, text) in &wire.hold.clients {
        match time(HOLD)(&text.value) {
            Ok(hold) => {
                hold_clients.insert(client.clone(), hold);
            }
            Err(message) => {
                let message =
                    format!("`approval.hold.clients.{}`: {message}", client.escape_debug());
                s.error("bad_value", &s.place(text), message);
            }
        }
    }
    Approval { unattended, hold, hold_clients, result_keep }
}

fn limits(s: &mut Settings<'_>, wire: &wire::Limits) -> Limits {
    let (requests, results) = (wire.request_bytes.as_ref(), wire.result_bytes.as_ref());
    let tools = wire.tools_per_server.as_ref();
    let connections = wire.connections.as_ref();
    Limits {
        request_bytes: s.value("limits.requestBytes", requests, 4 << 20, size(REQUEST_BYTES)),
        result_bytes: s.value("limits.resultBytes", results, 64 << 20, size(RESULT_BYTES)),
        json_depth: s.value("limits.jsonDepth", wire.json_depth.as_ref(), 64, count(8..=64)),
        batch: s.value("limits.batch", wire.batch.as_ref(), 32, count(1..=1_000)),
        connections: s.value("limits.connections", connections, 10_000, count(1..=1_000_000)),
        tools_per_server: s.value("limits.toolsPerServer", tools, 10_000, count(1..=100_000)),
    }
}

fn principals(s: &mut Settings<'_>, wire: &wire::Admin) -> Vec<Principal> {
    let mut principals: Vec<Principal> = Vec::new();
    for entry in &wire.principals {
        let at = s.place(&entry.name);
        let name = entry.name.value.clone();
        if name.trim().is_empty() || name.len() > 128 || name.contains(char::is_control) {
            s.error("bad_name", &at, "a principal has a name of 1 to 128 visible characters");
        }
        let Some(sha256) = setting::sha256(&entry.sha256.value) else {
            s.error("bad_value", &s.place(&entry.sha256), setting::SHA256_HINT);
            continue;
        };
        let Some(role) = role(s, entry) else { continue };
        if principals.iter().any(|other| other.name == name || other.sha256 == sha256) {
            let text = "another principal has this name or token; each has its own";
            s.error("duplicate_name", &at, text);
        }
        principals.push(Principal { name, role, sha256 });
    }
    principals
}

fn role(s: &mut Settings<'_>, entry: &wire::Principal) -> Option<Role> {
    let (role, at) = (entry.role.value.as_str(), s.place(&entry.role));
    let simple = match role {
        "viewer" => Role::Viewer,
        "approver" => Role::Approver,
        "operator" => Role::Operator,
        "harness" => return harness(s, entry, &at),
        _ => {
            let roles = ["viewer", "approver", "harness", "operator"];
            let hint = did_you_mean(role, roles);
            let text = format!(
                "`{}` is none of `viewer`, `approver`, `harness`, `operator`{hint}",
                role.escape_debug()
            );
            s.error("unknown_value", &at, text);
            return None;
        }
    };
    if let Some(agents) = entry.agents.as_ref().and_then(|agents| agents.value.first()) {
        let text = format!("`agents` has no meaning for role `{role}`; remove it");
        s.error("unknown_key", &s.place(agents), text);
    }
    Some(simple)
}

fn harness(s: &mut Settings<'_>, entry: &wire::Principal, at: &Location) -> Option<Role> {
    let listed = entry.agents.as_ref().map(|agents| agents.value.as_slice()).unwrap_or_default();
    if listed.is_empty() {
        s.error("missing_key", at, "a harness needs `agents`, the list of agents it may start");
        return None;
    }
    let mut agents = Vec::new();
    for text in listed {
        match AgentName::new(&text.value) {
            Ok(name) => agents.push(name),
            Err(error) => s.error("bad_name", &s.place(text), error.to_string()),
        }
    }
    Some(Role::Harness(agents))
}
