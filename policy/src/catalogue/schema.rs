//! The parts of a tool's input schema the gateway reads: property names and descriptions for
//! search, which values are secret, and `x-mcp-header` annotations (MCP 2026-07-28, streamable HTTP, "x-mcp-header").
//! References are never followed.

use crate::json::{JsonError, JsonLimits, Kind, Reader, decode, kind_of};

/// Most properties that are looked at in one schema.
const PROPERTIES_MAX: usize = 500;

/// Properties reachable from the root through `properties` alone.
#[derive(Debug, Default)]
pub(super) struct Properties {
    found: Vec<Property>,
    // An annotation that stands where the protocol does not allow one.
    misplaced: bool,
}

#[derive(Debug)]
struct Property {
    path: Vec<String>,
    description: String,
    kind: String,
    header: Option<Result<String, String>>,
    // `writeOnly`, or of the format `password` (JSON Schema 2020-12, validation, 9.4 and 7.3).
    secret: bool,
}

impl Properties {
    /// Reads a schema; anything that is not an object has no properties.
    pub(super) fn read(&mut self, schema: &str, limits: JsonLimits) -> Result<(), JsonError> {
        self.object(schema, &[], limits)
    }

    /// Name and description of each top-level property.
    pub(super) fn described(&self) -> Vec<(String, String)> {
        let top = self.found.iter().filter(|p| p.path.len() == 1);
        top.map(|p| (p.path.concat(), p.description.clone())).collect()
    }

    /// The paths of secret properties, as a policy would write them.
    pub(super) fn secret(&self) -> Vec<String> {
        self.found.iter().filter(|p| p.secret).map(|p| p.path.join(".")).collect()
    }

    /// The mirrored properties, or why the tool must be left out.
    pub(super) fn headers(&self) -> Result<Vec<(Vec<String>, String)>, String> {
        if self.misplaced {
            return Err("`x-mcp-header` stands outside `properties`".to_owned());
        }
        let mut headers: Vec<(Vec<String>, String)> = Vec::new();
        for property in &self.found {
            let name = match &property.header {
                None => continue,
                Some(Err(fault)) => return Err(fault.clone()),
                Some(Ok(name)) => name,
            };
            if !matches!(property.kind.as_str(), "string" | "integer" | "boolean") {
                return Err(format!(
                    "`x-mcp-header` `{name}` is on a property of type `{}`",
                    property.kind
                ));
            }
            if headers.iter().any(|(_, other)| other.eq_ignore_ascii_case(name)) {
                return Err(format!("`x-mcp-header` `{name}` is used twice"));
            }
            headers.push((property.path.clone(), name.clone()));
        }
        Ok(headers)
    }

    fn object(
        &mut self,
        schema: &str,
        path: &[String],
        limits: JsonLimits,
    ) -> Result<(), JsonError> {
        if kind_of(schema) != Kind::Object {
            return Ok(());
        }
        let mut reader = Reader::new(schema.as_bytes(), limits)?;
        reader.object(|reader, member| {
            let value = reader.value()?;
            match &**member {
                "properties" => self.properties(value, path, limits)?,
                "description" | "title" | "type" | "default" | "examples" | "enum" | "const" => {}
                _ => self.misplaced |= annotated(value),
            }
            Ok(())
        })?;
        Ok(())
    }

    fn properties(
        &mut self,
        map: &str,
        path: &[String],
        limits: JsonLimits,
    ) -> Result<(), JsonError> {
        if kind_of(map) != Kind::Object {
            return Ok(());
        }
        let mut reader = Reader::new(map.as_bytes(), limits)?;
        reader.object(|reader, name| {
            let value = reader.value()?;
            if self.found.len() < PROPERTIES_MAX {
                let mut path = path.to_vec();
                path.push(name.to_string());
                let property = property(value, path.clone(), limits)?;
                self.found.push(property);
                self.nested(value, &path, limits)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn nested(
        &mut self,
        schema: &str,
        path: &[String],
        limits: JsonLimits,
    ) -> Result<(), JsonError> {
        if kind_of(schema) != Kind::Object {
            return Ok(());
        }
        let mut reader = Reader::new(schema.as_bytes(), limits)?;
        reader.object(|reader, member| {
            let value = reader.value()?;
            match &**member {
                "properties" => self.properties(value, path, limits)?,
                "items" | "oneOf" | "anyOf" | "allOf" | "not" | "if" | "then" | "else" => {
                    self.misplaced |= annotated(value);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn annotated(value: &str) -> bool {
    value.contains("\"x-mcp-header\"")
}

fn property(schema: &str, path: Vec<String>, limits: JsonLimits) -> Result<Property, JsonError> {
    let mut property = Property {
        path,
        description: String::new(),
        kind: String::new(),
        header: None,
        secret: false,
    };
    if kind_of(schema) != Kind::Object {
        return Ok(property);
    }
    let mut reader = Reader::new(schema.as_bytes(), limits)?;
    reader.object(|reader, member| {
        let value = reader.value()?;
        let text = decode(value).map(std::borrow::Cow::into_owned);
        match &**member {
            "description" => property.description = text.unwrap_or_default(),
            "type" => property.kind = text.unwrap_or_default(),
            "x-mcp-header" => property.header = Some(header_name(text)),
            "writeOnly" => property.secret |= value == "true",
            "format" => property.secret |= text.as_deref() == Some("password"),
            _ => {}
        }
        Ok(())
    })?;
    Ok(property)
}

fn header_name(text: Option<String>) -> Result<String, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    match text {
        Some(name) if !name.is_empty() && name.len() <= 64 && name.bytes().all(token) => Ok(name),
        Some(name) => Err(format!("`x-mcp-header` `{}` is no header name", name.escape_debug())),
        None => Err("`x-mcp-header` is no string".to_owned()),
    }
}
