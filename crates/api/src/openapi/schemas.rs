//! Schemas as clients are generated from them: each has a name of its own, and stands once.

use serde_json::{Map, Value, json};

/// How the derive names a page and a whole list of something, and how the document does.
const LISTS: [(&str, &str); 2] = [("List_", "Page"), ("All_", "List")];

/// Names lists after what they hold, and lets them refer to it: the derive writes a copy into each.
pub fn name_lists(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let mut renamed = Vec::new();
    for (prefix, suffix) in LISTS {
        let names: Vec<_> =
            schemas.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        for name in names {
            let row = name[prefix.len()..].to_owned();
            let Some(mut schema) = schemas.remove(&name) else { continue };
            let of_row = json!({ "$ref": reference(&row) });
            schema["properties"]["data"]["items"] = of_row;
            let new_name = format!("{row}{suffix}");
            renamed.push((reference(&name), reference(&new_name)));
            schemas.insert(new_name, schema);
        }
    }
    rename_references(document, &renamed);
}

fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

fn rename_references(value: &mut Value, renamed: &[(String, String)]) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => {
                        if let Some((_, new)) = renamed.iter().find(|(old, _)| old == target) {
                            new.clone_into(target);
                        }
                    }
                    _ => rename_references(value, renamed),
                }
            }
        }
        Value::Array(entries) => {
            entries.iter_mut().for_each(|entry| rename_references(entry, renamed));
        }
        _ => {}
    }
}

/// Gives every schema its name as the title: generators name types by it.
pub fn title(document: &mut Value) {
    let schemas = document["components"]["schemas"].as_object_mut();
    for (name, schema) in schemas.into_iter().flatten() {
        schema["title"] = json!(name);
    }
}

/// Says of objects whose fields are not listed that they have some: generators read them as empty.
pub fn open_objects(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_open = fields.get("type").is_some_and(|kind| kind == "object")
                && !["properties", "additionalProperties", "allOf", "oneOf"]
                    .iter()
                    .any(|keyword| fields.contains_key(*keyword));
            if is_open {
                fields.insert("additionalProperties".to_owned(), json!(true));
            }
            fields.values_mut().for_each(open_objects);
        }
        Value::Array(entries) => entries.iter_mut().for_each(open_objects),
        _ => {}
    }
}

/// A body that may be left out is not one that may be `null`.
pub fn optional_bodies(operation: &mut Map<String, Value>) {
    let Some(body) = operation.get_mut("requestBody") else { return };
    let contents = body["content"].as_object_mut();
    let mut is_optional = false;
    for content in contents.into_iter().flat_map(|contents| contents.values_mut()) {
        let schema = &mut content["schema"];
        let Some(variants) = schema["oneOf"].as_array() else { continue };
        let (null, rest): (Vec<_>, Vec<_>) =
            variants.iter().cloned().partition(|variant| variant["type"] == "null");
        if let ([_], [only]) = (null.as_slice(), rest.as_slice()) {
            *schema = only.clone();
            is_optional = true;
        }
    }
    if is_optional {
        body["required"] = json!(false);
    }
}
