//! The language of the repository: the field's words, and how a comment begins.

use super::shape::production_files;
use super::{File, Finding, Tree};

// The words are written in two halves in this file, so that it passes its own rule.

/// Words of our own, in lower case, and the field's.
const WORDS: &[(&str, &str)] = &[
    (concat!("str", "and"), "say index range"),
    (concat!("fac", "et"), "say filter column"),
    (concat!("tal", "ly"), "say counter"),
    (concat!("tal", "lies"), "say counters"),
    (concat!("hori", "zon"), "say low-water mark"),
    (concat!("she", "lf"), "say read cache"),
    (concat!("tick", "et"), "say version"),
    (concat!("bun", "dle"), "say event batch"),
    (concat!("pac", "ked"), "say compressed"),
    (concat!("las", "ting"), "say final"),
    (concat!("la", "ne"), "say commit queue"),
    (concat!("tr", "ay"), "say hand-off buffer"),
    (concat!("scr", "ibe"), "say writer thread"),
    (concat!("un", "kept"), "say write-behind buffer"),
    (concat!("du", "ty"), "say lease or due jobs"),
    (concat!("du", "ties"), "say leases or due jobs"),
    (concat!("ten", "ure"), "say leadership, lease or term"),
    (concat!("rel", "ay"), "say write forwarding"),
    (concat!("to", "ld"), "say notified"),
    (concat!("ne", "ws"), "say wake-up or notification"),
    (concat!("kno", "ck"), "say attempt"),
    (concat!("no", "uns"), "say records"),
    (concat!("no", "body"), "say no server, no caller: name it"),
    (concat!("some", "body"), "say another server, another caller: name it"),
    (concat!("who", "ever"), "name the caller, the server or the reader"),
];

/// No sentence of a comment begins with these: it would say that there is something, not what it
/// is.
const BEGINNINGS: [&str; 3] = ["What", "Who", "That"];

/// Files that may use [`WORDS`], and why.
const EXCEPTED: &[(&str, &str)] = &[
    ("docs/glossary.md", "it lists them beside the field's"),
    ("STYLE.md", "it shows what not to write"),
    ("crates/testbed/tests/it/postgres.rs", "it names an account of the system"),
    ("crates/testbed/src/postgres/binaries.rs", "it names an account of the system"),
];

/// One vocabulary in code, comments and documents: the field's.
pub fn words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .files
        .iter()
        .filter(|file| !EXCEPTED.iter().any(|(path, _)| file.path.starts_with(path)))
    {
        findings.extend(words_of(file));
    }
    findings
}

fn words_of(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.to_lowercase();
        let mut parts = line.split(|c: char| !c.is_alphabetic());
        let found = parts.find_map(|part| {
            let singular = part.strip_suffix('s').unwrap_or(part);
            WORDS.iter().find(|(word, _)| [part, singular].contains(word))
        });
        if let Some((word, instead)) = found {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                format!("the word '{word}'"),
                instead,
            ));
        }
    }
    findings
}

/// Sentences of comments begin with the thing.
pub fn comments(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in production_files(tree) {
        for (index, line) in file.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            let begins = |sentence: &str| sentence.split(' ').next().map(str::to_owned);
            let mut words = comment.split(". ").filter_map(begins);
            if let Some(word) = words.find(|word| BEGINNINGS.contains(&word.as_str())) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("a sentence that begins with '{word}'"),
                    "name the thing first",
                ));
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
    fn comments_begin_with_the_thing() {
        for word in BEGINNINGS {
            for bad in [format!("//! {word} it is."), format!("    // Fine. {word} it is.")] {
                let path = "crates/api/src/lib.rs";
                assert_eq!(places(comments, &[(path, &format!("\n{bad}"))]), [format!("{path}:2")]);
                assert_eq!(places(comments, &[("crates/api/tests/a.rs", &bad)]), [""; 0]);
            }
            let good = format!("// {word}ever it is.\nlet it = \"{word} it is.\";\n");
            assert_eq!(places(comments, &[("crates/api/src/lib.rs", &good)]), [""; 0]);
        }
    }

    #[test]
    fn words_of_our_own_are_found() {
        for (word, _) in WORDS {
            let plural = format!("{word}s");
            for bad in [word.to_uppercase(), format!("all_{plural}"), format!("({word})")] {
                let text = format!("fine\n// {bad}\n");
                let path = "crates/api/src/lib.rs";
                assert_eq!(places(words, &[(path, &text)]), [format!("{path}:2")], "{bad}");
                assert_eq!(places(words, &[("docs/notes.md", &text)]).len(), 1, "{bad}");
                assert_eq!(places(words, &[("docs/glossary.md", &text)]), [""; 0], "{bad}");
            }
            assert_eq!(places(words, &[("docs/a.md", &format!("x{word}ed"))]), [""; 0]);
        }
    }
}
