//! Names that a careless parser would take for a protocol member.
//!
//! Another reader behind or before the gateway may fold case, trim or drop invisible
//! characters. A member that would become a known one that way is refused, so that nobody
//! reads a message otherwise than it was judged.

/// Members of the envelope.
pub(crate) const ENVELOPE: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];

/// Members of `params` in any request the gateway reads.
pub(crate) const PARAMS: &[&str] = &[
    "name",
    "arguments",
    "_meta",
    "uri",
    "cursor",
    "ref",
    "argument",
    "context",
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "level",
    "taskId",
    "inputResponses",
    "requestState",
    "notifications",
    "requestId",
    "reason",
    "progressToken",
    "task",
];

/// Members of `_meta` that the protocol reserves.
pub(crate) const META: &[&str] = &[
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];

/// True if `name` is not one of `known` but would become one.
pub(crate) fn is_look_alike(name: &str, known: &[&str]) -> bool {
    if known.contains(&name) {
        return false;
    }
    if name.is_ascii() && !known.iter().any(|k| k.len() <= name.len()) {
        return false;
    }
    let bare = skeleton(name);
    known.iter().any(|known| skeleton(known) == bare)
}

// What is left of a name after every folding some reader is known to do.
fn skeleton(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            // Full-width forms stand at a fixed distance from ASCII.
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
            _ => c,
        })
        // Upper case first: the long s and the dotless i have no other way to ASCII.
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .filter(|c| !is_invisible(*c))
        .collect()
}

fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
            | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_folds_to_a_known_member_is_a_look_alike() {
        for bad in [
            "Name",
            "NAME",
            "param\u{17f}",
            " arguments",
            "argu\u{200b}ments",
            "\u{ff4e}ame",
            "tas\u{212a}Id",
            "ur\u{131}",
            "na\u{301}me",
            "name\0",
            "u\u{e0001}ri",
        ] {
            let known = if bad.starts_with("param") { ENVELOPE } else { PARAMS };
            assert!(is_look_alike(bad, known), "{bad:?}");
        }
    }

    #[test]
    fn known_members_and_really_different_ones_are_not() {
        for good in ["name", "vendor/name", "names", "x", "naïve_other", "имя"] {
            assert!(!is_look_alike(good, PARAMS), "{good:?}");
        }
    }
}
