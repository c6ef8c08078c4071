//! One request of the API: its route and what the document says of it stand together, so neither
//! can be there without the other.

use super::Api;
use super::answer::Body;
use axum::http::Method;
use axum::routing::MethodRouter;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::sync::Arc;

type Describe = fn(&mut SchemaGenerator) -> Schema;

const JSON: &str = "application/json";

/// The forms of what is read and of what is written: they differ in what may be left out.
pub(super) struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    /// None yet.
    pub(super) fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        let read = settings.clone().for_deserialize().into_generator();
        Self { read, written: settings.for_serialize().into_generator() }
    }

    /// Those that were asked for. No type is both read and written.
    pub(super) fn components(mut self) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        all.extend(self.read.take_definitions(true));
        all
    }
}

/// A request of the API.
pub(super) struct Operation {
    pub(super) path: &'static str,
    pub(super) route: MethodRouter<Arc<Api>>,
    method: Method,
    id: &'static str,
    summary: &'static str,
    query: Option<Describe>,
    body: Option<Describe>,
    answers: Vec<Answer>,
}

struct Answer {
    status: u16,
    text: &'static str,
    media: &'static str,
    content: Option<Describe>,
    // Operations that take an id of it, and where the id stands.
    links: &'static [(&'static str, &'static str)],
}

impl Operation {
    pub(super) fn new(
        (method, path): (Method, &'static str),
        (id, summary): (&'static str, &'static str),
        route: MethodRouter<Arc<Api>>,
    ) -> Self {
        let (query, body, answers) = (None, None, Vec::new());
        Self { path, route, method, id, summary, query, body, answers }
    }

    /// Parameters of its address.
    pub(super) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// What is sent with it.
    pub(super) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// An answer.
    pub(super) fn answers<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        self.answer(status, text, (JSON, Some(SchemaGenerator::subschema_for::<T>)))
    }

    /// An answer without content.
    pub(super) fn answers_nothing(self, status: u16, text: &'static str) -> Self {
        self.answer(status, text, (JSON, None))
    }

    /// Server-sent events.
    pub(super) fn answers_events(self, text: &'static str) -> Self {
        let stream: Describe = |_| schemars::json_schema!({"type": "string"});
        self.answer(200, text, ("text/event-stream", Some(stream)))
    }

    fn answer(
        mut self,
        status: u16,
        text: &'static str,
        (media, content): (&'static str, Option<Describe>),
    ) -> Self {
        self.answers.push(Answer { status, text, media, content, links: &[] });
        self
    }

    /// What can be done with what the last answer names: operation, and member with the id.
    pub(super) fn leads_to(mut self, links: &'static [(&'static str, &'static str)]) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.links = links;
        }
        self
    }

    /// The word for its method in a document.
    pub(super) fn verb(&self) -> String {
        self.method.as_str().to_ascii_lowercase()
    }

    /// What a document says of it (OpenAPI 3.1.0, "Operation Object").
    pub(super) fn described(&self, schemas: &mut Schemas) -> Value {
        let mut said = json!({"operationId": self.id, "summary": self.summary});
        let mut put = |name: &str, value: Value| {
            said.as_object_mut().map(|said| said.insert(name.to_owned(), value));
        };
        let mut parameters: Vec<Value> = in_path(self.path).collect();
        if let Some(query) = &self.query {
            parameters.extend(in_query(query(&mut schemas.read).as_value()));
        }
        if !parameters.is_empty() {
            put("parameters", Value::from(parameters));
        }
        if let Some(body) = &self.body {
            let content = json!({JSON: {"schema": body(&mut schemas.read)}});
            put("requestBody", json!({"required": true, "content": content}));
        }
        let mut responses = Map::new();
        for answer in &self.answers {
            let mut response = json!({"description": answer.text});
            if let (Some(content), Some(said)) = (&answer.content, response.as_object_mut()) {
                let schema = content(&mut schemas.written);
                said.insert("content".to_owned(), json!({answer.media: {"schema": schema}}));
            }
            if let (Some(links), Some(said)) = (links(answer.links), response.as_object_mut()) {
                said.insert("links".to_owned(), links);
            }
            responses.insert(answer.status.to_string(), response);
        }
        let fault = schemas.written.subschema_for::<Body<'_>>();
        responses.insert(
            "default".to_owned(),
            json!({"description": "Why not.", "content": {JSON: {"schema": fault}}}),
        );
        put("responses", Value::Object(responses));
        said
    }
}

// OpenAPI 3.1.0, "Link Object".
fn links(of: &[(&str, &str)]) -> Option<Value> {
    let link = |(to, member): &(&str, &str)| {
        let id = format!("$response.body#/{member}");
        ((*to).to_owned(), json!({"operationId": to, "parameters": {"id": id}}))
    };
    (!of.is_empty()).then(|| of.iter().map(link).collect())
}

fn in_path(path: &'static str) -> impl Iterator<Item = Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| {
        let text = match name {
            "agent" => "Its name, in any case.",
            _ => "Its id, or the beginning of it that is no other's.",
        };
        json!({"name": name, "in": "path", "required": true, "description": text,
               "schema": {"type": "string"}})
    })
}

fn in_query(schema: &Value) -> Vec<Value> {
    let required = schema.get("required").and_then(Value::as_array);
    let members = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let needed = required.is_some_and(|required| required.iter().any(|one| one == name));
        let mut said =
            json!({"name": name, "in": "query", "required": needed, "schema": present(schema)});
        if let (Some(text), Some(said)) = (schema.get("description"), said.as_object_mut()) {
            said.insert("description".to_owned(), text.clone());
        }
        said
    };
    members.into_iter().flatten().map(parameter).collect()
}

// A parameter is there or not; `null` is no text of an address.
fn present(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let Some(members) = schema.as_object_mut() else { return schema };
    members.remove("description");
    if let Some(kinds) = members.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
    }
    let some = members.get("anyOf").and_then(Value::as_array).and_then(|kinds| {
        kinds.iter().find(|kind| kind.get("type").is_none_or(|kind| kind != "null")).cloned()
    });
    some.unwrap_or(schema)
}
