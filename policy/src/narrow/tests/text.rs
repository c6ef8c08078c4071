//! The text of a narrow: what is refused and how it is said, the limits, and what is written.

use super::super::*;

const REFUSED: &[(&str, &str)] = &[
    (
        "",
        "`narrow`: it is not JSON at byte 0: the text ends too early; send one object with the key `tools`",
    ),
    ("[]", "`narrow`: it has the wrong type; write an object with the key `tools`"),
    (
        "{}",
        "`narrow`: `tools` is missing; write a list with an entry for each server, or `[]` for none",
    ),
    (
        r#"{"tools":[]} {}"#,
        "`narrow`: it is not JSON at byte 13: something follows the value; send one object with the key `tools`",
    ),
    (
        r#"{"tool":[]}"#,
        "`narrow`: `tool` is not a key here; write `tools` or `subAgents`; did you mean `tools`?",
    ),
    (r#"{"tools":[],"tools":[]}"#, "`narrow`: the key `tools` stands twice; keep one"),
    (
        r#"{"tools":null}"#,
        "`narrow.tools`: it has the wrong type; write a list with an entry for each server, or `[]` for none",
    ),
    (
        r#"{"tools":["crm"]}"#,
        "`narrow.tools[0]`: it has the wrong type; write an object with `server` and `allow`",
    ),
    (
        r#"{"tools":[{"allow":[]}]}"#,
        "`narrow.tools[0]`: `server` is missing; write the name of a server as text",
    ),
    (
        r#"{"tools":[{"server":"crm"}]}"#,
        "`narrow.tools[0]`: `allow` is missing; write `\"*\"` for every tool the agent has, a list of tools, or `[]` for none",
    ),
    (
        r#"{"tools":[{"server":"crm","autoApprove":"*","allow":"*"}]}"#,
        "`narrow.tools[0]`: `autoApprove` is not a key here; write `server`, `allow`, `resources` or `prompts`",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":"*","allow":[]}]}"#,
        "`narrow.tools[0]`: the key `allow` stands twice; keep one",
    ),
    (
        r#"{"tools":[{"server":1,"allow":[]}]}"#,
        "`narrow.tools[0].server`: it has the wrong type; write the name of a server as text",
    ),
    (
        r#"{"tools":[{"server":"Portcullis","allow":[]}]}"#,
        "`narrow.tools[0].server`: `portcullis` is reserved for the gateway's own tools; choose another name; write the name of a server of the agent",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":"get"}]}"#,
        "`narrow.tools[0].allow`: it has the wrong type; write `\"*\"` for every tool the agent has, a list of tools, or `[]` for none",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":["a","b",7]}]}"#,
        "`narrow.tools[0].allow[2]`: it has the wrong type; write a pattern as text",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":["a",""]}]}"#,
        "`narrow.tools[0].allow[1]`: a pattern has 1 to 128 characters, `` does not",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":["*"]}]}"#,
        "`narrow.tools[0].allow[0]`: `*` inside a list: write `\"*\"` instead of the list to mean all",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":["a b"]}]}"#,
        "`narrow.tools[0].allow[0]`: `a b` can match nothing: names have letters, digits, `_`, `.`, `/` and `-`, and patterns also `*` and `?`",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":[],"resources":"*"}]}"#,
        "`narrow.tools[0].resources`: it has the wrong type; write a list of URI patterns as text, such as `[\"crm://customers/*\"]`",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":[],"resources":[""]}]}"#,
        "`narrow.tools[0].resources[0]`: a URI pattern has 1 to 2048 bytes, `` does not",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":[],"prompts":{}}]}"#,
        "`narrow.tools[0].prompts`: it has the wrong type; write `\"*\"` for every prompt the agent has, or a list of prompts",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":[]},{"server":"CRM","allow":[]}]}"#,
        "`narrow.tools[1]`: server `CRM` has an entry already, at `narrow.tools[0]`; merge the two",
    ),
    (
        r#"{"tools":[{"server":"crm","allow":["a",}]}"#,
        "`narrow.tools[0].allow[1]`: it is not JSON at byte 39: unexpected character; send one object with the key `tools`",
    ),
];

fn refused(json: &str) -> String {
    Narrow::read(json).unwrap_err().to_string()
}

#[test]
fn what_is_refused_is_named_with_its_place_and_a_next_step() {
    for (json, said) in REFUSED {
        assert_eq!(&refused(json), said, "{json}");
    }
}

#[test]
fn each_limit_holds_at_its_edge() {
    let servers = |n: usize| {
        let entries: Vec<String> =
            (0..n).map(|at| format!(r#"{{"server":"s{at}","allow":[]}}"#)).collect();
        format!(r#"{{"tools":[{}]}}"#, entries.join(","))
    };
    assert!(Narrow::read(&servers(NARROW_SERVERS_MAX)).is_ok());
    let said = "`narrow.tools`: the list has more than 256 entries; leave out servers that the run does not need";
    assert_eq!(refused(&servers(NARROW_SERVERS_MAX + 1)), said);
    let rules = |n: usize| {
        let rules: Vec<String> = (0..n).map(|at| format!("\"t{at}\"")).collect();
        format!(r#"{{"tools":[{{"server":"crm","allow":[{}]}}]}}"#, rules.join(","))
    };
    assert!(Narrow::read(&rules(NARROW_RULES_MAX)).is_ok());
    let said = "`narrow.tools[0].allow`: the list has more than 1000 entries; use patterns";
    assert_eq!(refused(&rules(NARROW_RULES_MAX + 1)), said);
    let padded = |n: usize| format!("{}{}", r#"{"tools":[]}"#, " ".repeat(n - 12));
    assert!(Narrow::read(&padded(NARROW_BYTES_MAX)).is_ok());
    let said = "`narrow`: it has more than 65536 bytes; use patterns";
    assert_eq!(refused(&padded(NARROW_BYTES_MAX + 1)), said);
}

#[test]
fn what_is_written_keeps_the_spelling_and_leaves_out_what_says_nothing() {
    let read = r#" {"tools": [
        {"prompts": [], "resources": [], "allow": ["Get_\u002a", "\u0061"], "server": "CRM"},
        {"server": "notes", "allow": "*", "prompts": "*", "resources": ["n://\"é"]}]}"#;
    let written = r#"{"tools":[{"server":"CRM","allow":["Get_*","a"]},{"server":"notes","allow":"*","resources":["n://\"é"],"prompts":"*"}]}"#;
    assert_eq!(Narrow::read(read).unwrap().write(), written);
    assert_eq!(Narrow::read(written).unwrap().write(), written);
}
