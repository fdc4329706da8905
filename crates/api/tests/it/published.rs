//! The OpenAPI document as those read it who generate clients, write code by it, or look for a
//! field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::support::Server;

/// Verbs with which operations begin.
const VERBS: [&str; 20] = [
    "advance", "approve", "cancel", "claim", "create", "delete", "estimate", "execute", "fund",
    "get", "import", "list", "lookUp", "receive", "reject", "replay", "retry", "rotate", "send",
    "update",
];

/// Words of the project's own documents, which clients have not.
const INTERNAL: [&str; 10] = [
    "contract",
    "decision 0",
    "design",
    "docs/",
    "house.md",
    "milestone",
    "reliability",
    "spec.md",
    "specification",
    "unit of work",
];

fn published() -> Value {
    api::document(&Server::new().app)
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Every operation of the paths: where it stands, and itself.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in object(&document["paths"]) {
        for (method, operation) in object(item) {
            operations.push((format!("{} {path}", method.to_uppercase()), operation));
        }
    }
    assert!(operations.len() >= 50, "{} operations", operations.len());
    operations
}

/// Calls `each` with every object of the document and its place; examples are not part of it.
fn walk(value: &Value, place: &str, each: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            each(place, fields);
            for (name, value) in fields {
                let is_example = matches!(name.as_str(), "example" | "examples");
                if !is_example || place.ends_with("/properties") {
                    walk(value, &format!("{place}/{name}"), each);
                }
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                walk(entry, &format!("{place}/{index}"), each);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn every_operation_has_a_name_of_its_own_and_a_short_summary() {
    let document = published();
    let mut seen = BTreeMap::new();
    for (place, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        let verb = VERBS.into_iter().find(|verb| id.starts_with(verb));
        let noun = verb.map_or("", |verb| &id[verb.len()..]);
        let is_noun = noun.starts_with(|first: char| first.is_ascii_uppercase());
        let is_word = id.chars().all(|letter| letter.is_ascii_alphanumeric());
        assert!(is_noun && is_word, "{place}: '{id}' is not a verb of {VERBS:?} with a noun");
        let other = seen.insert(id.to_owned(), place.clone());
        assert_eq!(other, None, "{place}: another operation is called {id}");
        let summary = operation["summary"].as_str().unwrap_or_default();
        assert!((5..=120).contains(&summary.len()), "{place}: the summary is '{summary}'");
        assert!(!summary.ends_with('.') && !summary.contains('\n'), "{place}: '{summary}'");
        assert!(operation["tags"][0].is_string(), "{place} has no tag");
    }
}

#[tokio::test]
async fn every_schema_has_a_title_of_its_own() {
    let document = published();
    let mut seen = BTreeMap::new();
    for (name, schema) in object(&document["components"]["schemas"]) {
        assert_eq!(schema["title"].as_str(), Some(name.as_str()), "{name}");
        assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric()), "{name}");
    }
    walk(&document, "", &mut |place, fields| {
        let Some(title) = fields.get("title").and_then(Value::as_str) else { return };
        let other = seen.insert(title.to_owned(), place.to_owned());
        assert_eq!(other, None, "{place}: another schema has the title {title}");
    });
}

#[tokio::test]
async fn no_text_of_the_document_is_for_its_authors() {
    walk(&published(), "", &mut |place, fields| {
        for (name, value) in fields {
            let Some(text) = value.as_str() else { continue };
            let found = INTERNAL.into_iter().find(|word| text.to_lowercase().contains(word));
            assert_eq!(found, None, "{place}/{name}: {text}");
        }
    });
}

#[tokio::test]
async fn only_a_field_that_a_patch_clears_may_be_null() {
    let mut cleared = 0;
    walk(&published(), "", &mut |place, fields| {
        let is_null = match fields.get("type") {
            Some(Value::String(name)) => name == "null",
            Some(Value::Array(names)) => names.iter().any(|name| name == "null"),
            _ => false,
        };
        let is_cleared = place.starts_with("/components/schemas/Update");
        assert!(!is_null || is_cleared, "{place} may be null");
        cleared += usize::from(is_null);
        assert!(!fields.contains_key("nullable"), "{place} may be null");
    });
    assert!(cleared >= 9, "{cleared} fields can be cleared");
}

#[tokio::test]
async fn what_refers_to_something_finds_it() {
    let document = published();
    walk(&document, "", &mut |place, fields| {
        let Some(target) = fields.get("$ref").and_then(Value::as_str) else { return };
        let found = target.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        assert!(found.is_some(), "{place}: there is no {target}");
    });
}
