//! `webhooks`: who is told when a card waits, and when it ends.

use super::fetched::fetched;
use super::setting::Settings;
use super::{UrlSource, wire};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_policy::diagnostic::{Diagnostic, Location};
use portcullis_policy::ledger::State;
use portcullis_policy::name::AgentName;
use portcullis_policy::source::did_you_mean;
use reqwest::Url;
use std::fmt;
use std::path::Path;

/// Shortest key that signs, in bytes (Standard Webhooks 1.0.0, "Signature scheme").
const KEY_BYTES_MIN: usize = 24;
/// Longest one.
const KEY_BYTES_MAX: usize = 64;
/// How a key that is written in base64 begins, in the same place.
const KEY_PREFIX: &str = "whsec_";

/// One who is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Names how far it was told; a new name begins anew.
    pub name: String,
    /// Where.
    pub url: Secret<String>,
    /// What signs; a Slack address needs none.
    pub secret: Option<Secret<Vec<u8>>>,
    /// In which form.
    pub format: WebhookFormat,
    /// Of cards that come into one of these states.
    pub states: Vec<State>,
    /// Of these agents; none is all.
    pub agents: Vec<AgentName>,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookFormat {
    /// The card as the API shows it.
    Json,
    /// A message for an incoming webhook of Slack.
    Slack,
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// The value, for the one place that uses it.
    #[must_use]
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Webhook {
    /// The host of its address: the rest may be secret.
    #[must_use]
    pub fn host(&self) -> String {
        let url = Url::parse(self.url.reveal()).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl WebhookFormat {
    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Slack => "slack",
        }
    }
}

/// The webhooks, each with a name of its own.
pub(super) fn webhooks(s: &mut Settings<'_>, wire: &[wire::Webhook], base: &Path) -> Vec<Webhook> {
    let mut hooks: Vec<Webhook> = Vec::new();
    for entry in wire {
        let Some(hook) = webhook(s, entry, base) else { continue };
        if hooks.iter().any(|other| other.name == hook.name) {
            let text = "another webhook has this name; each has its own, for it names how far it \
                        was told";
            s.error("duplicate_name", &s.place(&entry.name), text);
        }
        hooks.push(hook);
    }
    hooks
}

fn webhook(s: &mut Settings<'_>, entry: &wire::Webhook, base: &Path) -> Option<Webhook> {
    let name = entry.name.value.clone();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let text = "a webhook has a name of 1 to 64 letters, digits, `-`, `_` and `.`";
        s.error("bad_name", &s.place(&entry.name), text);
    }
    let format = format(s, entry.format.as_ref())?;
    let url = url(s, entry, base)?;
    let secret = secret(s, entry, base);
    if entry.secret.is_none() && format == WebhookFormat::Json {
        let text = "a webhook needs `secret`, which signs what it is sent; make one with \
                    `openssl rand -base64 32`, put `whsec_` before it and give it to the receiver";
        s.error("missing_key", &s.place(&entry.name), text);
    }
    let states = states(s, entry.states.as_ref());
    let mut agents = Vec::new();
    for text in entry.agents.iter().flat_map(|agents| &agents.value) {
        match AgentName::new(&text.value) {
            Ok(agent) => agents.push(agent),
            Err(error) => s.error("bad_name", &s.place(text), error.to_string()),
        }
    }
    Some(Webhook { name, url, secret, format, states, agents })
}

fn format(s: &mut Settings<'_>, text: Option<&wire::Text>) -> Option<WebhookFormat> {
    let Some(text) = text else { return Some(WebhookFormat::Json) };
    match text.value.as_str() {
        "json" => Some(WebhookFormat::Json),
        "slack" => Some(WebhookFormat::Slack),
        other => {
            let hint = did_you_mean(other, ["json", "slack"]);
            let message = format!("`{}` is none of `json`, `slack`{hint}", other.escape_debug());
            s.error("unknown_value", &s.place(text), message);
            None
        }
    }
}

fn url(s: &mut Settings<'_>, entry: &wire::Webhook, base: &Path) -> Option<Secret<String>> {
    let at = s.place(&entry.url);
    let (text, _) = fetched(s, ("webhooks.url", "the address"), &entry.url.value, (&at, base))?;
    let url = Url::parse(&text).ok().filter(Url::has_host);
    // What is sent is not for everyone on the way, but a machine may talk to itself.
    let fits = url.is_some_and(|url| {
        let own = url.host_str().is_some_and(is_loopback);
        let plain = url.username().is_empty() && url.password().is_none();
        plain
            && url.fragment().is_none()
            && (url.scheme() == "https" || (url.scheme() == "http" && own))
    });
    if !fits {
        let text = "`webhooks.url` is an `https` address without a user or password, or an `http` \
                    one of this machine";
        s.error("bad_value", &at, text);
        return None;
    }
    Some(Secret(text))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn secret(s: &mut Settings<'_>, entry: &wire::Webhook, base: &Path) -> Option<Secret<Vec<u8>>> {
    let source = entry.secret.as_ref()?;
    let at = s.place(source);
    let (text, from) = fetched(s, ("webhooks.secret", "the secret"), &source.value, (&at, base))?;
    if from == UrlSource::Literal {
        warn_of_literal(s, &at);
    }
    let key = match text.strip_prefix(KEY_PREFIX) {
        Some(encoded) => STANDARD.decode(encoded).ok(),
        None => Some(text.into_bytes()),
    };
    let key = key.filter(|key| (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()));
    if key.is_none() {
        let text = format!(
            "`webhooks.secret` is `whsec_` and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in base64, \
             or a text of that many bytes"
        );
        s.error("bad_value", &at, text);
    }
    key.map(Secret)
}

fn warn_of_literal(s: &mut Settings<'_>, at: &Location) {
    let text = "the secret of a webhook stands in this file; keep it in the environment \
                (`secret: {fromEnv: NAME}`) or in a file (`secret: {fromFile: PATH}`)";
    s.found.push(Diagnostic::warning("secret_in_file", at, text));
}

fn states(
    s: &mut Settings<'_>,
    listed: Option<&serde_saphyr::Spanned<Vec<wire::Text>>>,
) -> Vec<State> {
    let Some(listed) = listed else { return vec![State::Parked] };
    let mut states = Vec::new();
    for text in &listed.value {
        match State::parse(&text.value) {
            Some(state) => states.push(state),
            None => {
                let known = State::ALL.map(State::as_str);
                let hint = did_you_mean(&text.value, known);
                let message = format!(
                    "`{}` is no state of an approval{hint}; they are {}",
                    text.value.escape_debug(),
                    known.join(", ")
                );
                s.error("unknown_value", &s.place(text), message);
            }
        }
    }
    if listed.value.is_empty() {
        let text = "`states` is empty, so nothing would be told; leave it out for `[parked]`";
        s.error("missing_value", &s.place(listed), text);
    }
    states
}
