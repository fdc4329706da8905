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

/// Begins of lines that are no part of the paragraph before them.
const BLOCKS: [&str; 5] = ["#", "|", "- ", "* ", "> "];

/// Joins the lines of each paragraph, which the code breaks where its page ends. Code keeps its
/// lines as they are; rows of tables, headings and entries of lists keep lines of their own.
fn reflow(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let (mut is_code, mut goes_on) = (false, false);
    for line in text.split('\n') {
        let trimmed = line.trim();
        let is_fence = trimmed.starts_with("```");
        if is_code || is_fence {
            is_code ^= is_fence;
            goes_on = false;
            lines.push(line.to_owned());
            continue;
        }
        let begins = trimmed.is_empty() || BLOCKS.iter().any(|it| trimmed.starts_with(it));
        match lines.last_mut() {
            Some(last) if goes_on && !begins => {
                last.push(' ');
                last.push_str(trimmed);
            }
            Some(_) | None => lines.push(trimmed.to_owned()),
        }
        goes_on = !trimmed.is_empty() && !trimmed.starts_with(['#', '|']);
    }
    lines.join("\n")
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
    fn code_and_tables_keep_their_lines() {
        let check = |text: &str, expected: &str| assert_eq!(reflow(text), expected, "{text}");
        check("One\n line.\n\nTwo\nlines.", "One line.\n\nTwo lines.");
        check(
            "So:\n\n```sh\na \\\n  b\n\nc\n```\n\nAnd\non.",
            "So:\n\n```sh\na \\\n  b\n\nc\n```\n\nAnd on.",
        );
        check("So:\n```\na\n```\nOn\nit goes.", "So:\n```\na\n```\nOn it goes.");
        check("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |");
        check("- one\n  line\n- two", "- one line\n- two");
        check("# Head\nText\nof it.", "# Head\nText of it.");
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
