//! The configuration that holds, as a file that could be loaded again; without hashes of tokens.

use super::setting::spell_size;
use super::{Config, Durability, Principal, Role, StorePlace, UrlSource};
use portcullis_policy::source::spell;
use std::fmt::{self, Write};
use std::path::Path;

impl Config {
    /// The configuration that holds, defaults and environment included.
    #[must_use]
    pub fn effective_yaml(&self) -> String {
        let mut yaml = String::new();
        // Writing into a `String` cannot fail.
        let _ = self.write_yaml(&mut yaml);
        yaml
    }

    fn write_yaml(&self, y: &mut String) -> fmt::Result {
        writeln!(y, "apiVersion: portcullis.dev/v1\nkind: Gateway\nspec:\n  listen:")?;
        writeln!(y, "    agents: {}", quoted(&self.listen.agents.to_string()))?;
        writeln!(y, "    admin: {}", quoted(&self.listen.admin.to_string()))?;
        writeln!(y, "    observe: {}", quoted(&self.listen.observe.to_string()))?;
        writeln!(y, "  publicUrl:\n    agents: {}", quoted(&self.public_url.agents))?;
        writeln!(y, "    admin: {}", quoted(&self.public_url.admin))?;
        writeln!(y, "  stateDir: {}", quoted(&self.state_dir.display().to_string()))?;
        let dirs: Vec<String> =
            self.policy.dirs.iter().map(|dir| quoted(&dir.display().to_string())).collect();
        writeln!(y, "  policy:\n    dirs: [{}]", dirs.join(", "))?;
        writeln!(y, "    strict: {}", self.policy.strict)?;
        self.write_store(y)?;
        let key_file = self.in_state_dir(&self.seal.key_file);
        writeln!(y, "  seal:\n    keyFile: {}", quoted(&key_file))?;
        writeln!(y, "  audit:\n    dir: {}", quoted(&self.in_state_dir(&self.audit.dir)))?;
        let durability = match self.audit.durability {
            Durability::Os => "os",
            Durability::Disk => "disk",
        };
        writeln!(y, "    durability: {durability}")?;
        let without = self.auth.loopback_without_token;
        writeln!(y, "  auth:\n    loopbackWithoutToken: {without}")?;
        let tokens = self.auth.token_file.display().to_string();
        writeln!(y, "    tokenFile: {}", quoted(&tokens))?;
        self.write_principals(y)?;
        self.write_webhooks(y)?;
        self.write_approval(y)?;
        let (ttl, longest) = (spell(self.runs.ttl), spell(self.runs.ttl_max));
        writeln!(y, "  runs:\n    ttl: {ttl}\n    ttlMax: {longest}")?;
        self.write_limits(y)
    }

    /// A path as the file would say it.
    fn in_state_dir(&self, path: &Path) -> String {
        path.strip_prefix(&self.state_dir).unwrap_or(path).display().to_string()
    }

    /// The address of a database without its user, password and parameters.
    fn write_store(&self, y: &mut String) -> fmt::Result {
        match &self.store.place {
            StorePlace::Sqlite(file) => {
                writeln!(y, "  store:\n    sqlite: {}", quoted(&self.in_state_dir(file)))?;
            }
            StorePlace::Postgres(url) => {
                let (from, shown) = match url.from() {
                    UrlSource::Literal => (quoted(&format!("postgres://{url}")), ""),
                    UrlSource::Env(name) => (format!("{{fromEnv: {}}}", quoted(name)), url.shown()),
                    UrlSource::File(path) => {
                        let path = quoted(&path.display().to_string());
                        (format!("{{fromFile: {path}}}"), url.shown())
                    }
                };
                let note = if shown.is_empty() { "" } else { "   # " };
                writeln!(y, "  store:\n    postgres:\n      url: {from}{note}{shown}")?;
            }
        }
        let (cards, events) = (spell(self.store.retain.cards), spell(self.store.retain.events));
        writeln!(y, "    retain:\n      cards: {cards}\n      events: {events}")
    }

    fn write_principals(&self, y: &mut String) -> fmt::Result {
        if self.principals.is_empty() {
            return writeln!(y, "  admin:\n    principals: []");
        }
        writeln!(y, "  admin:\n    principals:")?;
        for Principal { name, role, sha256: _ } in &self.principals {
            let (word, harness) = match role {
                Role::Viewer => ("viewer", None),
                Role::Approver => ("approver", None),
                Role::Operator => ("operator", None),
                Role::Harness { agents, also_approver } => {
                    ("harness", Some((agents, also_approver)))
                }
            };
            writeln!(y, "      - name: {}\n        role: {word}", quoted(name))?;
            if let Some((agents, also_approver)) = harness {
                let agents: Vec<String> = agents.iter().map(|a| quoted(a.as_str())).collect();
                writeln!(y, "        agents: [{}]", agents.join(", "))?;
                writeln!(y, "        alsoApprover: {also_approver}")?;
            }
            writeln!(y, "        sha256: hidden")?;
        }
        Ok(())
    }

    /// Addresses of webhooks are often secrets as a whole: no more than their host is shown.
    fn write_webhooks(&self, y: &mut String) -> fmt::Result {
        if self.webhooks.is_empty() {
            return writeln!(y, "  webhooks: []");
        }
        writeln!(y, "  webhooks:")?;
        for hook in &self.webhooks {
            writeln!(y, "    - name: {}", quoted(&hook.name))?;
            writeln!(y, "      url: hidden   # {}", hook.host())?;
            if hook.secret.is_some() {
                writeln!(y, "      secret: hidden")?;
            }
            writeln!(y, "      format: {}", hook.format.as_str())?;
            let states: Vec<&str> = hook.states.iter().map(|state| state.as_str()).collect();
            writeln!(y, "      states: [{}]", states.join(", "))?;
            if !hook.agents.is_empty() {
                let agents: Vec<String> = hook.agents.iter().map(|a| quoted(a.as_str())).collect();
                writeln!(y, "      agents: [{}]", agents.join(", "))?;
            }
        }
        Ok(())
    }

    fn write_approval(&self, y: &mut String) -> fmt::Result {
        let approval = &self.approval;
        writeln!(y, "  approval:\n    unattended: {}\n    hold:", approval.unattended)?;
        writeln!(y, "      default: {}", spell(approval.hold))?;
        let clients: Vec<String> = approval
            .hold_clients
            .iter()
            .map(|(client, hold)| format!("{}: {}", quoted(client), spell(*hold)))
            .collect();
        writeln!(y, "      clients: {{{}}}", clients.join(", "))?;
        writeln!(y, "      legs: {}", approval.legs)?;
        writeln!(y, "    resultKeep: {}", spell(approval.result_keep))
    }

    fn write_limits(&self, y: &mut String) -> fmt::Result {
        let limits = &self.limits;
        writeln!(y, "  limits:\n    requestBytes: {}", spell_size(limits.request_bytes))?;
        writeln!(y, "    resultBytes: {}", spell_size(limits.result_bytes))?;
        writeln!(y, "    jsonDepth: {}\n    batch: {}", limits.json_depth, limits.batch)?;
        writeln!(y, "    connections: {}", limits.connections)?;
        writeln!(y, "    toolsPerServer: {}", limits.tools_per_server)
    }
}

/// A text as both JSON and YAML write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
