//! The scopes of all agents in one generation, made anew whenever the catalogue changes.
//!
//! A request takes one snapshot at the door and keeps it to the end.

use portcullis_policy::catalogue::Catalogue;
use portcullis_policy::definition::Definition;
use portcullis_policy::diagnostic::Diagnostic;
use portcullis_policy::name::AgentName;
use portcullis_policy::scope::Scope;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// All scopes of one generation.
#[derive(Debug)]
pub struct Generation {
    /// Counts up with each change of policy or catalogue.
    pub number: u64,
    /// The scopes.
    pub scopes: BTreeMap<AgentName, Arc<Scope>>,
    /// What is declared but not there, and what was held back.
    pub diagnostics: Vec<Diagnostic>,
    /// The policy it was made from.
    pub definition: Arc<Definition>,
    /// What the servers offered.
    pub catalogue: Arc<Catalogue>,
}

/// Hands out the newest generation.
#[derive(Debug, Clone)]
pub struct Scopes {
    newest: watch::Receiver<Arc<Generation>>,
}

impl Scopes {
    /// The newest generation.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Generation> {
        Arc::clone(&self.newest.borrow())
    }

    /// Follows the generations.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Arc<Generation>> {
        self.newest.clone()
    }
}

/// Makes the scopes of all agents of `definition`.
#[must_use]
pub fn generation(
    definition: &Arc<Definition>,
    catalogue: &Arc<Catalogue>,
    number: u64,
) -> Generation {
    let mut generation = Generation {
        number,
        scopes: BTreeMap::new(),
        diagnostics: Vec::new(),
        definition: Arc::clone(definition),
        catalogue: Arc::clone(catalogue),
    };
    for (name, agent) in &definition.agents {
        let (scope, diagnostics) = Scope::resolve(agent, definition, catalogue, number);
        generation.scopes.insert(name.clone(), Arc::new(scope));
        generation.diagnostics.extend(diagnostics);
    }
    generation
}

/// Makes a new generation for each catalogue until the upstreams are gone. The returned future
/// is the work; it ends by itself then.
pub fn follow_catalogue(
    definition: Arc<Definition>,
    mut catalogue: watch::Receiver<Arc<Catalogue>>,
) -> (Scopes, impl Future<Output = ()> + Send) {
    let current = Arc::clone(&catalogue.borrow_and_update());
    let first = generation(&definition, &current, 1);
    let (sender, newest) = watch::channel(Arc::new(first));
    let work = async move {
        let mut number = 1;
        while catalogue.changed().await.is_ok() {
            number += 1;
            let current = Arc::clone(&catalogue.borrow_and_update());
            let next = generation(&definition, &current, number);
            report(&sender.borrow().diagnostics, &next.diagnostics);
            sender.send_replace(Arc::new(next));
        }
    };
    (Scopes { newest }, work)
}

// Each diagnostic is logged when it appears, not with each generation.
fn report(before: &[Diagnostic], now: &[Diagnostic]) {
    for fresh in now.iter().filter(|diagnostic| !before.contains(diagnostic)) {
        tracing::warn!(code = fresh.code, "{fresh}");
    }
    for gone in before.iter().filter(|diagnostic| !now.contains(diagnostic)) {
        tracing::info!(code = gone.code, "no longer: {gone}");
    }
}
