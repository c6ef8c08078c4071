//! What works while the gateway runs: parked calls, runs and credentials, taken up from the store.

use super::state::State;
use super::{StartError, parts};
use crate::config::Config;
use crate::identity::loopback_run;
use crate::parked::{Clock, Parked};
use crate::runner::{Sending, runner};
use crate::runs::{Credentials, Ground, RunTable, Runs};
use crate::scopes::Scopes;
use crate::upstream::Upstreams;
use crate::usage::Counters;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// All of it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) table: Arc<RunTable>,
    pub(super) requests: Arc<AtomicU64>,
    pub(super) counters: Arc<Counters>,
    pub(super) parked: Parked,
    pub(super) runs: Runs,
    pub(super) credentials: Credentials,
    pub(super) clock: Clock,
}

impl Running {
    /// Takes up what the store holds. `address` is where agents reach the gateway.
    pub(super) async fn begin(
        config: &Config,
        state: &State,
        (scopes, upstreams): (&Scopes, &Upstreams),
        address: SocketAddr,
    ) -> Result<Self, StartError> {
        let requests = Arc::new(AtomicU64::new(0));
        let counters = Arc::new(Counters::new(config.approval.unattended));
        let table = Arc::new(RunTable::default());
        let runner = runner(Sending {
            scopes: scopes.clone(),
            table: Arc::clone(&table),
            upstreams: upstreams.clone(),
            audit: Arc::clone(&state.audit),
            admins: Arc::clone(&state.admins),
            requests: Arc::clone(&requests),
            counters: Arc::clone(&counters),
        });
        let settings = parts::parked_settings(config, &state.metrics, &state.audit);
        let clock = settings.clock.clone();
        let parked = Parked::open(state.store.clone(), settings, runner).await?;
        let runs = Runs::open(Ground {
            settings: parts::run_settings(config, address),
            table: Arc::clone(&table),
            tokens: Arc::clone(&state.tokens),
            scopes: scopes.clone(),
            store: state.store.clone(),
            parked: parked.clone(),
            audit: Arc::clone(&state.audit),
            clock: clock.clone(),
        })
        .await?;
        // Tokens made at the first start are in no file that could be followed.
        let file = Some(state.token_file.clone()).filter(|_| state.made.is_empty());
        let admins = Arc::clone(&state.admins);
        let agents = scopes.snapshot();
        let open = agents.scopes.keys().filter(|_| config.auth.loopback_without_token);
        let loopback = open.map(loopback_run).collect();
        let credentials = Credentials::open(runs.clone(), admins, file, loopback).await?;
        Ok(Self { table, requests, counters, parked, runs, credentials, clock })
    }
}
