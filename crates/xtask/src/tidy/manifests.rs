//! Rules about manifests: which crate may know which. The tables stand in `ARCHITECTURE.md`, so
//! that the map cannot go stale.

use super::{File, Finding, Tree};

const MAP: &str = "ARCHITECTURE.md";

/// A table in a fenced block of the map: `name: one, two`, one row for each name.
struct Table<'a> {
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    line: usize,
    name: &'a str,
    others: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// Reads the block that opens with ```` ```{language} ````.
    fn read(map: &'a File, language: &str) -> Result<Self, Finding> {
        let fence = format!("```{language}");
        let mut lines = map.text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        if !lines.any(|(_, line)| line == fence) {
            let wrong = format!("there is no block that opens with {fence}");
            return Err(Finding::new(MAP, 1, wrong, "write the table back"));
        }
        let mut rows = Vec::new();
        for (line, text) in lines.take_while(|(_, text)| *text != "```") {
            let Some((name, others)) = text.split_once(':') else {
                let wrong = format!("'{text}' is not a row of the {language} table");
                return Err(Finding::new(MAP, line, wrong, "write `name: other, other`"));
            };
            let others = others.split(',').map(str::trim).filter(|other| !other.is_empty());
            rows.push(Row { line, name: name.trim(), others: others.collect() });
        }
        Ok(Self { rows })
    }

    fn row(&self, name: &str) -> Option<&Row<'a>> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// A crate of the workspace as its manifest tells it.
struct Manifest<'a> {
    file: &'a File,
    name: String,
    /// Its dependencies to run or to build; those of its tests do not count.
    dependencies: Vec<String>,
}

impl<'a> Manifest<'a> {
    fn read_all(tree: &'a Tree) -> Result<Vec<Self>, Finding> {
        let is_manifest = |file: &&File| {
            file.path.ends_with("/Cargo.toml") && file.path.matches('/').count() == 2
        };
        tree.files.iter().filter(is_manifest).map(Self::read).collect()
    }

    fn read(file: &'a File) -> Result<Self, Finding> {
        let manifest: toml::Table = file.text.parse().map_err(|error: toml::de::Error| {
            let wrong = format!("not a manifest: {}", error.message());
            Finding::new(&file.path, 1, wrong, "correct it")
        })?;
        let name = manifest.get("package").and_then(|package| package.get("name"));
        let name = name.and_then(toml::Value::as_str).unwrap_or_default();
        if Some(name) != file.crate_name() {
            let wrong = format!("the crate is named '{name}'");
            return Err(Finding::new(&file.path, 1, wrong, "give it the name of its folder"));
        }
        let mut dependencies = Vec::new();
        collect(&manifest, &mut dependencies);
        if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
            for target in targets.values().filter_map(toml::Value::as_table) {
                collect(target, &mut dependencies);
            }
        }
        Ok(Self { file, name: name.to_owned(), dependencies })
    }

    /// Line of the manifest that names `dependency`.
    fn line_of(&self, dependency: &str) -> usize {
        let names_it = |line: &str| {
            line.trim_start()
                .strip_prefix(dependency)
                .is_some_and(|rest| rest.trim_start().starts_with(['.', '=']))
        };
        self.file.text.lines().position(names_it).map_or(1, |index| index + 1)
    }
}

/// Names of the crates in the dependency tables of `table`, also when they are renamed.
fn collect(table: &toml::Table, into: &mut Vec<String>) {
    for kind in ["dependencies", "build-dependencies"] {
        let Some(dependencies) = table.get(kind).and_then(toml::Value::as_table) else { continue };
        for (name, value) in dependencies {
            let renamed = value.get("package").and_then(toml::Value::as_str);
            into.push(renamed.unwrap_or(name).to_owned());
        }
    }
}

/// Each crate depends only on crates that its row of the `arrows` table names, and rows name only
/// rows above them.
pub fn arrows(tree: &Tree) -> Vec<Finding> {
    check(tree, "arrows", |table, manifests, findings| {
        for (index, row) in table.rows.iter().enumerate() {
            if !manifests.iter().any(|manifest| manifest.name == row.name) {
                let wrong = format!("there is no crate '{}'", row.name);
                findings.push(Finding::new(MAP, row.line, wrong, "remove its row"));
            }
            for other in &row.others {
                if !table.rows[..index].iter().any(|above| above.name == *other) {
                    let wrong = format!("the arrow from {} to {other} does not go up", row.name);
                    let instead = "name only crates of rows above; crates know only what they \
                                   are built on";
                    findings.push(Finding::new(MAP, row.line, wrong, instead));
                }
            }
        }
        for manifest in manifests {
            let Some(row) = table.row(&manifest.name) else {
                let wrong = format!("{MAP} has no arrows row for {}", manifest.name);
                let instead = "add the row, with a decision record for a new crate";
                findings.push(Finding::new(&manifest.file.path, 1, wrong, instead));
                continue;
            };
            let ours = |name: &&String| manifests.iter().any(|other| other.name == **name);
            for dependency in manifest.dependencies.iter().filter(ours) {
                if !row.others.contains(&dependency.as_str()) {
                    findings.push(Finding::new(
                        &manifest.file.path,
                        manifest.line_of(dependency),
                        format!("{} must not know {dependency}", manifest.name),
                        "move the code to where both are known, or record a decision and add \
                         the arrow to ARCHITECTURE.md",
                    ));
                }
            }
        }
    })
}

/// An outside crate in the `keepers` table is known only to the crates of its row.
pub fn keepers(tree: &Tree) -> Vec<Finding> {
    check(tree, "keepers", |table, manifests, findings| {
        for manifest in manifests {
            for dependency in &manifest.dependencies {
                let Some(row) = table.row(dependency) else { continue };
                if !row.others.contains(&manifest.name.as_str()) {
                    findings.push(Finding::new(
                        &manifest.file.path,
                        manifest.line_of(dependency),
                        format!("{} must not know {dependency}", manifest.name),
                        "leave it to its keepers in ARCHITECTURE.md and use what they offer",
                    ));
                }
            }
        }
    })
}

fn check(
    tree: &Tree,
    language: &str,
    rule: impl Fn(&Table<'_>, &[Manifest<'_>], &mut Vec<Finding>),
) -> Vec<Finding> {
    let Some(map) = tree.file(MAP) else {
        return vec![Finding::new(MAP, 1, "there is no map", "write it back")];
    };
    let mut findings = Vec::new();
    match (Table::read(map, language), Manifest::read_all(tree)) {
        (Ok(table), Ok(manifests)) => rule(&table, &manifests, &mut findings),
        (Err(finding), _) | (_, Err(finding)) => findings.push(finding),
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    const TABLES: &str = "# Map\n\n```arrows\ndomain:\nledger: domain\nstore: domain, ledger\n```\n\
                          \n```keepers\nrusqlite: store\n```\n";
    const DOMAIN: (&str, &str) = ("crates/domain/Cargo.toml", "[package]\nname = \"domain\"\n");

    fn with_ledger(ledger: &str, rule: fn(&Tree) -> Vec<Finding>) -> Vec<String> {
        let ledger = format!("[package]\nname = \"ledger\"\n{ledger}");
        let store = "[package]\nname = \"store\"\n[dependencies]\nrusqlite = \"0\"\n\
                     ledger.workspace = true\n";
        places(
            rule,
            &[
                (MAP, TABLES),
                DOMAIN,
                ("crates/ledger/Cargo.toml", &ledger),
                ("crates/store/Cargo.toml", store),
            ],
        )
    }

    #[test]
    fn dependencies_follow_the_arrows() {
        let fine = "[dependencies]\ndomain.workspace = true\n[dev-dependencies]\nstore = {}\n";
        assert_eq!(with_ledger(fine, arrows), [""; 0]);
        for bad in [
            "[dependencies]\nstore.workspace = true\n",
            "[build-dependencies]\nstore = { path = \"../store\" }\n",
            "[target.'cfg(unix)'.dependencies]\nstore.workspace = true\n",
        ] {
            assert_eq!(with_ledger(bad, arrows), ["crates/ledger/Cargo.toml:4"], "{bad}");
        }
        let renamed = "[dependencies]\nbooks = { package = \"store\" }\n";
        assert_eq!(with_ledger(renamed, arrows), ["crates/ledger/Cargo.toml:1"]);
    }

    #[test]
    fn outside_crates_stay_with_their_keepers() {
        let bad = "[dependencies]\nthiserror = \"2\"\nrusqlite.workspace = true\n";
        assert_eq!(with_ledger(bad, keepers), ["crates/ledger/Cargo.toml:5"]);
        assert_eq!(with_ledger("[dev-dependencies]\nrusqlite = \"0\"\n", keepers), [""; 0]);
    }

    #[test]
    fn a_crate_has_the_name_of_its_folder_and_a_row() {
        let stranger = ("crates/utils/Cargo.toml", "[package]\nname = \"utils\"\n");
        let map = (MAP, "```arrows\ndomain:\n```\n");
        assert_eq!(places(arrows, &[map, DOMAIN, stranger]), ["crates/utils/Cargo.toml:1"]);
        let named = ("crates/utils/Cargo.toml", "[package]\nname = \"common\"\n");
        assert_eq!(places(arrows, &[map, DOMAIN, named]), ["crates/utils/Cargo.toml:1"]);
    }

    #[test]
    fn the_map_names_what_is_there_and_goes_one_way() {
        let check = |map: &str, expected: &[&str]| {
            assert_eq!(places(arrows, &[(MAP, map), DOMAIN]), expected, "{map}");
        };
        check("```arrows\ndomain:\n```\n", &[]);
        check("```arrows\ndomain:\nledger: domain\n```\n", &["ARCHITECTURE.md:3"]);
        check("```arrows\ndomain: domain\n```\n", &["ARCHITECTURE.md:2"]);
        check("```arrows\ndomain\n```\n", &["ARCHITECTURE.md:2"]);
        check("no table\n", &["ARCHITECTURE.md:1"]);
        assert_eq!(places(arrows, &[DOMAIN]), ["ARCHITECTURE.md:1"]);
    }
}
