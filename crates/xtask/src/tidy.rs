//! `cargo xtask tidy`: the rules of the repository that the compiler does not know.
//!
//! A rule is a function from the [`Tree`] of files to its [`Finding`]s. Each says where, what is
//! wrong, and what to do instead; each has a test that a bad sample is caught.

mod documents;
mod imports;
mod manifests;
mod rust;
mod shape;
mod source;
mod sql;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;

/// A rule and its name.
type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

const RULES: &[Rule] = &[
    ("arrows", manifests::arrows),
    ("keepers", manifests::keepers),
    ("sandbox", rust::sandbox),
    ("floats", rust::floats),
    ("async", rust::async_functions),
    ("leftovers", rust::leftovers),
    ("line-length", rust::line_length),
    ("file-length", shape::file_length),
    ("function-length", shape::function_length),
    ("circles", imports::circles),
    ("words", words::words),
    ("comments", words::comments),
    ("sql", sql::clock_and_chance),
    ("migrations", sql::migrations),
    ("decisions", documents::decisions),
    ("decision-links", documents::decision_links),
    ("changelog", documents::changelog),
];

/// Checks every rule, prints all findings, and fails if there is one.
pub fn run(workspace: &Workspace) -> Result<()> {
    let tree = Tree::read(workspace.root())?;
    let mut count = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            println!("{finding} [{name}]");
            count += 1;
        }
    }
    if count > 0 {
        bail!("tidy: {count} findings");
    }
    println!("tidy: {} rules hold in {} files", RULES.len(), tree.files.len());
    Ok(())
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    line: usize,
    wrong: String,
    instead: &'static str,
}

impl Finding {
    fn new(path: &str, line: usize, wrong: impl Into<String>, instead: &'static str) -> Self {
        Self { path: path.to_owned(), line, wrong: wrong.into(), instead }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, wrong, instead } = self;
        write!(f, "{path}:{line}: {wrong}; {instead}")
    }
}

/// The files that rules speak about, with paths from the top folder and `/` between the parts.
#[derive(Debug, Default)]
pub struct Tree {
    files: Vec<File>,
}

/// One text file.
#[derive(Debug)]
pub struct File {
    path: String,
    text: String,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for document in ["ARCHITECTURE.md", "CHANGELOG.md"] {
            let path = root.join(document);
            if path.is_file() {
                tree.read_file(root, &path)?;
            }
        }
        for folder in ["crates", "docs"] {
            tree.read_folder(root, &root.join(folder))?;
        }
        tree.files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) -> Result<()> {
        /// Folders that hold other people's files or what a build made.
        const SKIPPED: &[&str] = &["target", "node_modules", "dist"];
        const READ: &[&str] = &["rs", "sql", "toml", "md"];
        let entries = std::fs::read_dir(folder);
        for entry in entries.with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&&*name) && !name.starts_with('.') {
                    self.read_folder(root, &path)?;
                }
            } else if path.extension().is_some_and(|ext| READ.iter().any(|read| ext == *read)) {
                self.read_file(root, &path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, root: &Path, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        let parts = path.strip_prefix(root)?.components();
        let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
        self.files.push(File { path: parts.join("/"), text });
        Ok(())
    }

    /// The file with this path.
    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Files whose name ends in `.{extension}`.
    fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| {
            file.path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
        })
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        Self { files: files.iter().map(file).collect() }
    }
}

impl File {
    /// The crate that the file belongs to: `crates/<name>/..`.
    fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
    }
}

/// Where `rule` finds something in `files`, as `path:line`, for tests.
#[cfg(test)]
fn places(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    let findings = rule(&Tree::of(files));
    findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_what_instead() {
        let finding = Finding::new("crates/domain/src/money.rs", 7, "a float", "use Money");
        assert_eq!(finding.to_string(), "crates/domain/src/money.rs:7: a float; use Money");
    }

    #[test]
    fn this_repository_is_read() {
        let workspace = Workspace::find().expect("tests run inside the repository");
        let tree = Tree::read(workspace.root()).expect("every file is readable");
        let this = tree.file("crates/xtask/src/tidy.rs").expect("this file is in the tree");
        assert_eq!(this.crate_name(), Some("xtask"));
    }
}
