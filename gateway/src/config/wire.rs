//! The shape of `gateway.yaml` and `tokens.yaml`, key for key.

use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

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
    pub(super) audit: Audit,
    pub(super) auth: Auth,
    pub(super) admin: Admin,
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
#[serde(deny_unknown_fields)]
pub(super) struct Principal {
    pub(super) name: Text,
    pub(super) role: Text,
    pub(super) sha256: Text,
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
