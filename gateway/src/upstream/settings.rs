//! What the gateway hands to its upstreams at start, and values resolved from where the
//! operator says.

use portcullis_policy::definition::{Server, Value};
use portcullis_policy::name::ServerName;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Default for the largest result of an upstream, in bytes.
pub const RESULT_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Default for the most tools of one server.
pub const TOOLS_MAX: usize = 10_000;

/// Settings shared by all upstreams.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// The gateway's own executable: children are started through its `__child` command.
    pub executable: PathBuf,
    /// Largest result of an upstream, in bytes.
    pub result_bytes_max: usize,
    /// Most tools of one server.
    pub tools_max: usize,
    /// The version the gateway introduces itself with.
    pub version: String,
    /// Names of further variables of the gateway's environment that every child gets.
    pub inherit: Vec<String>,
}

impl UpstreamSettings {
    /// The defaults, for a gateway whose executable is `executable`.
    #[must_use]
    pub fn new(executable: PathBuf) -> Self {
        Self {
            executable,
            result_bytes_max: RESULT_BYTES_MAX,
            tools_max: TOOLS_MAX,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            inherit: Vec::new(),
        }
    }
}

/// Why upstreams could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// A value comes from a variable that is not set.
    #[error("server `{server}`: `{key}` needs the variable `{variable}`, which is not set")]
    Variable {
        /// The server.
        server: ServerName,
        /// The header or variable of the child that needs it.
        key: String,
        /// The variable that is not set.
        variable: String,
    },
    /// A value comes from a file that cannot be read.
    #[error("server `{server}`: `{key}` needs the file `{path}`: {cause}")]
    File {
        /// The server.
        server: ServerName,
        /// The header or variable of the child that needs it.
        key: String,
        /// The file.
        path: String,
        /// Why it cannot be read.
        cause: String,
    },
    /// The URL cannot be used.
    #[error("server `{server}`: `{url}` cannot be used: {cause}")]
    Url {
        /// The server.
        server: ServerName,
        /// The URL.
        url: String,
        /// What is wrong.
        cause: String,
    },
    /// A header cannot be used.
    #[error("server `{server}`: header `{header}` cannot be used: {cause}")]
    Header {
        /// The server.
        server: ServerName,
        /// The header.
        header: String,
        /// What is wrong.
        cause: &'static str,
    },
    /// The certificates of this machine cannot be used.
    #[error("server `{server}`: https cannot be used on this machine: {cause}")]
    Tls {
        /// The server.
        server: ServerName,
        /// What is wrong.
        cause: String,
    },
    /// The same server is given twice.
    #[error("server `{0}` is given twice")]
    Twice(ServerName),
}

/// Resolves the values of `server` now, so that a missing one is found at start and not at the
/// first call.
pub(crate) fn resolve(
    server: &Server,
    values: &BTreeMap<String, Value>,
) -> Result<Vec<(String, String)>, UpstreamError> {
    values.iter().map(|(key, value)| Ok((key.clone(), resolved(server, key, value)?))).collect()
}

fn resolved(server: &Server, key: &str, value: &Value) -> Result<String, UpstreamError> {
    match value {
        Value::Literal(text) => Ok(text.clone()),
        Value::FromEnv { variable, prefix } => match std::env::var(variable) {
            Ok(text) => Ok(format!("{prefix}{text}")),
            Err(_) => Err(UpstreamError::Variable {
                server: server.name.clone(),
                key: key.to_owned(),
                variable: variable.clone(),
            }),
        },
        Value::FromFile { path, prefix } => match std::fs::read_to_string(path) {
            Ok(text) => Ok(format!("{prefix}{}", text.trim_end_matches(['\r', '\n']))),
            Err(error) => Err(UpstreamError::File {
                server: server.name.clone(),
                key: key.to_owned(),
                path: path.clone(),
                cause: error.to_string(),
            }),
        },
    }
}
