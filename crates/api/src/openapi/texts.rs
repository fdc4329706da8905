//! Texts of the document: the doc comments of the code, without what only its authors look up.

use serde_json::Value;

/// How a reference to a document of the project begins; clients have none of them.
const REFERENCES: [&str; 5] =
    [" (specification ", " (contract ", " (design decision ", " (reliability ", " (docs/"];

/// Rewrites every summary and description of the document, which has no examples yet.
pub fn clean(document: &mut Value) {
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            split_summary(operation);
        }
    }
    clean_below(document);
}

/// Makes the first sentence the summary, and the rest the description.
fn split_summary(operation: &mut Value) {
    let part = |name: &str| operation[name].as_str().map(reflow).unwrap_or_default();
    let text = [part("summary"), part("description")].join("\n\n");
    let text = text.trim();
    let (summary, description) = match text.split_once(". ") {
        Some((summary, description)) if !summary.contains("\n\n") => (summary, description),
        _ => text.split_once("\n\n").unwrap_or((text, "")),
    };
    let (summary, description) = (summary.trim_end_matches('.').to_owned(), description.to_owned());
    let Some(operation) = operation.as_object_mut() else { return };
    operation.insert("summary".to_owned(), summary.into());
    operation.remove("description");
    if !description.is_empty() {
        operation.insert("description".to_owned(), description.into());
    }
}

fn clean_below(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if matches!(name.as_str(), "summary" | "description") => {
                        *text = reflow(&without_references(text));
                    }
                    _ => clean_below(value),
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(clean_below),
        _ => {}
    }
}

/// Joins the lines of each paragraph, which the code breaks where its page ends.
fn reflow(text: &str) -> String {
    let paragraph = |text: &str| text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

fn without_references(text: &str) -> String {
    let mut text = text.to_owned();
    for reference in REFERENCES {
        while let Some(start) = text.find(reference) {
            let Some(length) = text[start..].find(')') else { break };
            text.replace_range(start..=start + length, "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_and_line_breaks_leave_a_text() {
        let mut document = json!({ "components": {
            "description": "A quote (specification 2.5;\ncontract 6.9).\n\nIt (the quote)\nexpires.",
        } });
        clean(&mut document);
        let text = &document["components"]["description"];
        assert_eq!(text, "A quote.\n\nIt (the quote) expires.");
    }

    #[test]
    fn the_first_sentence_is_the_summary() {
        let check = |given: &str, summary: &str, description: Option<&str>| {
            let mut document = json!({ "paths": { "/a": { "get": { "summary": given } } } });
            clean(&mut document);
            let operation = &document["paths"]["/a"]["get"];
            assert_eq!(operation["summary"], summary);
            assert_eq!(operation.get("description").and_then(Value::as_str), description);
        };
        check("Shows a quote.", "Shows a quote", None);
        check("Makes\na quote. It\nexpires.", "Makes a quote", Some("It expires."));
    }
}
