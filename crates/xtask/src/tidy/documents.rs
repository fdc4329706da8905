//! Rules about documents.

use super::{File, Finding, Tree};

const DECISIONS: &str = "docs/decisions/";
const DECISIONS_LIST: &str = "docs/decisions/README.md";
const CHANGELOG: &str = "CHANGELOG.md";

/// Where samples of these rules name records that are not there.
const SAMPLES: &str = "crates/xtask/src/tidy/";

/// Decision records are numbered 0001, 0002 and so on, and the list names each.
pub fn decisions(tree: &Tree) -> Vec<Finding> {
    let list = tree.file(DECISIONS_LIST).map(|file| file.text.as_str());
    let Some(list) = list else {
        return vec![Finding::new(
            DECISIONS_LIST,
            1,
            "there is no list of decisions",
            "write it, with a line and a link for each record",
        )];
    };
    let mut findings = Vec::new();
    let is_record = |file: &&File| file.path.starts_with(DECISIONS) && file.path != DECISIONS_LIST;
    let mut last = 0;
    for file in tree.with_extension("md").filter(is_record) {
        let name = &file.path[DECISIONS.len()..];
        let number = name.get(..5).and_then(|start| start.strip_suffix('-'));
        let number = number.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let Some(number) = number.and_then(|digits| digits.parse::<u32>().ok()) else {
            findings.push(Finding::new(
                &file.path,
                1,
                "a record whose name is not NNNN-words.md",
                "give it the next free number of four digits",
            ));
            continue;
        };
        if number != last + 1 {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("record {number:04} follows {last:04}"),
                "number records without holes or repeats",
            ));
        }
        last = number;
        if !list.contains(&format!("({name})")) {
            findings.push(Finding::new(
                DECISIONS_LIST,
                1,
                format!("the list does not link {name}"),
                "add a line for it",
            ));
        }
    }
    findings
}

/// A comment or document names only decision records that are there.
pub fn decision_links(tree: &Tree) -> Vec<Finding> {
    let names = tree.with_extension("md").filter_map(|file| file.path.strip_prefix(DECISIONS));
    let names: Vec<_> = names.collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with(SAMPLES)) {
        for (index, line) in file.text.lines().enumerate() {
            for link in line.split("decisions/").skip(1) {
                let is_of_name =
                    |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
                let end = link.find(|letter| !is_of_name(letter)).unwrap_or(link.len());
                let link = link[..end].trim_end_matches('.');
                let is_number = link.get(..4).is_some_and(|number| number.parse::<u32>().is_ok());
                let is_there = |name: &&str| *name == link || name.get(..4) == Some(link);
                if is_number && !names.iter().any(is_there) {
                    findings.push(Finding::new(
                        &file.path,
                        index + 1,
                        format!("there is no decision {link}"),
                        "name a record of docs/decisions, or none",
                    ));
                }
            }
        }
    }
    findings
}

/// There is always a place for the next line of the change log.
pub fn changelog(tree: &Tree) -> Vec<Finding> {
    let text = tree.file(CHANGELOG).map_or("", |file| file.text.as_str());
    if text.lines().any(|line| line.trim_end() == "## Unreleased") {
        return Vec::new();
    }
    vec![Finding::new(
        CHANGELOG,
        1,
        "there is no section '## Unreleased'",
        "add it at the top, with Safety, Features and Internals below it",
    )]
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn records_are_numbered_and_listed() {
        let list = "- [one](0001-one.md)\n- [two](0002-two.md)\n- [four](0004-four.md)\n";
        let check = |names: &[&str], expected: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| format!("{DECISIONS}{name}")).collect();
            let mut files: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
            files.push((DECISIONS_LIST, list));
            assert_eq!(places(decisions, &files), expected, "{names:?}");
        };
        check(&["0001-one.md", "0002-two.md"], &[]);
        check(&["0001-one.md", "0004-four.md"], &["docs/decisions/0004-four.md:1"]);
        check(&["0001-new.md"], &["docs/decisions/README.md:1"]);
        check(&["0001-one.md", "0001-one.md"], &["docs/decisions/0001-one.md:1"]);
        check(&["one.md"], &["docs/decisions/one.md:1"]);
        assert_eq!(places(decisions, &[]), ["docs/decisions/README.md:1"]);
    }

    #[test]
    fn links_lead_to_records() {
        let check = |text: &str, expected: &[&str]| {
            let files = [(DECISIONS_LIST, ""), ("docs/decisions/0001-one.md", ""), ("a.md", text)];
            assert_eq!(places(decision_links, &files), expected, "{text}");
        };
        check("why: (docs/decisions/0001).", &[]);
        check("[why](decisions/0001-one.md) and [all](decisions/README.md)", &[]);
        check("docs/decisions/NNNN", &[]);
        check("docs/decisions/0001, then docs/decisions/0002.", &["a.md:1"]);
        check("\n[why](decisions/0001-two.md)", &["a.md:2"]);
    }

    #[test]
    fn the_change_log_is_open() {
        assert_eq!(places(changelog, &[(CHANGELOG, "# Changes\n\n## Unreleased\n")]), [""; 0]);
        assert_eq!(places(changelog, &[(CHANGELOG, "# Changes\n\n## 1.0\n")]), ["CHANGELOG.md:1"]);
        assert_eq!(places(changelog, &[]), ["CHANGELOG.md:1"]);
    }
}
