//! What an operator may write for the address and the headers of a server.

/// Headers that the gateway or the protocol sets, or that end at each hop.
const KEPT_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Longest URL, in bytes.
const URL_BYTES_MAX: usize = 2_048;

/// Accepts an absolute `http` or `https` URL with a host, without user, password and fragment.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let shown = url.escape_debug();
    if url.len() > URL_BYTES_MAX {
        return Err(format!("the URL has more than {URL_BYTES_MAX} bytes"));
    }
    let scheme = |name: &str| {
        let (head, rest) = url.split_at_checked(name.len())?;
        head.eq_ignore_ascii_case(name).then_some(rest)
    };
    let Some(rest) = scheme("https://").or_else(|| scheme("http://")) else {
        return Err(format!("`{shown}` is no `http://` or `https://` URL"));
    };
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['\\', '"', '<', '>', '`'])
    {
        return Err("the URL has a character that must be percent-encoded".to_owned());
    }
    if url.contains('#') {
        return Err("a fragment (`#`) is never sent; remove it from the URL".to_owned());
    }
    if url.contains(['{', '}']) {
        return Err("a URL has no placeholders; write it out".to_owned());
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("a user or password in the URL is not accepted; use `headers`".to_owned());
    }
    let (host, port) = split_port(authority);
    if !is_host(host) {
        return Err("the URL has no valid host".to_owned());
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err("the port of the URL is not a number from 1 to 65535".to_owned());
    }
    Ok(())
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    }
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    host.len() <= 253 && host.trim_end_matches('.').split('.').all(label)
}

/// Accepts a header name that an operator may set.
pub(super) fn check_header(name: &str) -> Result<(), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let shown = name.escape_debug();
    if name.is_empty() || name.len() > 256 || !name.bytes().all(token) {
        return Err(format!("`{shown}` is no header name"));
    }
    let lower = name.to_ascii_lowercase();
    let kept = KEPT_HEADERS.contains(&lower.as_str())
        || lower.starts_with("content-")
        || lower.starts_with("mcp-");
    if kept {
        return Err(format!("header `{shown}` is set by the gateway itself; remove it"));
    }
    Ok(())
}

/// One line of visible ASCII, with spaces inside.
pub(super) fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// Anything a process can be given.
pub(super) fn is_argument(text: &str) -> bool {
    !text.contains('\0')
}

/// The name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_web_addresses_are_endpoints() {
        for good in [
            "https://crm.example/mcp",
            "http://127.0.0.1:8080/mcp?x=1",
            "HTTP://host",
            "http://[::1]:80/",
            "http://crm-0.crm_svc.ns.svc.cluster.local./mcp",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "crm.example",
            "ftp://a",
            "https://",
            "https:///mcp",
            "https://u:p@a",
            "http://a#b",
            "http://a b",
            "http://a:0",
            "http://a:99999",
            "http://a:x",
            "http://[::1",
            "http://ä",
            "http://a..b",
            "http://{host}/",
            "file:///etc/passwd",
            "http://a\\@b/",
            "http://@a",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_of_the_gateway_are_not_the_operators() {
        assert_eq!(check_header("Authorization"), Ok(()));
        assert_eq!(check_header("X-Tenant"), Ok(()));
        for bad in ["Host", "content-type", "MCP-Session-Id", "Accept", "TE", "a b", "", "a:b"] {
            assert!(check_header(bad).is_err(), "{bad}");
        }
    }
}
