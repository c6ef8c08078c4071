//! The address of a PostgreSQL database, with what a person may see of it and what stays inside.

use std::fmt;
use std::path::PathBuf;

/// The port that counts where an address names none.
const PORT_DEFAULT: &str = "5432";

/// The URL of a PostgreSQL database. It may hold a password, so it is never printed whole.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    // INVARIANT: `postgres://` or `postgresql://`, one line, with a host or a `host` parameter.
    url: String,
    shown: String,
    from: UrlSource,
}

/// Where a URL was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlSource {
    /// In `gateway.yaml` itself.
    Literal,
    /// In a variable of the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
}

impl PostgresUrl {
    /// Accepts the URL of a database; says why not without repeating it.
    pub(super) fn new(url: &str, from: UrlSource) -> Result<Self, &'static str> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or("this is no URL such as `postgres://user@db.example:5432/portcullis`")?;
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the URL has a character that must be percent-encoded");
        }
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // A part of a password would be taken for a host, a port or a database, and shown.
        if [database, parameters].iter().any(|part| part.contains('@')) || url.contains('#') {
            return Err("`@`, `/`, `?` and `#` in a user or a password must be percent-encoded");
        }
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if !is_host(host) {
            return Err("the URL has no valid host or port");
        }
        let socket = parameters.split('&').find_map(|parameter| parameter.strip_prefix("host="));
        let shown = match (host, socket) {
            ("", None) => return Err("the URL names no host"),
            ("", Some(socket)) => format!("{socket}/{database}"),
            (host, _) if has_port(host) => format!("{host}/{database}"),
            (host, _) => format!("{host}:{PORT_DEFAULT}/{database}"),
        };
        Ok(Self { url: url.to_owned(), shown, from })
    }

    /// The whole URL, for the driver alone.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.url
    }

    /// Host, port and database.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Where it was read.
    #[must_use]
    pub fn from(&self) -> &UrlSource {
        &self.from
    }

    /// True if a password stands in it.
    pub(super) fn has_password(&self) -> bool {
        let (address, parameters) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let user = address.rsplit_once('@').map_or("", |(user, _)| user);
        let user = user.split_once("://").map_or(user, |(_, user)| user);
        let named = |parameter: &str| parameter.split('=').next() == Some("password");
        user.contains(':') || parameters.split('&').any(named)
    }
}

/// A name, an address or nothing, with or without a port.
fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        Some(_) | None => (host, None),
    };
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    bracketed.map_or_else(
        || name.bytes().all(plain),
        |address| address.parse::<std::net::Ipv6Addr>().is_ok(),
    ) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUrl")
            .field("at", &self.shown)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}
