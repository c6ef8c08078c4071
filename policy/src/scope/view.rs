//! What an agent is shown on one endpoint, and the tables its requests are looked up in.

use super::uri_template::UriTemplate;
use super::{Missing, ScopedTool};
use crate::canonical::Digest;
use crate::name::ServerName;
use crate::narrow::Narrowing;
use crate::pattern::{Case, Pattern};
use crate::search::{Document, Index};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// How tools are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// In `tools/list`.
    Direct,
    /// Through `search`, `describe` and `call`.
    Search,
}

/// One endpoint of one agent. All texts are made when the scope is resolved.
#[derive(Debug)]
pub struct View {
    /// How its tools are shown.
    pub shown: Shown,
    /// JSON entries of the granted tools, in the order of their names, without brackets.
    pub tools_json: Arc<str>,
    /// JSON entries of the granted resources.
    pub resources_json: Arc<str>,
    /// JSON entries of the granted resource templates.
    pub templates_json: Arc<str>,
    /// JSON entries of the granted prompts.
    pub prompts_json: Arc<str>,
    /// What the agent is told at the start: what it may use and what is missing.
    pub instructions: Arc<str>,
    /// Digest of everything above.
    pub hash: Digest,
    /// What is declared but not there.
    pub missing: Vec<Missing>,
    /// The servers the view covers, declared and known.
    pub declared: Vec<ServerName>,
    pub(super) tools: BTreeMap<String, Arc<ScopedTool>>,
    pub(super) missing_tools: BTreeMap<String, usize>,
    pub(super) prompts: BTreeMap<String, (ServerName, String)>,
    // `None`: several servers list it, so it belongs to none, or its server's part is not within.
    pub(super) resources: BTreeMap<String, Option<ServerName>>,
    pub(super) templates: Vec<Template>,
    pub(super) authorised: Arc<str>,
    // Made by the first search: most views are never searched.
    pub(super) index: OnceLock<Index>,
    pub(super) completes: bool,
    pub(super) may_park: bool,
    pub(super) narrowing: Narrowing,
}

/// A granted resource template: reads inside it are covered by the grant's patterns.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) template: String,
    pub(super) covers: UriTemplate,
    pub(super) granted: Vec<Pattern>,
    pub(super) server: ServerName,
}

impl View {
    /// The tool of an exposed name; the whole name is looked up, never split.
    #[must_use]
    pub fn tool(&self, exposed: &str) -> Option<&Arc<ScopedTool>> {
        self.tools.get(exposed)
    }

    /// Exposed name and tool, in the order of the names.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<ScopedTool>)> {
        self.tools.iter().map(|(name, tool)| (name.as_str(), tool))
    }

    /// Server and registered name of a granted prompt.
    #[must_use]
    pub fn prompt(&self, exposed: &str) -> Option<(&ServerName, &str)> {
        self.prompts.get(exposed).map(|(server, native)| (server, native.as_str()))
    }

    /// The server that owns a granted URI: the one that listed it, else the only one whose
    /// granted template covers it.
    #[must_use]
    pub fn resource_owner(&self, uri: &str) -> Option<&ServerName> {
        if let Some(owner) = self.resources.get(uri) {
            return owner.as_ref();
        }
        let mut owners = self.templates.iter().filter(|template| {
            template.covers.matches(uri)
                && template.granted.iter().any(|granted| granted.matches(uri, Case::Exact))
        });
        let first = owners.next()?;
        owners
            .all(|other| other.server == first.server)
            .then_some(&first.server)
            .filter(|server| self.narrowing.within(server).reads(uri))
    }

    /// The server of a granted template.
    #[must_use]
    pub fn template_owner(&self, template: &str) -> Option<&ServerName> {
        let mut owners = self.templates.iter().filter(|t| t.template == template);
        let first = owners.next()?;
        owners
            .all(|other| other.server == first.server)
            .then_some(&first.server)
            .filter(|server| self.narrowing.within(server).reads(template))
    }

    /// What is known about a declared tool that is not there.
    #[must_use]
    pub fn missing_tool(&self, exposed: &str) -> Option<&Missing> {
        self.missing_tools.get(exposed).and_then(|&at| self.missing.get(at))
    }

    /// The sentences that name what the agent may use.
    #[must_use]
    pub fn authorised(&self) -> &str {
        &self.authorised
    }

    /// True if anything in the view can be completed.
    #[must_use]
    pub fn completes(&self) -> bool {
        self.completes
    }

    /// True if some call in the view may be parked.
    #[must_use]
    pub fn may_park(&self) -> bool {
        self.may_park
    }

    /// True if the view has resources or templates.
    #[must_use]
    pub fn has_resources(&self) -> bool {
        let readable = |t: &Template| self.narrowing.within(&t.server).reads_some();
        self.resources.values().any(Option::is_some) || self.templates.iter().any(readable)
    }

    /// True if the view has prompts.
    #[must_use]
    pub fn has_prompts(&self) -> bool {
        !self.prompts.is_empty()
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            Index::build(self.tools.values().map(|tool| Document {
                server: tool.server.as_str(),
                name: tool.name.as_str(),
                title: tool.offer.title.as_deref(),
                description: &tool.offer.description,
                parameters: &tool.offer.parameters,
            }))
        })
    }

    /// The best matches for `query`, best first: exposed name and tool.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<(&str, &Arc<ScopedTool>)> {
        let hits = self.index().search(query, limit);
        hits.iter().filter_map(|hit| self.tools().nth(hit.document)).collect()
    }
}
