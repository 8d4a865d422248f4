//! The reference of the API as a page of the documentation, from the table of routes and the OpenAPI document.

use std::fmt::Write;

use hyper::Method;
use serde_json::Value;

use super::auth::Scope;
use super::openapi;
use super::routes::{Needs, ROUTES};

/// The page `docs/reference/api.md`.
pub fn page() -> String {
    let document = openapi::document();
    let mut page = String::from(
        "# API reference\n\n\
         The program writes this page from its routes and from `GET /openapi.json`: `whimbrel reference api`. [The console's page](../console.md#the-api) says how\n\
         programs log in, and what the live events are.\n\n\
         Every refusal is a problem document (RFC 9457, `application/problem+json`) with the schema [`Problem`](#problem).\n\n\
         | route | needs | what it does |\n| --- | --- | --- |\n",
    );
    for route in ROUTES {
        let (method, path) = (&route.method, route.path);
        let summary = text(&document["paths"][path][method.as_str().to_lowercase()]["summary"]);
        let anchor = anchor(&heading(method, path));
        let _ = writeln!(page, "| [`{method} {path}`](#{anchor}) | {} | {summary} |", needs(route.needs));
    }
    page.push_str("\n## Routes\n");
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
        // In back ticks, since Markdown takes a `{name}` at the end of a heading for attributes.
        let _ = writeln!(page, "\n### `{}`\n", heading(&route.method, route.path));
        let _ = writeln!(page, "{}. Needs: {}.", text(&operation["summary"]), needs(route.needs));
        if let Some(description) = operation["description"].as_str() {
            let _ = writeln!(page, "\n{description}");
        }
        write_parameters(&mut page, &operation["parameters"]);
        write_body(&mut page, &operation["requestBody"]);
        write_answers(&mut page, &operation["responses"]);
    }
    page.push_str("\n## Schemas\n");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        write_schema(&mut page, name, schema);
    }
    page
}

fn heading(method: &Method, path: &str) -> String {
    format!("{method} {path}")
}

/// The anchor that Markdown renderers give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn needs(needs: Needs) -> &'static str {
    match needs {
        Needs::Nothing => "nothing",
        Needs::Login => "a login",
        Needs::Metrics => "`metrics`; on a loopback address nothing",
        Needs::May(Scope::Metrics) => "`metrics`",
        Needs::May(Scope::Read) => "`read`",
        Needs::May(Scope::Nas) => "`nas`",
        Needs::May(Scope::Operate) => "`operate`",
        Needs::May(Scope::Subscribers) => "`subscribers`",
        Needs::May(Scope::Admin) => "`admin`",
    }
}

fn write_parameters(page: &mut String, parameters: &Value) {
    let Some(parameters) = parameters.as_array() else { return };
    page.push_str("\n| parameter | in | type | meaning |\n| --- | --- | --- | --- |\n");
    for parameter in parameters {
        let (place, name) = (text(&parameter["in"]), text(&parameter["name"]));
        let (kind, meaning) = (kind(&parameter["schema"]), cell(text(&parameter["description"])));
        let _ = writeln!(page, "| `{name}` | {place} | {kind} | {meaning} |");
    }
}

fn write_body(page: &mut String, body: &Value) {
    let kinds: Vec<String> = entries(&body["content"])
        .into_iter()
        .map(|(media, content)| format!("`{media}`: {}", kind(&content["schema"])))
        .collect();
    if !kinds.is_empty() {
        let _ = writeln!(page, "\nBody: {}.", kinds.join(", or "));
    }
}

fn write_answers(page: &mut String, answers: &Value) {
    page.push('\n');
    for (status, answer) in entries(answers) {
        let content: Vec<String> =
            entries(&answer["content"]).into_iter().map(|(_, c)| kind(&c["schema"])).collect();
        let content =
            if content.is_empty() { String::new() } else { format!(" ({})", content.join(", or ")) };
        let status = if status == "default" { "other" } else { status };
        let _ = writeln!(page, "- `{status}`: {}{content}", text(&answer["description"]));
    }
}

fn write_schema(page: &mut String, name: &str, schema: &Value) {
    let _ = writeln!(page, "\n### {name}\n");
    if let Some(description) = schema["description"].as_str() {
        let _ = writeln!(page, "{description}\n");
    }
    let properties = entries(&schema["properties"]);
    if properties.is_empty() {
        let _ = writeln!(page, "Type: {}.", kind(schema));
        return;
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().map(text).collect();
    page.push_str("| field | type | always there | meaning |\n| --- | --- | --- | --- |\n");
    for (field, property) in properties {
        let always = if required.contains(&field) { "yes" } else { "" };
        let meaning = cell(text(&property["description"]));
        let _ = writeln!(page, "| `{field}` | {} | {always} | {meaning} |", kind(property));
    }
}

/// A schema's type in a word or two, with a link where it has a name.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    let of = ["allOf", "anyOf", "oneOf"].into_iter().find_map(|of| schema[of].as_array());
    let mut named = match (of, schema["enum"].as_array(), &schema["type"]) {
        (Some(variants), ..) => variants.iter().map(kind).collect::<Vec<_>>().join(" or "),
        (None, Some(words), _) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{}`", text(word))).collect();
            words.join(", ")
        }
        (None, None, Value::String(kind)) if kind == "array" => {
            format!("list of {}", self::kind(&schema["items"]))
        }
        (None, None, Value::String(kind)) if kind == "integer" => format!("{kind}{}", range(schema)),
        (None, None, Value::String(kind)) => match schema["pattern"].as_str() {
            Some(pattern) => format!("{kind} of the form `{}`", cell(pattern)),
            None => kind.clone(),
        },
        _ => "any".into(),
    };
    if schema["nullable"] == true {
        named += " or null";
    }
    named
}

/// The range of a number that is not that of its type.
fn range(schema: &Value) -> String {
    /// The largest number of a type of 64 bits: no bound that a reader needs.
    const MOST: u64 = i64::MAX as u64;
    match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
        (Some(min), Some(max)) if max < MOST => format!(", {min} to {max}"),
        _ => String::new(),
    }
}

/// The members of an object by name.
fn entries(object: &Value) -> Vec<(&str, &Value)> {
    let mut entries: Vec<(&str, &Value)> =
        object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)).collect();
    entries.sort_by_key(|(name, _)| *name);
    entries
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // CONTRIBUTING.md: what the documents say of the API is what it does
    fn the_api_reference_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/api.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page(), "docs/reference is stale: ./x reference");
    }

    #[test]
    fn the_page_has_each_route_with_what_it_needs_and_links_that_lead_somewhere() {
        let page = page();
        for route in ROUTES {
            let title = format!("### `{}`\n", heading(&route.method, route.path));
            assert!(page.contains(&title), "{title}");
        }
        let anchors: Vec<String> = page.lines().filter_map(|l| l.strip_prefix("### ")).map(anchor).collect();
        for link in page.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(anchors.iter().any(|a| a == link), "#{link} leads nowhere");
        }
        assert!(page.contains("Needs: `operate`."), "scopes are shown");
    }
}
