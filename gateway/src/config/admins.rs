//! `admin.principals`: who may use the admin listener, and as what.

use super::setting::{self, Settings, boolean};
use super::{Principal, Role, wire};
use portcullis_policy::diagnostic::Location;
use portcullis_policy::name::AgentName;
use portcullis_policy::source::did_you_mean;

/// The principals, each with its own name and token.
pub(super) fn principals(s: &mut Settings<'_>, wire: &wire::Admin) -> Vec<Principal> {
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
    let agents = entry.agents.as_ref().and_then(|agents| agents.value.first());
    for (key, text) in [("agents", agents), ("alsoApprover", entry.also_approver.as_ref())] {
        let Some(text) = text else { continue };
        let message = format!("`{key}` has no meaning for role `{role}`; remove it");
        s.error("unknown_key", &s.place(text), message);
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
    let also_approver = entry.also_approver.as_ref().is_some_and(|text| {
        boolean(&text.value).unwrap_or_else(|message| {
            s.error("bad_value", &s.place(text), format!("`alsoApprover`: {message}"));
            false
        })
    });
    Some(Role::Harness { agents, also_approver })
}
