//! Words that are not the field's: each has a standard term in `docs/glossary.md`.

use super::shape::is_excepted;
use super::{File, Finding, Tree};

// The words are written in two halves in this file, so that it passes its own rule.

/// Words of our own, in lower case, and the field's.
const WORDS: &[(&str, &str)] = &[
    (concat!("str", "and"), "say index range"),
    (concat!("fac", "et"), "say filter column"),
    (concat!("tal", "ly"), "say counter"),
    (concat!("tal", "lies"), "say counters"),
    (concat!("she", "lf"), "say read cache"),
    (concat!("ten", "ure"), "say leadership, lease or term"),
    (concat!("scr", "ibe"), "say writer thread"),
    (concat!("who", "ever"), "name the caller, the server or the reader"),
    (concat!("rel", "ay"), "say write forwarding"),
];

/// Files that may use them, and why. A folder ends in `/`.
const EXCEPTED: &[(&str, &str)] = &[
    ("docs/glossary.md", "it lists them beside the field's"),
    ("crates/store/", "it is being taken apart"),
];

/// One vocabulary in code, comments and documents: the field's.
pub fn words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !is_excepted(EXCEPTED, &file.path)) {
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

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

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
