//! The life of a parked call.

use crate::canonical::Digest;
use crate::name::ServerName;

/// Evidence that the ledger consumed an approval.
#[derive(Debug)]
pub struct Approved {
    server: ServerName,
    tool: String,
    exposed: String,
    definition: Digest,
    arguments: String,
}

impl Approved {
    /// The server.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.server
    }
    /// The tool's registered name.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }
    /// The name the agent used.
    #[must_use]
    pub fn exposed(&self) -> &str {
        &self.exposed
    }
    /// Digest of the definition the approver saw.
    #[must_use]
    pub fn definition(&self) -> Digest {
        self.definition
    }
    /// The arguments, canonical form 1.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.arguments
    }
}
