//! Circles of imports: files that can only be understood together.

use std::collections::{BTreeMap, BTreeSet};

use super::shape::{production_files, production_lines};
use super::{File, Finding, Tree};

/// Files of a crate that may import each other in a circle: as many as one reads together.
const CIRCLE_MAX: usize = 5;

/// A crate with a longer circle: the table of records names every record with rows of its own, and
/// each of these reads and writes through the unit or the view that the table is made for.
const LONG_CIRCLE: (&str, usize) = ("store", 15);

/// A module as its path from the crate's root.
type Module = Vec<String>;

/// No circle of imports within a crate is longer than is allowed. A crate's root, which lists its
/// modules, is not part of any.
pub fn circles(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in production_files(tree) {
        crates.entry(file.crate_name().unwrap_or_default()).or_default().push(file);
    }
    let mut findings = Vec::new();
    for (name, files) in &crates {
        let max = if *name == LONG_CIRCLE.0 { LONG_CIRCLE.1 } else { CIRCLE_MAX };
        let modules: BTreeMap<Module, &File> =
            files.iter().filter_map(|file| Some((module_of(&file.path)?, *file))).collect();
        let imports: BTreeMap<&Module, BTreeSet<&Module>> = modules
            .iter()
            .map(|(module, file)| (module, imports(module, file, &modules)))
            .collect();
        let longest = longest_circle(&imports);
        if let Some(first) = longest.first().filter(|_| longest.len() > max) {
            let names: Vec<_> = longest.iter().map(|module| module.join("::")).collect();
            let wrong = format!(
                "{} files import each other in a circle, {max} are allowed: {}",
                names.len(),
                names.join(", ")
            );
            let instead = "move what two of them need into a file that imports neither";
            findings.push(Finding::new(&modules[*first].path, 1, wrong, instead));
        }
    }
    findings
}

/// The module in a file; none for a crate's root.
fn module_of(path: &str) -> Option<Module> {
    let inside = path.split('/').skip(3).collect::<Vec<_>>().join("/");
    let inside = inside.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let module: Module = inside.split('/').map(str::to_owned).collect();
    let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
    (!is_root && module.first().is_some_and(|first| first != "bin")).then_some(module)
}

/// The modules of the same crate that a file names in its code.
fn imports<'a>(
    own: &Module,
    file: &File,
    modules: &'a BTreeMap<Module, &File>,
) -> BTreeSet<&'a Module> {
    let lines = production_lines(file);
    let code: Vec<_> = lines.iter().map(|line| line.code.trim()).collect();
    let code = code.join(" ");
    let mut found = BTreeSet::new();
    for path in paths(&code) {
        let resolved = match path[0].as_str() {
            "crate" => path[1..].to_vec(),
            "self" => [own.as_slice(), &path[1..]].concat(),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let Some(kept) = own.len().checked_sub(up) else { continue };
                [&own[..kept], &path[up..]].concat()
            }
            // A child by its name.
            _ => [own.as_slice(), path.as_slice()].concat(),
        };
        let longest = (1..=resolved.len()).rev().find_map(|length| {
            modules.get_key_value(&resolved[..length]).map(|(module, _)| module)
        });
        found.extend(longest.filter(|module| *module != own));
    }
    found
}

/// Every path that code imports, with braces resolved, and every other path from the crate's root.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for statement in code.split(';') {
        let statement = statement.trim_start();
        let after = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        // An attribute or the end of a block may stand before it.
        let import = after.iter().find_map(|word| {
            let at = statement.rfind(word)?;
            let is_start = at == 0 || statement[..at].ends_with([' ', '}', ']']);
            is_start.then(|| &statement[at + word.len()..])
        });
        match import {
            Some(import) => expand(import, &[], &mut found),
            None => {
                for (at, _) in statement.match_indices("crate::") {
                    let letters = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                    let path: String =
                        statement[at..].chars().take_while(|c| letters(*c)).collect();
                    found.push(path.split("::").map(str::to_owned).collect());
                }
            }
        }
    }
    found
}

/// Adds the paths of a tree of imports behind `before`.
fn expand(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let parts = path.split("::").map(|part| part.trim().to_owned());
        let path: Vec<_> = before.iter().cloned().chain(parts).collect();
        found.push(path);
        return;
    };
    let head = tree[..open].trim_end_matches("::").split("::").filter(|part| !part.is_empty());
    let before: Vec<_> =
        before.iter().cloned().chain(head.map(|it| it.trim().to_owned())).collect();
    let inside = tree[open + 1..].trim_end().strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let (mut depth, mut start) = (0_usize, 0);
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&inside[start..at], &before, found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inside[start..].trim().is_empty() {
        expand(&inside[start..], &before, found);
    }
}

/// The longest set of modules each of which reaches every other one.
fn longest_circle<'a>(imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> Vec<&'a Module> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|from| (*from, reach(from, imports))).collect();
    let circle = |from: &&'a Module| -> Vec<&'a Module> {
        let back = reached[*from].iter().filter(|to| reached[**to].contains(*from));
        back.copied().collect()
    };
    imports.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

fn reach<'a>(
    from: &'a Module,
    imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> BTreeSet<&'a Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    /// Files of which each imports the next, and the last the first.
    fn circle(length: usize) -> Vec<(String, String)> {
        let file = |index: usize| {
            let next = (index + 1) % length;
            let text = format!("use std::fmt;\n\nuse crate::{{\n    m{next}::{{A, B}},\n}};\n");
            (format!("crates/api/src/m{index}.rs"), text)
        };
        (0..length).map(file).collect()
    }

    fn found(files: &[(String, String)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        places(circles, &files)
    }

    #[test]
    fn long_circles_are_cut() {
        assert_eq!(found(&circle(CIRCLE_MAX)), [""; 0]);
        assert_eq!(found(&circle(CIRCLE_MAX + 1)), ["crates/api/src/m0.rs:1"]);
        let mut cut = circle(CIRCLE_MAX + 1);
        cut[0].1 = "use std::fmt;\n// use crate::m1;\n".to_owned();
        assert_eq!(found(&cut), [""; 0]);
        // A path in the code is an import too.
        cut[0].1 = "fn f() {\n    crate::m1::g();\n}\n".to_owned();
        assert_eq!(found(&cut).len(), 1);
        // The root lists them all, and tests may look anywhere.
        cut[0].1 = "#[cfg(test)]\nmod tests {\n    use crate::m1;\n}\n".to_owned();
        cut.push(("crates/api/src/lib.rs".to_owned(), "pub use m0::A;".to_owned()));
        assert_eq!(found(&cut), [""; 0]);
    }

    #[test]
    fn paths_are_resolved() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<_> = paths(text).iter().map(|path| path.join("::")).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("use crate::a;", &["crate::a"]);
        check("use crate::{a, b::{C, d::E}};", &["crate::a", "crate::b::C", "crate::b::d::E"]);
        check("#[cfg(x)] pub(crate) use super::a::B as C;", &["super::a::B"]);
        check("fn f() { crate::a::g(crate::b::C) }", &["crate::a::g", "crate::b::C"]);
    }
}
