//! The shape of a native policy file, key for key. What the values mean is read elsewhere.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// A text and its place.
pub(super) type Text = Spanned<String>;

/// Any document, as far as needed to see what it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Envelope {
    pub(super) api_version: Text,
    pub(super) kind: Text,
    #[serde(rename = "metadata")]
    _metadata: IgnoredAny,
    #[serde(rename = "spec")]
    _spec: IgnoredAny,
}

/// A document whose kind is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document<Spec> {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Agent {
    pub(super) description: Option<Text>,
    pub(super) tools: Vec<Spanned<Binding>>,
    pub(super) expose: Option<Text>,
    pub(super) approval: Option<Approval>,
    pub(super) limits: Option<Limits>,
    pub(super) permission_prompt: Option<Text>,
}

/// One entry of `tools`: a server, or an agent that may be started.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Binding {
    pub(super) server: Option<Text>,
    pub(super) allow: Option<Spanned<Patterns>>,
    pub(super) auto_approve: Option<Spanned<Patterns>>,
    pub(super) deny: Option<Spanned<Patterns>>,
    pub(super) resources: Option<Vec<Text>>,
    pub(super) prompts: Option<Spanned<Patterns>>,
    pub(super) secret: Option<Vec<Text>>,
    pub(super) sub_agent: Option<SubAgent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SubAgent {
    pub(super) name: Text,
    pub(super) description: Text,
    pub(super) template_ref: TemplateRef,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateRef {
    pub(super) name: Text,
}

/// `"*"` or a list.
#[derive(Debug)]
pub(super) enum Patterns {
    Every,
    Listed(Vec<Spanned<Entry>>),
}

/// An entry of a list of patterns.
#[derive(Debug)]
pub(super) enum Entry {
    Pattern(String),
    Conditional(Conditional),
}

/// A pattern that counts only for some arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Conditional {
    pub(super) tool: Text,
    pub(super) when: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Approval {
    pub(super) approvers: Option<Spanned<Approvers>>,
    pub(super) user: Option<Text>,
    pub(super) standing: Option<Text>,
    pub(super) decide_within: Option<Text>,
    pub(super) use_within: Option<Text>,
    pub(super) on_no_approver: Option<Text>,
    pub(super) on_caller_gone: Option<Text>,
    pub(super) hold: Option<Text>,
}

/// A list of roles, or how many of them must agree.
#[derive(Debug)]
pub(super) enum Approvers {
    AnyOne(Vec<Text>),
    Several(Several),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Several {
    pub(super) any_of: Spanned<Vec<Text>>,
    pub(super) count: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Limits {
    pub(super) calls_per_minute: Option<Text>,
    pub(super) concurrent_calls: Option<Text>,
    pub(super) parked_calls: Option<Text>,
    pub(super) parked_calls_per_run: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Server {
    pub(super) http: Option<Http>,
    pub(super) stdio: Option<Stdio>,
    pub(super) enabled: Option<bool>,
    pub(super) era: Option<Text>,
    pub(super) call_timeout: Option<Text>,
    pub(super) parked_calls: Option<Text>,
    pub(super) pin: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Http {
    pub(super) url: Text,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stdio {
    pub(super) command: Text,
    #[serde(default)]
    pub(super) args: Vec<Text>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Spanned<Value>>,
    pub(super) cwd: Option<Text>,
}

/// A value written out, or where to take it from.
#[derive(Debug)]
pub(super) enum Value {
    Literal(String),
    From(Box<From>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct From {
    pub(super) from_env: Option<Text>,
    pub(super) from_file: Option<Text>,
    pub(super) prefix: Option<Text>,
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PatternsVisitor)
    }
}

struct PatternsVisitor;

impl<'de> Visitor<'de> for PatternsVisitor {
    type Value = Patterns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`\"*\"` for all or a list of patterns such as `[get_item, \"search_*\"]`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Patterns, E> {
        if text == "*" {
            return Ok(Patterns::Every);
        }
        let text = text.escape_debug();
        Err(E::custom(format!(
            "`{text}` is one name; write the list `[{text}]`, or `\"*\"` for all"
        )))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Patterns, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Patterns::Listed(entries))
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or pattern; put one that looks like a number in quotes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Entry, E> {
        Ok(Entry::Pattern(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Entry, A::Error> {
        Conditional::deserialize(MapAccessDeserializer::new(map)).map(Entry::Conditional)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text (a number in quotes), `{fromEnv: VARIABLE}` or `{fromFile: PATH}`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Literal(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        let from = From::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Value::From(Box::new(from)))
    }
}

impl<'de> Deserialize<'de> for Approvers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ApproversVisitor)
    }
}

struct ApproversVisitor;

impl<'de> Visitor<'de> for ApproversVisitor {
    type Value = Approvers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list such as `[parent, human]` or `{anyOf: [human], count: 2}`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Approvers, A::Error> {
        let mut roles = Vec::new();
        while let Some(role) = list.next_element()? {
            roles.push(role);
        }
        Ok(Approvers::AnyOne(roles))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Approvers, A::Error> {
        Several::deserialize(MapAccessDeserializer::new(map)).map(Approvers::Several)
    }
}
