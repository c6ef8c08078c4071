//! The names by which a listener may be addressed: DNS rebinding comes with others.

use http::HeaderMap;
use http::header::{AsHeaderName, HOST, ORIGIN};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// The port that clients leave out of `Host`.
const HTTP_PORT: u16 = 80;

/// The names of one listener.
#[derive(Debug, Clone)]
pub struct Hosts {
    authorities: BTreeSet<String>,
    literals: Literals,
}

/// Addresses instead of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Literals {
    Listed,
    // An address cannot be rebound, and a scraper finds the listener by the address of the day.
    Any,
}

impl Hosts {
    /// The names of a listener at `address`, and the authorities of its public URLs.
    #[must_use]
    pub fn new(address: SocketAddr, public: &[&str]) -> Self {
        let port = address.port();
        let mut authorities = BTreeSet::from([address.to_string()]);
        authorities.extend(LOOPBACK.map(|host| format!("{host}:{port}")));
        if port == HTTP_PORT {
            authorities.extend(LOOPBACK.map(str::to_owned));
        }
        for authority in public.iter().filter_map(|url| authority(url)) {
            // The loopback has three names; who may use one may use the others.
            if let Some(port) = LOOPBACK.iter().find_map(|name| authority.strip_prefix(name)) {
                authorities.extend(LOOPBACK.map(|name| format!("{name}{port}")));
            }
            authorities.insert(authority);
        }
        Self { authorities, literals: Literals::Listed }
    }

    /// The names of a listener for probes and scrapers: any address, or `localhost`.
    #[must_use]
    pub fn of_scrapes(address: SocketAddr) -> Self {
        let mut hosts = Self::new(address, &[]);
        hosts.authorities.insert("localhost".to_owned());
        hosts.literals = Literals::Any;
        hosts
    }

    /// True if the request names this listener and comes from no foreign page.
    #[must_use]
    pub fn admit(&self, headers: &HeaderMap) -> bool {
        let Some(host) = single(headers, HOST) else { return false };
        if !self.knows(&host) {
            return false;
        }
        if !headers.contains_key(ORIGIN) {
            return true;
        }
        single(headers, ORIGIN)
            .and_then(|origin| authority(&origin))
            .is_some_and(|origin| self.knows(&origin))
    }

    fn knows(&self, authority: &str) -> bool {
        self.authorities.contains(authority)
            || (self.literals == Literals::Any && is_address(authority))
    }
}

fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    Some(value.to_str().ok()?.to_ascii_lowercase())
}

fn authority(url: &str) -> Option<String> {
    let url = url.to_ascii_lowercase();
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let plain = !authority.is_empty() && !authority.contains(['/', '?', '#', '@']);
    plain.then(|| authority.to_owned())
}

fn is_address(authority: &str) -> bool {
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    authority.parse::<SocketAddr>().is_ok()
        || authority.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
        || bracketed.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn admits(hosts: &Hosts, host: &[&'static str], origin: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in host {
            headers.append(HOST, HeaderValue::from_static(value));
        }
        for value in origin {
            headers.append(ORIGIN, HeaderValue::from_static(value));
        }
        hosts.admit(&headers)
    }

    #[test]
    fn only_its_own_names_and_pages() {
        let address = "127.0.0.1:7778".parse().unwrap();
        let hosts = Hosts::new(address, &["https://Gate.example", "http://gate.example:8080/"]);
        for host in
            ["127.0.0.1:7778", "localhost:7778", "LOCALHOST:7778", "[::1]:7778", "gate.example"]
        {
            assert!(admits(&hosts, &[host], &[]), "{host}");
        }
        for host in
            ["localhost", "localhost:1", "127.0.0.2:7778", "evil.example", "localhost:7778.evil"]
        {
            assert!(!admits(&hosts, &[host], &[]), "{host}");
        }
        assert!(!admits(&hosts, &[], &[]));
        assert!(!admits(&hosts, &["localhost:7778", "localhost:7778"], &[]));
        let own = "http://localhost:7778";
        assert!(admits(&hosts, &["localhost:7778"], &[own]));
        for origin in [
            "null",
            "http://evil.example",
            "http://localhost:1",
            "file://",
            "http://a@localhost:7778",
        ] {
            assert!(!admits(&hosts, &["localhost:7778"], &[origin]), "{origin}");
        }
        assert!(!admits(&hosts, &["localhost:7778"], &[own, own]));
    }
}
