//! A document of kind `Server`.

use super::agent::LIMIT_MAX;
use super::endpoint;
use super::reader::Reader;
use super::wire;
use crate::definition::{EraPin, SERVER_PARKED_CALLS, Server, Transport, Value};
use crate::diagnostic::{Diagnostic, Location};
use crate::name::ServerName;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long one call may take if the server's definition does not say.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Shortest and longest time that one call may take.
const CALL_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

const ERAS: &[(&str, EraPin)] =
    &[("auto", EraPin::Auto), ("legacy", EraPin::Legacy), ("modern", EraPin::Modern)];

/// The server that the document defines; `None` if its name or transport is none.
pub(super) fn server(
    reader: &mut Reader<'_>,
    document: &wire::Document<wire::Server>,
) -> Option<Server> {
    let written = &document.metadata.name;
    let (name, location) = (reader.name(written, ServerName::new), reader.place(written));
    let spec = &document.spec;
    let transport = match (&spec.http, &spec.stdio) {
        (Some(wire), None) => http(reader, wire),
        (None, Some(wire)) => stdio(reader, wire),
        (Some(_), Some(_)) | (None, None) => {
            let text = format!(
                "server `{}` needs exactly one of `http` and `stdio`",
                written.value.escape_debug()
            );
            reader.error("missing_key", &location, text);
            None
        }
    };
    let era = spec.era.as_ref().and_then(|text| reader.choice(text, ERAS));
    let timeout = spec.call_timeout.as_ref();
    let timeout = timeout.and_then(|text| reader.duration(text, CALL_TIMEOUT));
    let parked_calls = spec.parked_calls.as_ref();
    let parked_calls = parked_calls.and_then(|text| reader.count(text, 1..=LIMIT_MAX));
    if let Some(text) = &spec.pin {
        pin(reader, text);
    }
    Some(Server {
        name: name?,
        transport: transport?,
        enabled: spec.enabled.unwrap_or(true),
        era: era.unwrap_or(EraPin::Auto),
        call_timeout: timeout.unwrap_or(CALL_TIMEOUT_DEFAULT),
        parked_calls: parked_calls.unwrap_or(SERVER_PARKED_CALLS),
        location,
    })
}

/// A changed tool is reported; holding it back is not built yet, so it must not seem so.
fn pin(reader: &mut Reader<'_>, text: &wire::Text) {
    let words = [("off", true), ("warn", true), ("park", false), ("block", false)];
    if reader.choice(text, &words) == Some(false) {
        let message = format!("`pin: {}` is not supported yet; write `warn` or `off`", text.value);
        reader.error("not_supported", &reader.place(text), message);
    }
}

fn http(reader: &mut Reader<'_>, wire: &wire::Http) -> Option<Transport> {
    let place = reader.place(&wire.url);
    if let Err(message) = endpoint::check_url(&wire.url.value) {
        reader.error("bad_url", &place, message);
        return None;
    }
    let mut headers: BTreeMap<String, Value> = BTreeMap::new();
    for (name, written) in &wire.headers {
        let at = reader.place(written);
        if let Err(message) = endpoint::check_header(name) {
            reader.error("bad_header", &at, message);
            continue;
        }
        if headers.contains_key(&name.to_ascii_lowercase()) {
            let text = format!("header `{name}` stands twice, in different case; keep one");
            reader.error("duplicate_key", &at, text);
            continue;
        }
        warn_written_out(reader, name, written, &at);
        if let Some(value) = value(reader, written, endpoint::is_header_text) {
            headers.insert(name.to_ascii_lowercase(), value);
        }
    }
    Some(Transport::Http { url: wire.url.value.clone(), headers })
}

fn warn_written_out(
    reader: &mut Reader<'_>,
    name: &str,
    written: &Spanned<wire::Value>,
    at: &Location,
) {
    let secret = ["authorization", "cookie", "x-api-key"];
    if let wire::Value::Literal(_) = &written.value
        && secret.iter().any(|secret| name.eq_ignore_ascii_case(secret))
    {
        let text = format!(
            "`{name}` is written out in the file, where everyone who reads the policy reads it; \
             take it from `{{fromEnv: VARIABLE}}` or `{{fromFile: PATH}}`"
        );
        reader.found.push(Diagnostic::warning("secret_in_file", at, text));
    }
}

fn stdio(reader: &mut Reader<'_>, wire: &wire::Stdio) -> Option<Transport> {
    let place = reader.place(&wire.command);
    let command = &wire.command.value;
    if command.trim().is_empty() {
        reader.error("missing_value", &place, "`command` is empty; name a program");
        return None;
    }
    if command.contains(char::is_whitespace) && wire.args.is_empty() && !command.contains('/') {
        let text = "`command` is one program, not a command line; put the rest into `args`";
        reader.error("bad_command", &place, text);
    }
    let mut env = BTreeMap::new();
    for (name, written) in &wire.env {
        if !endpoint::is_variable(name) {
            let text = format!(
                "`{}` is no name of a variable: letters, digits and `_`, no digit first",
                name.escape_debug()
            );
            reader.error("bad_variable", &reader.place(written), text);
            continue;
        }
        if let Some(value) = value(reader, written, endpoint::is_argument) {
            env.insert(name.clone(), value);
        }
    }
    let texts = wire.args.iter().chain(&wire.cwd).chain([&wire.command]);
    for text in texts.filter(|text| !endpoint::is_argument(&text.value)) {
        reader.error("bad_command", &reader.place(text), "a NUL character is not accepted here");
    }
    Some(Transport::Stdio {
        command: command.clone(),
        args: wire.args.iter().map(|text| text.value.clone()).collect(),
        env,
        cwd: wire.cwd.as_ref().map(|text| text.value.clone()),
    })
}

/// A literal, or where to take the value from when the gateway starts.
fn value(
    reader: &mut Reader<'_>,
    written: &Spanned<wire::Value>,
    accepts: fn(&str) -> bool,
) -> Option<Value> {
    let at = reader.place(written);
    let value = match &written.value {
        wire::Value::Literal(text) => Value::Literal(text.clone()),
        wire::Value::From(wire) => {
            let prefix = wire.prefix.as_ref().map(|text| text.value.clone()).unwrap_or_default();
            match (&wire.from_env, &wire.from_file) {
                (Some(variable), None) if endpoint::is_variable(&variable.value) => {
                    Value::FromEnv { variable: variable.value.clone(), prefix }
                }
                (None, Some(path)) if !path.value.is_empty() => {
                    Value::FromFile { path: path.value.clone(), prefix }
                }
                (Some(variable), None) => {
                    let text = format!(
                        "`{}` is no name of a variable: letters, digits and `_`, no digit first",
                        variable.value.escape_debug()
                    );
                    reader.error("bad_variable", &at, text);
                    return None;
                }
                (Some(_), Some(_)) | (None, Some(_) | None) => {
                    let text = "write exactly one of `fromEnv: VARIABLE` and `fromFile: PATH`";
                    reader.error("missing_key", &at, text);
                    return None;
                }
            }
        }
    };
    let (Value::Literal(text)
    | Value::FromEnv { prefix: text, .. }
    | Value::FromFile { prefix: text, .. }) = &value;
    if !accepts(text) {
        let text =
            "the text has a character that cannot be sent; keep to one line of visible ASCII";
        reader.error("bad_value", &at, text);
        return None;
    }
    Some(value)
}
