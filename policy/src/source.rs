//! Reads policy files into a [`Definition`].
//!
//! Reading never fails and never drops: what was understood comes back together with every
//! finding, and the caller refuses the set if one of them is an error. The files are texts in
//! a strict subset of YAML with hard limits; where they come from is the caller's business.

mod agent;
mod approval;
mod document;
mod endpoint;
mod fault;
mod grant;
mod nearest;
mod overlap;
mod reader;
mod server;
mod set;
mod strict;
mod wire;

pub use agent::{DESCRIPTION_BYTES_MAX, LIMIT_MAX};
pub use approval::{CARD_WAIT_MAX, HOLD_MAX};
pub use document::{DOCUMENTS_MAX, Document, FILE_BYTES_MAX, documents};
pub use fault::parse;
pub use grant::{RULES_MAX, URI_BYTES_MAX};
pub(crate) use grant::{Subject, wrong_pattern};
pub use nearest::{did_you_mean, nearest};
pub(crate) use overlap::overlap;
pub use reader::{duration, spell};
pub use server::CALL_TIMEOUT_DEFAULT;
pub use strict::DEPTH_MAX;

use crate::definition::Definition;
use crate::diagnostic::{Diagnostic, Severity};
use reader::Reader;
use std::sync::Arc;

/// The `apiVersion` of native files.
pub const API_VERSION: &str = "portcullis.dev/v1";

/// A policy file that was read into memory.
#[derive(Debug, Clone)]
pub struct SourceFile<'a> {
    /// What locations call it.
    pub name: Arc<str>,
    /// Its text.
    pub text: &'a str,
}

/// Reads a whole policy set. Findings are in the order of the files and their lines; those
/// about the whole set come last.
#[must_use]
pub fn read(files: &[SourceFile<'_>]) -> (Definition, Vec<Diagnostic>) {
    let (mut set, mut found) = (Definition::default(), Vec::new());
    for file in files {
        let mut here = Vec::new();
        for document in documents(file, &mut here) {
            read_document(&document, &mut set, &mut here);
        }
        here.sort_by(|a, b| a.location.cmp(&b.location));
        found.append(&mut here);
    }
    // References into documents that could not be read would be reported wrongly.
    if found.iter().all(|finding| finding.severity < Severity::Error) {
        set::check(&set, &mut found);
    }
    (set, found)
}

fn read_document(document: &Document<'_>, set: &mut Definition, found: &mut Vec<Diagnostic>) {
    let Some(envelope) = parse::<wire::Envelope>(document, found) else { return };
    let mut reader = Reader::new(document, found);
    if envelope.api_version.value != API_VERSION {
        let text = format!(
            "`apiVersion` is `{}`; this gateway reads `{API_VERSION}`",
            envelope.api_version.value.escape_debug()
        );
        reader.error("unknown_api_version", &reader.place(&envelope.api_version), text);
        return;
    }
    let kinds = [("Agent", Kind::Agent), ("Server", Kind::Server)];
    match reader.choice(&envelope.kind, &kinds) {
        Some(Kind::Agent) => {
            let Some(wire) = parse::<wire::Document<wire::Agent>>(document, found) else { return };
            if let Some(agent) = agent::agent(&mut Reader::new(document, found), &wire) {
                set::add_agent(set, agent, found);
            }
        }
        Some(Kind::Server) => {
            let Some(wire) = parse::<wire::Document<wire::Server>>(document, found) else { return };
            if let Some(server) = server::server(&mut Reader::new(document, found), &wire) {
                set::add_server(set, server, found);
            }
        }
        None => {}
    }
}

/// What a native document defines.
#[derive(Clone, Copy)]
enum Kind {
    Agent,
    Server,
}

#[cfg(test)]
mod tests;
