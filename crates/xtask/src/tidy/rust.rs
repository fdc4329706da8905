//! Rules about Rust files.

use super::source::{has_word, lines};
use super::{File, Finding, Tree};

/// Columns of a line; the same as in rustfmt.
const COLUMNS_MAX: usize = 100;

/// A literal longer than this cannot be broken by rustfmt, and breaking it by hand rarely helps.
const LITERAL_COLUMNS_MAX: usize = 60;

/// Crates in which money and time are exact.
const WITHOUT_FLOATS: &[&str] = &["domain", "ledger", "uma", "store", "ports", "service"];

/// Crates that only compute.
const WITHOUT_ASYNC: &[&str] = &["domain", "ledger", "uma"];

// The words that rules look for are written in two halves in this file, so that it passes its
// own rules.

/// The mode that only adapters may know, in lower case.
const SANDBOX: &str = concat!("sand", "box");

/// Where code may say the word, and why. A folder ends in `/`. Test files are free as well, and so
/// are comments: they explain, but decide nothing.
const SANDBOX_ALLOWED: &[(&str, &str)] = &[
    ("crates/adapters/src/", "they are the implementations that the mode chooses"),
    (concat!("crates/api/src/", "sand", "box.rs"), "the routes that exist in this mode only"),
    ("crates/api/src/lib.rs", "lists every route, those of this mode among them"),
    ("crates/api/src/openapi/guide.rs", "shows the outcomes of this mode's test numbers"),
    ("crates/switchyard/src/", "reads the mode and wires what it means"),
    ("crates/domain/src/platform.rs", "names the mode of a platform"),
    ("crates/testbed/src/", "plays clients of a server in this mode"),
    ("crates/bench/src/uma/institution.rs", "plays clients who are given money in this mode"),
    ("crates/xtask/src/", "names this rule"),
];

/// Words that must not reach the main branch, and what to do.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("todo", "!("), "write it, or answer with an error that says so"),
    (concat!("unimplemented", "!("), "write it, or answer with an error that says so"),
    (concat!("dbg", "!("), "remove it, or log a named field with tracing"),
];

/// Notes that must not reach the main branch; looked for in comments too.
const NOTES: &[&str] = &[concat!("FIX", "ME"), concat!("TO", "DO")];

/// The word for the mode stays in the files that are about it.
pub fn sandbox(tree: &Tree) -> Vec<Finding> {
    let is_allowed = |file: &File| {
        SANDBOX_ALLOWED.iter().any(|(path, _)| match path.strip_suffix('/') {
            Some(_) => file.path.starts_with(path),
            None => file.path == *path,
        }) || file.path.split('/').any(|part| ["tests", "tests.rs"].contains(&part))
    };
    each_line(tree.with_extension("rs").filter(|file| !is_allowed(file)), |_, line| {
        let says_it = |text: &str| text.to_lowercase().contains(SANDBOX);
        (says_it(&line.code) || says_it(&line.literals)).then(|| {
            (
                format!("the word '{SANDBOX}' outside the files that are about it"),
                "move the behaviour behind a port into crates/adapters",
            )
        })
    })
}

/// Amounts, rates and times are exact. A line that records a metric may convert for it: metrics are
/// floats, and nothing is computed from them.
pub fn floats(tree: &Tree) -> Vec<Finding> {
    each_line(files_of(tree, WITHOUT_FLOATS), |_, line| {
        let float = ["f32", "f64"].into_iter().find(|float| has_word(&line.code, float))?;
        if line.code.contains("metrics::") {
            return None;
        }
        Some((
            format!("{float} where numbers are exact"),
            "use Money, Rate or an integer that names its unit",
        ))
    })
}

/// The core only computes: it has nothing to wait for.
pub fn async_functions(tree: &Tree) -> Vec<Finding> {
    each_line(files_of(tree, WITHOUT_ASYNC), |_, line| {
        has_word(&line.code, "async").then(|| {
            (
                "async in a crate that only computes".to_owned(),
                "take what it waits for as an argument, and wait in service",
            )
        })
    })
}

/// Nothing unfinished is merged.
pub fn leftovers(tree: &Tree) -> Vec<Finding> {
    each_line(tree.with_extension("rs"), |text, line| {
        if let Some((word, instead)) = LEFTOVERS.iter().find(|(word, _)| has_word(&line.code, word))
        {
            return Some((format!("{word}..) is left over"), *instead));
        }
        let note = NOTES.iter().find(|note| has_word(text, note))?;
        Some((format!("a note '{note}' is left over"), "do it now, or open an issue"))
    })
}

/// Lines fit beside each other on a screen.
pub fn line_length(tree: &Tree) -> Vec<Finding> {
    each_line(tree.with_extension("rs"), |text, line| {
        let columns = text.chars().count();
        (columns > COLUMNS_MAX && line.longest_literal <= LITERAL_COLUMNS_MAX)
            .then(|| (format!("{columns} columns, {COLUMNS_MAX} are allowed"), "break the line"))
    })
}

fn files_of<'a>(tree: &'a Tree, crates: &'a [&str]) -> impl Iterator<Item = &'a File> {
    tree.with_extension("rs")
        .filter(|file| file.crate_name().is_some_and(|name| crates.contains(&name)))
}

/// Gives each line, as it stands and as split, to `check`; what it answers becomes a finding.
fn each_line<'a>(
    files: impl Iterator<Item = &'a File>,
    check: impl Fn(&str, &super::source::Line) -> Option<(String, &'static str)>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (index, (text, line)) in file.text.lines().zip(lines(&file.text)).enumerate() {
            if let Some((wrong, instead)) = check(text, &line) {
                findings.push(Finding::new(&file.path, index + 1, wrong, instead));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn the_mode_is_known_to_adapters_only() {
        let upper = SANDBOX.to_uppercase();
        let bad = format!("// {SANDBOX}\nif mode == {upper} {{}}\n");
        let found = places(
            sandbox,
            &[
                ("crates/service/src/quotes.rs", &bad),
                ("crates/adapters/src/rails.rs", &bad),
                ("crates/domain/src/platform.rs", &bad),
                ("crates/domain/src/platform_name.rs", &bad),
                ("crates/api/tests/it/quotes.rs", &bad),
                ("docs/notes.md", &bad),
            ],
        );
        assert_eq!(
            found,
            ["crates/service/src/quotes.rs:2", "crates/domain/src/platform_name.rs:2"]
        );
    }

    #[test]
    fn floats_are_found_in_code_only() {
        let text = "// never f64\nlet text = \"f32\";\nlet rate = 1 as f64;\nlet to_f64 = 1;\n\
                    metrics::gauge!(\"units\").set(count as f64);\n";
        let found = places(
            floats,
            &[("crates/ledger/src/apply.rs", text), ("crates/api/src/amount.rs", text)],
        );
        assert_eq!(found, ["crates/ledger/src/apply.rs:3"]);
    }

    #[test]
    fn the_core_does_not_wait() {
        let text = "pub fn apply() {}\npub async fn load() {}\n";
        let found = places(
            async_functions,
            &[("crates/domain/src/quote.rs", text), ("crates/service/src/quotes.rs", text)],
        );
        assert_eq!(found, ["crates/domain/src/quote.rs:2"]);
    }

    #[test]
    fn nothing_is_left_over() {
        for (word, _) in LEFTOVERS {
            let text = format!("fn f() {{\n    {word})\n}}\n");
            assert_eq!(places(leftovers, &[("crates/api/src/lib.rs", &text)]).len(), 1, "{word}");
        }
        for note in NOTES {
            let text = format!("fn f() {{\n    // {note}: later\n}}\n");
            let found = places(leftovers, &[("crates/api/src/lib.rs", &text)]);
            assert_eq!(found, ["crates/api/src/lib.rs:2"], "{note}");
        }
        let fine = "fn f() {\n    assert!(true);\n    todos!();\n}\n";
        assert_eq!(places(leftovers, &[("crates/api/src/lib.rs", fine)]), [""; 0]);
    }

    #[test]
    fn long_lines_are_for_long_literals() {
        let code = "a".repeat(COLUMNS_MAX);
        let literal = "a".repeat(LITERAL_COLUMNS_MAX);
        let text = format!(
            "{code}\n{code}b\nlet message = f(&aaaaaaaaaaaaaaaaaaaaaaaa, \"{literal}\", bbbbbbbbb);\n\
             let message = f(&aaaaaaaaaaaaaaaaaaaaaaaa, \"{literal}a\", bbbbbbbbb);\n// {code}\n"
        );
        let path = "crates/api/src/lib.rs";
        let found = places(line_length, &[(path, &text)]);
        assert_eq!(found, [2, 3, 5].map(|line| format!("{path}:{line}")));
    }
}
