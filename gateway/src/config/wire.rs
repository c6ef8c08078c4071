//! The shape of `gateway.yaml` and `tokens.yaml`, key for key.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// A text and its place.
pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Gateway {
    pub(super) api_version: Text,
    pub(super) kind: Text,
    #[serde(default)]
    pub(super) spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) listen: Listen,
    pub(super) public_url: PublicUrl,
    pub(super) state_dir: Option<Text>,
    pub(super) policy: Policy,
    pub(super) store: Store,
    pub(super) seal: Seal,
    pub(super) runs: Runs,
    pub(super) audit: Audit,
    pub(super) auth: Auth,
    pub(super) admin: Admin,
    pub(super) webhooks: Vec<Webhook>,
    pub(super) approval: Approval,
    pub(super) limits: Limits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Listen {
    pub(super) agents: Option<Text>,
    pub(super) admin: Option<Text>,
    pub(super) observe: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PublicUrl {
    pub(super) agents: Option<Text>,
    pub(super) admin: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Policy {
    pub(super) dirs: Option<Spanned<Vec<Text>>>,
    pub(super) strict: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Store {
    pub(super) sqlite: Option<Text>,
    pub(super) postgres: Option<Postgres>,
    pub(super) retain: Retain,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Postgres {
    pub(super) url: Spanned<Source>,
}

/// A text that may be secret, or where to take it from.
pub(super) enum Source {
    Literal(String),
    Env(String),
    File(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct From {
    from_env: Option<String>,
    from_file: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retain {
    pub(super) cards: Option<Text>,
    pub(super) events: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Seal {
    pub(super) key_file: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Runs {
    pub(super) ttl: Option<Text>,
    pub(super) ttl_max: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Audit {
    pub(super) dir: Option<Text>,
    pub(super) durability: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Auth {
    pub(super) loopback_without_token: Option<Text>,
    pub(super) token_file: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    pub(super) principals: Vec<Principal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Principal {
    pub(super) name: Text,
    pub(super) role: Text,
    pub(super) sha256: Text,
    pub(super) agents: Option<Spanned<Vec<Text>>>,
    pub(super) also_approver: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Webhook {
    pub(super) name: Text,
    pub(super) url: Spanned<Source>,
    pub(super) secret: Option<Spanned<Source>>,
    pub(super) format: Option<Text>,
    pub(super) states: Option<Spanned<Vec<Text>>>,
    pub(super) agents: Option<Spanned<Vec<Text>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Approval {
    pub(super) unattended: Option<Text>,
    pub(super) hold: Hold,
    pub(super) result_keep: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Hold {
    pub(super) default: Option<Text>,
    pub(super) clients: BTreeMap<String, Text>,
    pub(super) legs: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Limits {
    pub(super) request_bytes: Option<Text>,
    pub(super) result_bytes: Option<Text>,
    pub(super) json_depth: Option<Text>,
    pub(super) batch: Option<Text>,
    pub(super) connections: Option<Text>,
    pub(super) tools_per_server: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tokens {
    pub(super) agents: Vec<Token>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Token {
    pub(super) agent: Text,
    pub(super) sha256: Text,
    pub(super) expires: Option<Text>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("Literal(hidden)"),
            Self::Env(name) => f.debug_tuple("Env").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = Source;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, `{fromEnv: VARIABLE}` or `{fromFile: PATH}`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Source, E> {
        Ok(Source::Literal(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Source, A::Error> {
        let From { from_env, from_file } = From::deserialize(MapAccessDeserializer::new(map))?;
        match (from_env, from_file) {
            (Some(name), None) => Ok(Source::Env(name)),
            (None, Some(path)) => Ok(Source::File(path)),
            (Some(_), Some(_)) | (None, None) => {
                Err(A::Error::custom("write exactly one of `fromEnv` and `fromFile`"))
            }
        }
    }
}
