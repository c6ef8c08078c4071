//! Names, digests and words of the policy as a card's record spells them.

use crate::canonical::Digest;
use crate::definition::{Approver, OnCallerGone, StandingMost};
use crate::name::{AgentName, ServerName, ToolName};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) trait Spelled: Sized {
    fn spell(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl Spelled for AgentName {
    fn spell(&self) -> String {
        self.as_str().to_owned()
    }
    fn read(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }
}

impl Spelled for ServerName {
    fn spell(&self) -> String {
        self.as_str().to_owned()
    }
    fn read(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }
}

impl Spelled for ToolName {
    fn spell(&self) -> String {
        self.as_str().to_owned()
    }
    fn read(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }
}

impl Spelled for Digest {
    fn spell(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl Spelled for Approver {
    fn spell(&self) -> String {
        self.as_str().to_owned()
    }
    fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl Spelled for StandingMost {
    fn spell(&self) -> String {
        match self {
            Self::Never => "never".to_owned(),
            Self::Arguments => "arguments".to_owned(),
            Self::Tool => "tool".to_owned(),
        }
    }
    fn read(text: &str) -> Option<Self> {
        match text {
            "never" => Some(Self::Never),
            "arguments" => Some(Self::Arguments),
            "tool" => Some(Self::Tool),
            _ => None,
        }
    }
}

impl Spelled for OnCallerGone {
    fn spell(&self) -> String {
        match self {
            Self::Keep => "keep".to_owned(),
            Self::Settle => "settle".to_owned(),
        }
    }
    fn read(text: &str) -> Option<Self> {
        match text {
            "keep" => Some(Self::Keep),
            "settle" => Some(Self::Settle),
            _ => None,
        }
    }
}

pub(super) fn serialize<T: Spelled, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&value.spell())
}

pub(super) fn deserialize<'de, T: Spelled, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    T::read(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is not a value of its kind")))
}

/// The same for lists.
pub(super) mod list {
    use super::*;

    pub(in super::super) fn serialize<T: Spelled, S: Serializer>(
        values: &[T],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        values.iter().map(Spelled::spell).collect::<Vec<_>>().serialize(to)
    }

    pub(in super::super) fn deserialize<'de, T: Spelled, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts
            .iter()
            .map(|text| {
                T::read(text)
                    .ok_or_else(|| D::Error::custom(format!("`{text}` is not a value of its kind")))
            })
            .collect()
    }
}
