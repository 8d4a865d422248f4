//! The OpenAPI document: made of the table of routes, of the types that handlers read (input.rs), and of those that they answer with.
//!
//! `schemars` derives the schema of a type from what serde derives its form from, so that a range, an expression or an enumeration stands
//! once. Version 3.0 of OpenAPI is what each generator of clients reads.

use std::sync::OnceLock;

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::problem::ProblemDetails;
use super::routes::{Needs, ROUTES, Route};

/// Where the document has its schemas.
const SCHEMAS: &str = "#/components/schemas/";
/// Where schemas of what is read stand until both kinds are put together.
const READ_SCHEMAS: &str = "#/components/read/";

/// The document as text, made once.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_string())
}

/// The OpenAPI document as JSON.
pub(super) fn document() -> Value {
    let mut read = generator(Contract::Deserialize, READ_SCHEMAS);
    let mut written = generator(Contract::Serialize, SCHEMAS);
    let problem = written.subschema_for::<ProblemDetails>().to_value();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = OperationDescription::of(route, &mut read, &mut written, &problem);
        let methods = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        methods[route.method.as_str().to_lowercase()] = operation;
    }
    let mut document = json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Whimbrel",
            "version": "1",
            "description": "State and control of a Whimbrel core. Users log in by POST /api/v1/session, which sets a cookie; programs send an \
                            API token. Beyond loopback it is served over HTTPS only.",
            "license": { "name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": written.take_definitions(true),
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API token: POST /api/v1/tokens",
            } },
        },
    });
    put_together(&mut document, read.take_definitions(true));
    simplify(&mut document);
    document
}

fn generator(contract: Contract, definitions: &str) -> SchemaGenerator {
    let mut settings = SchemaSettings::openapi3();
    settings.contract = contract;
    settings.definitions_path = definitions.trim_start_matches('#').trim_end_matches('/').to_string().into();
    settings.into_generator()
}

/// A schema outside the definitions, in the words of OpenAPI 3.0.
fn in_openapi(generator: &mut SchemaGenerator, mut schema: Schema) -> Value {
    generator.transforms_mut().for_each(|transform| transform.transform(&mut schema));
    schema.to_value()
}

/// Adds the schemas of what is read. One that differs from that of the same type as it is written is called `New` and its name.
fn put_together(document: &mut Value, mut read: Map<String, Value>) {
    let mut other: Vec<String> = Vec::new();
    // A schema that refers to a differing one differs, too.
    loop {
        let written = &document["components"]["schemas"];
        let differs = |name: &String, schema: &Value| {
            let mut renamed = schema.clone();
            rename(&mut renamed, &other);
            !other.contains(name) && written.get(name).is_some_and(|w| *w != renamed)
        };
        let found: Vec<String> = read
            .iter()
            .filter(|(name, schema)| differs(name, schema))
            .map(|(name, _)| name.clone())
            .collect();
        if found.is_empty() {
            break;
        }
        other.extend(found);
    }
    rename(document, &other);
    for (name, schema) in &mut read {
        rename(schema, &other);
        let name = if other.contains(name) { format!("New{name}") } else { name.clone() };
        document["components"]["schemas"][name] = schema.take();
    }
}

/// Has the references to schemas of what is read lead to where they stand.
fn rename(value: &mut Value, other: &[String]) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(READ_SCHEMAS)
            {
                let new = if other.iter().any(|o| o == name) { "New" } else { "" };
                *reference = format!("{SCHEMAS}{new}{name}");
            }
            members.values_mut().for_each(|member| rename(member, other));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, other)),
        _ => {}
    }
}

/// Writes what has several forms in the one that each generator of clients reads.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(simplify);
            merge_words(members);
            merge_null(members);
            // Generators take no default that is a list or an object; a property of that name is a schema, which has a type.
            let is_default = |value: &Value| match value {
                Value::Array(_) | Value::Null => true,
                Value::Object(of) => !of.contains_key("type"),
                _ => false,
            };
            if members.get("default").is_some_and(is_default) {
                members.remove("default");
            }
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = text
                    .split("\n\n")
                    .next()
                    .unwrap_or_default()
                    .replace('\n', " ")
                    .trim_end_matches('.')
                    .into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// The words of an enumeration, each of which has a description, as one list.
fn merge_words(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else { return };
    let word = |variant: &Value| match variant["enum"].as_array().map(Vec::as_slice) {
        Some([word @ Value::String(_)]) => Some(word.clone()),
        _ => None,
    };
    let described = |variant: &Value| {
        Some(format!("`{}`: {}", word(variant)?.as_str()?, variant["description"].as_str()?))
    };
    // An enumeration may have some words with a description, and a list of the others.
    let list = |variant: &Value| variant["enum"].as_array().cloned();
    let words: Option<Vec<Vec<Value>>> = variants.iter().map(list).collect();
    let Some(words) = words else { return };
    let described: Vec<String> = variants.iter().filter_map(described).collect();
    let before = schema.get("description").and_then(Value::as_str).unwrap_or_default().trim_end_matches('.');
    let text = [before.to_string(), described.join("; ")].into_iter().filter(|t| !t.is_empty());
    let text = text.collect::<Vec<_>>().join(". ");
    schema.remove("oneOf");
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), words.concat().into());
    schema.insert("description".into(), text.into());
}

/// A reference that may be null.
fn merge_null(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("anyOf") else { return };
    let [of, null] = variants.as_slice() else { return };
    if of.get("$ref").is_some() && null["nullable"] == true {
        let of = of.clone();
        schema.remove("anyOf");
        schema.insert("allOf".into(), json!([of]));
        schema.insert("nullable".into(), true.into());
    }
}

/// The description of an operation while it is made.
pub(super) struct OperationDescription<'a> {
    read: &'a mut SchemaGenerator,
    written: &'a mut SchemaGenerator,
    parameters: Vec<Value>,
    bodies: Map<String, Value>,
    answers: Map<String, Value>,
}

impl<'a> OperationDescription<'a> {
    fn of(
        route: &Route,
        read: &'a mut SchemaGenerator,
        written: &'a mut SchemaGenerator,
        problem: &Value,
    ) -> Value {
        let mut operation =
            Self { read, written, parameters: Vec::new(), bodies: Map::new(), answers: Map::new() };
        (route.describe)(&mut operation);
        let Self { parameters, bodies, mut answers, .. } = operation;
        for (status, description) in [("4XX", "Refused"), ("5XX", "Not done, through no fault of the caller")]
        {
            let content = json!({ "application/problem+json": { "schema": problem } });
            answers.insert(status.into(), json!({ "description": description, "content": content }));
        }
        let mut description = json!({
            "operationId": route.operation_id,
            "summary": route.summary,
            "responses": answers,
            "security": match route.needs {
                Needs::Nothing => json!([]),
                Needs::Metrics => json!([{}, { "token": [] }]),
                Needs::Login | Needs::May(_) => json!([{ "token": [] }]),
            },
        });
        if !route.notes.is_empty() {
            description["description"] = route.notes.into();
        }
        if !parameters.is_empty() {
            description["parameters"] = parameters.into();
        }
        if !bodies.is_empty() {
            description["requestBody"] = json!({ "required": true, "content": bodies });
        }
        description
    }

    /// The fields of a struct as parameters: of the path or of the query.
    pub(super) fn add_parameters<T: JsonSchema>(&mut self, place: &str) {
        let schema = T::json_schema(self.read);
        let schema = in_openapi(self.read, schema);
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let mut property = property.clone();
            let mut parameter = json!({
                "name": name,
                "in": place,
                "required": place == "path" || required.contains(&name.as_str()),
            });
            if let Value::Object(members) = &mut property {
                // A parameter is absent, and never null.
                members.remove("nullable");
                members.remove("default");
                if let Some(description) = members.remove("description") {
                    parameter["description"] = description;
                }
                if let Some(Value::Array(variants)) = members.remove("anyOf")
                    && let Some(reference) = variants.first().and_then(|v| v.get("$ref"))
                {
                    members.insert("$ref".into(), reference.clone());
                }
            }
            parameter["schema"] = property;
            self.parameters.push(parameter);
        }
    }

    /// A header that is read.
    pub(super) fn add_header(&mut self, name: &str, required: bool, description: &str) {
        let schema = json!({ "type": "string", "minLength": u8::from(required) });
        self.parameters.push(json!({
            "name": name, "in": "header", "required": required, "description": description, "schema": schema,
        }));
    }

    /// A body of that media type.
    pub(super) fn add_body<T: JsonSchema>(&mut self, media_type: &str) {
        let schema = self.read.subschema_for::<T>();
        let schema = in_openapi(self.read, schema);
        self.bodies.insert(media_type.into(), json!({ "schema": schema }));
    }

    /// The schema of a value that is written.
    pub(super) fn answer_schema<T: JsonSchema>(&mut self) -> Value {
        let schema = self.written.subschema_for::<T>();
        in_openapi(self.written, schema)
    }

    /// An answer with its media types.
    pub(super) fn add_answer(&mut self, status: &str, description: &str, content: &[(&str, Value)]) {
        let mut answer = json!({ "description": description });
        for (media_type, schema) in content {
            answer["content"][media_type] = json!({ "schema": schema });
        }
        self.answers.insert(status.into(), answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn each_reference_of_the_document_leads_to_a_schema() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50);
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = ROUTES.iter().map(|r| r.operation_id).collect();
        assert_eq!(names.len(), ROUTES.len());
    }

    #[test]
    fn the_document_states_what_handlers_check() {
        let document = document();
        let parameter = |path: &str, method: &str, name: &str| {
            let parameters = document["paths"][path][method]["parameters"].as_array().unwrap();
            parameters.iter().find(|p| p["name"] == name).unwrap()["schema"].clone()
        };
        let supi = parameter("/api/v1/ues/{supi}", "get", "supi");
        assert!(supi["pattern"].as_str().unwrap().contains("imsi-"), "{supi}");
        let limit = parameter("/api/v1/ues", "get", "limit");
        assert_eq!((limit["minimum"].as_u64(), limit["maximum"].as_u64()), (Some(1), Some(1000)));
        let schemas = &document["components"]["schemas"];
        let order = schemas["OverloadOrder"]["enum"].clone();
        assert_eq!(order, json!(["start", "stop", "rule"]));
        assert_eq!(schemas["NewSubscriber"]["additionalProperties"], false);
        assert_eq!(schemas["NewSubscriber"]["required"], json!(["supi", "k"]));
        assert!(schemas["Subscriber"]["properties"].get("k").is_none(), "keys do not leave");
        // What has defaults may be absent where it is read, and is there where it is written.
        assert!(schemas["NewSubscription"].get("required").is_none());
        assert!(schemas["Subscription"]["required"].as_array().unwrap().contains(&"slices".into()));
    }
}
