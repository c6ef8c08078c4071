//! What is opened before anything runs: tokens, admins, the audit trail, the store, the keys.

use super::{StartError, parts};
use crate::audit::Audit;
use crate::config::Config;
use crate::identity::{Admins, Token, Tokens};
use crate::runs::Followed;
use crate::seal::Seal;
use crate::store::{Place, Store, StoreSettings};
use crate::telemetry::Metrics;
use portcullis_policy::name::AgentName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All of it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tokens: Arc<Tokens>,
    /// The file they come from.
    pub(super) token_file: Followed,
    /// Tokens made at the first start.
    pub(super) made: BTreeMap<AgentName, Token>,
    pub(super) admins: Arc<Admins>,
    pub(super) audit: Arc<Audit>,
    pub(super) store: Store,
    pub(super) seal: Seal,
    pub(super) metrics: Arc<Metrics>,
}

impl State {
    /// Opens it; `agents` are those of the policy.
    pub(super) async fn open(config: &Config, agents: &[AgentName]) -> Result<Self, StartError> {
        let token_file = Followed::new(&config.auth.token_file);
        let (tokens, made) = parts::agent_tokens(config, agents)?;
        let admins = Admins::open(&config.state_dir, parts::principals(config))?;
        let audit = Audit::open(&config.audit.dir, parts::durability(config))?;
        let store = Store::open(&StoreSettings::at(Place::from(&config.store.place))).await?;
        Ok(Self {
            tokens: Arc::new(tokens),
            token_file,
            made,
            admins: Arc::new(admins),
            audit: Arc::new(audit),
            store,
            seal: parts::seal(config)?,
            metrics: Arc::new(Metrics::new()),
        })
    }
}
