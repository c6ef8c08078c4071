//! The text of a narrow, read strictly and with the place of each fault.

use super::fault::{NarrowFault, NarrowFaultKind};
use super::{Entry, NARROW_BYTES_MAX, NARROW_RULES_MAX, NARROW_SERVERS_MAX};
use crate::definition::{Rule, Selection};
use crate::diagnostic::Location;
use crate::json::{JsonError, JsonFault, JsonLimits, Kind, Reader};
use crate::name::ServerName;
use crate::pattern::Pattern;
use crate::source::{Subject, did_you_mean, wrong_pattern};

const TOOLS: &str = "a list with an entry for each server, or `[]` for none";
const ENTRY: &str = "an object with `server` and `allow`";
const SERVER: &str = "the name of a server as text";
const ALLOW: &str = "`\"*\"` for every tool the agent has, a list of tools, or `[]` for none";
const RESOURCES: &str = "a list of URI patterns as text, such as `[\"crm://customers/*\"]`";
const PROMPTS: &str = "`\"*\"` for every prompt the agent has, or a list of prompts";
const SUB_AGENTS: &str = "`\"*\"` for every subagent the agent binds, or a list of their names";
const PATTERN: &str = "a pattern as text";

/// The entries of `json`, and what it leaves of the agent's subagents.
pub(super) fn read(json: &str) -> Result<(Vec<Entry>, Selection), NarrowFault> {
    let mut reading = Reading {
        path: "narrow".to_owned(),
        refused: None,
        entries: Vec::new(),
        sub_agents: Selection::none(),
    };
    if json.len() > NARROW_BYTES_MAX {
        return Err(NarrowFault { path: reading.path, kind: NarrowFaultKind::TooLong });
    }
    match reading.whole(json) {
        Ok(()) => Ok((reading.entries, reading.sub_agents)),
        Err(error) => Err(reading.fault(json, &error)),
    }
}

struct Reading {
    // Where the reading is. A fault leaves it there.
    path: String,
    // What a refusal of this module was about; the JSON reader knows its own faults alone.
    refused: Option<NarrowFaultKind>,
    entries: Vec<Entry>,
    sub_agents: Selection,
}

impl Reading {
    fn whole(&mut self, json: &str) -> Result<(), JsonError> {
        let mut reader = Reader::new(json.as_bytes(), JsonLimits::default())?;
        self.wants(&mut reader, Kind::Object, "an object with the key `tools`")?;
        let mut listed = false;
        reader.object(|reader, key| match &**key {
            "tools" => {
                listed = true;
                self.within(".tools", |this| this.tools(reader))
            }
            "subAgents" => {
                let read = self.within(".subAgents", |this| this.selection(reader, SUB_AGENTS))?;
                self.sub_agents = read;
                Ok(())
            }
            other => {
                let keys = ["tools", "subAgents"];
                Err(self.unknown(reader, other, "`tools` or `subAgents`", &keys))
            }
        })?;
        if !listed {
            return Err(self.missing(&reader, "tools", TOOLS));
        }
        reader.end()
    }

    fn tools(&mut self, reader: &mut Reader<'_>) -> Result<(), JsonError> {
        self.wants(reader, Kind::Array, TOOLS)?;
        let mut at = 0;
        let list = reader.array(|reader| {
            if at == NARROW_SERVERS_MAX {
                let instead = "leave out servers that the run does not need";
                let kind = NarrowFaultKind::TooMany { most: NARROW_SERVERS_MAX, instead };
                return Err(self.refuse(reader, kind));
            }
            self.within(&format!("[{at}]"), |this| this.entry(reader))?;
            at += 1;
            Ok(())
        });
        list.map(drop)
    }

    fn entry(&mut self, reader: &mut Reader<'_>) -> Result<(), JsonError> {
        self.wants(reader, Kind::Object, ENTRY)?;
        let (mut server, mut allow) = (None, None);
        let (mut resources, mut prompts) = (Vec::new(), Selection::none());
        reader.object(|reader, key| {
            match &**key {
                "server" => server = Some(self.within(".server", |this| this.server(reader))?),
                "allow" => {
                    allow = Some(self.within(".allow", |this| this.selection(reader, ALLOW))?);
                }
                "resources" => {
                    resources = self.within(".resources", |this| this.resources(reader))?;
                }
                "prompts" => {
                    prompts = self.within(".prompts", |this| this.selection(reader, PROMPTS))?;
                }
                other => {
                    let known = "`server`, `allow`, `resources` or `prompts`";
                    let keys = ["server", "allow", "resources", "prompts"];
                    return Err(self.unknown(reader, other, known, &keys));
                }
            }
            Ok(())
        })?;
        let Some(server) = server else { return Err(self.missing(reader, "server", SERVER)) };
        let Some(allow) = allow else { return Err(self.missing(reader, "allow", ALLOW)) };
        if let Some(twin) = self.entries.iter().find(|other| other.server == server) {
            let first = twin.location.to_string();
            let kind = NarrowFaultKind::DuplicateServer { server: server.to_string(), first };
            return Err(self.refuse(reader, kind));
        }
        let location = self.place();
        self.entries.push(Entry { server, allow, resources, prompts, location });
        Ok(())
    }

    fn server(&mut self, reader: &mut Reader<'_>) -> Result<ServerName, JsonError> {
        self.wants(reader, Kind::String, SERVER)?;
        let (_, name) = reader.string()?;
        ServerName::new(&name).map_err(|wrong| self.refuse(reader, wrong.into()))
    }

    fn selection(
        &mut self,
        reader: &mut Reader<'_>,
        wanted: &'static str,
    ) -> Result<Selection, JsonError> {
        match reader.peek()? {
            Kind::Array => self.rules(reader, Subject::Name).map(Selection::Listed),
            Kind::String if reader.string()?.1 == "*" => Ok(Selection::Every(self.place())),
            Kind::String | Kind::Null | Kind::Bool | Kind::Number | Kind::Object => {
                Err(self.refuse(reader, NarrowFaultKind::Type { wanted }))
            }
        }
    }

    fn resources(&mut self, reader: &mut Reader<'_>) -> Result<Vec<Rule>, JsonError> {
        self.wants(reader, Kind::Array, RESOURCES)?;
        self.rules(reader, Subject::Uri)
    }

    fn rules(&mut self, reader: &mut Reader<'_>, subject: Subject) -> Result<Vec<Rule>, JsonError> {
        let mut rules = Vec::new();
        reader.array(|reader| {
            if rules.len() == NARROW_RULES_MAX {
                let instead = "use patterns";
                let kind = NarrowFaultKind::TooMany { most: NARROW_RULES_MAX, instead };
                return Err(self.refuse(reader, kind));
            }
            let step = format!("[{}]", rules.len());
            rules.push(self.within(&step, |this| this.rule(reader, subject))?);
            Ok(())
        })?;
        Ok(rules)
    }

    fn rule(&mut self, reader: &mut Reader<'_>, subject: Subject) -> Result<Rule, JsonError> {
        self.wants(reader, Kind::String, PATTERN)?;
        let (_, text) = reader.string()?;
        if let Some(wrong) = wrong_pattern(&text, subject) {
            return Err(self.refuse(reader, NarrowFaultKind::Pattern(wrong)));
        }
        Ok(Rule { pattern: Pattern::new(&text), location: self.place() })
    }

    fn within<T>(
        &mut self,
        step: &str,
        read: impl FnOnce(&mut Self) -> Result<T, JsonError>,
    ) -> Result<T, JsonError> {
        let outer = self.path.len();
        self.path.push_str(step);
        let found = read(self)?;
        self.path.truncate(outer);
        Ok(found)
    }

    fn wants(
        &mut self,
        reader: &mut Reader<'_>,
        kind: Kind,
        wanted: &'static str,
    ) -> Result<(), JsonError> {
        if reader.peek()? == kind {
            return Ok(());
        }
        Err(self.refuse(reader, NarrowFaultKind::Type { wanted }))
    }

    fn unknown(
        &mut self,
        reader: &Reader<'_>,
        key: &str,
        known: &'static str,
        keys: &[&'static str],
    ) -> JsonError {
        let hint = did_you_mean(key, keys.iter().copied());
        self.refuse(reader, NarrowFaultKind::UnknownKey { key: key.to_owned(), known, hint })
    }

    fn missing(
        &mut self,
        reader: &Reader<'_>,
        key: &'static str,
        wanted: &'static str,
    ) -> JsonError {
        self.refuse(reader, NarrowFaultKind::MissingKey { key, wanted })
    }

    fn refuse(&mut self, reader: &Reader<'_>, kind: NarrowFaultKind) -> JsonError {
        self.refused = Some(kind);
        reader.refuse(JsonFault::Refused)
    }

    fn place(&self) -> Location {
        Location::new(&self.path.as_str().into(), 0, 0)
    }

    fn fault(self, json: &str, error: &JsonError) -> NarrowFault {
        let kind = match (self.refused, error.fault) {
            (Some(kind), _) => kind,
            (None, JsonFault::Duplicate) => {
                // The fault stands right behind the second key.
                let before = json.get(..error.at).unwrap_or_default();
                let key = before.rsplit('"').nth(1).unwrap_or_default().to_owned();
                NarrowFaultKind::DuplicateKey { key }
            }
            (None, fault) => NarrowFaultKind::Json { fault, at: error.at },
        };
        NarrowFault { path: self.path, kind }
    }
}
