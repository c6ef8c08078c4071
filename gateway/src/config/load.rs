//! From the wire to [`Config`], with the defaults and the checks of each key.

use super::setting::{Settings, address, boolean, count, origin, path, size, time};
use super::{
    Approval, Audit, Auth, Config, ConfigError, Durability, Limits, Listen, Policy, PublicUrl,
    Runs, accept, admins, files, place, webhooks, wire,
};
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::source::{
    API_VERSION, Document, HOLD_MAX, SourceFile, documents, parse, spell,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
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
/// How long a run lives when its starter does not say, if nothing else is said.
const RUN_TTL_DEFAULT: Duration = Duration::from_secs(3_600);
/// How long a run lives at most, if nothing else is said.
const RUN_TTL_MAX_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Bounds of the life of a run.
const RUN_TTL: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3_600);
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
    let store = place::store(s, &spec.store, (base, &state_dir));
    let token_file = path(s, "auth.tokenFile", spec.auth.token_file.as_ref(), "tokens.yaml");
    let loopback = spec.auth.loopback_without_token.as_ref();
    let config = Config {
        public_url: public_url(s, &spec.public_url, &listen),
        policy: policy(s, &spec.policy, base),
        seal: place::seal(s, &spec.seal, (&state_dir, &store)),
        store,
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
        principals: admins::principals(s, &spec.admin),
        webhooks: webhooks::webhooks(s, &spec.webhooks, base),
        approval: approval(s, &spec.approval),
        runs: runs(s, &spec.runs),
        limits: limits(s, &spec.limits),
        warnings: Vec::new(),
        listen,
        state_dir,
    };
    settings.warn_of_near_misses();
    let (config, warnings) = accept(config, settings.found)?;
    Ok(Config { warnings, ..config })
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
    let legs = s.value("approval.hold.legs", wire.hold.legs.as_ref(), true, boolean);
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
    Approval { unattended, hold, hold_clients, legs, result_keep }
}

fn runs(s: &mut Settings<'_>, wire: &wire::Runs) -> Runs {
    let longest = wire.ttl_max.as_ref();
    let ttl_max = s.value("runs.ttlMax", longest, RUN_TTL_MAX_DEFAULT, time(RUN_TTL));
    // A short `ttlMax` alone shortens what holds when nobody says.
    let usual = RUN_TTL_DEFAULT.min(ttl_max);
    let ttl = s.value("runs.ttl", wire.ttl.as_ref(), usual, time(RUN_TTL));
    if ttl > ttl_max {
        let (ttl, most) = (spell(ttl), spell(ttl_max));
        let text = format!("`runs.ttl` is `{ttl}`, longer than `runs.ttlMax`, `{most}`");
        let at = wire.ttl.as_ref().map_or_else(|| s.whole(), |text| s.place(text));
        s.error("bad_value", &at, text);
    }
    Runs { ttl, ttl_max }
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
