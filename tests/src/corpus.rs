//! Policy cases as data, run twice: straight into the policy, and over the wire.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The cases.
    pub cases: Vec<Case>,
}

/// One policy, what its servers offer, and what becomes of calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What the case is about.
    pub name: String,
    /// Documents of kind Agent. Servers are written by the test.
    pub policy: String,
    /// Servers that are configured.
    #[serde(default)]
    pub servers: BTreeMap<String, Offered>,
    /// The agent that asks.
    pub agent: String,
    /// Its list of tools, own ones included, in order; absent: not checked.
    #[serde(default)]
    pub sees: Option<Vec<String>>,
    /// Exposed name to verdict: `run`, `park`, `refuse hidden`, `refuse unknown`,
    /// `refuse missing`.
    #[serde(default)]
    pub calls: BTreeMap<String, String>,
    /// Codes of the diagnostics of the agent's scope, sorted, without repeats.
    #[serde(default)]
    pub diagnostics: Vec<String>,
}

/// What a server offers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// Names of its tools.
    #[serde(default)]
    pub tools: Vec<String>,
    /// False: the operator switched it off.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// False: nothing listens there.
    #[serde(default = "yes")]
    pub up: bool,
}

fn yes() -> bool {
    true
}

impl Case {
    /// The whole policy, with each server at the URL that `url` gives.
    #[must_use]
    pub fn policy_with(&self, url: impl Fn(&str) -> String) -> String {
        let mut policy = self.policy.clone();
        for (name, offered) in &self.servers {
            let _ = write!(
                policy,
                "\n---\napiVersion: portcullis.dev/v1\nkind: Server\nmetadata: {{name: {name}}}\nspec: {{http: {{url: \"{}\"}}, enabled: {}}}\n",
                url(name),
                offered.enabled
            );
        }
        policy
    }
}

/// All cases of `tests/corpus`.
///
/// # Panics
/// If a file cannot be read: a corpus that is not there tests nothing.
#[must_use]
pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| std::panic::panic_any(format!("{}: {e}", folder.display())))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    files.iter().flat_map(|path| read(path).cases).collect()
}

fn read(path: &Path) -> File {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_saphyr::from_str(&text)
        .unwrap_or_else(|e| std::panic::panic_any(format!("{}: {e}", path.display())))
}
