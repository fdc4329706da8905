//! Rules about SQL, which stands in `.sql` files and in string literals of the store.

use std::collections::BTreeMap;

use super::source::{has_word, lines};
use super::{File, Finding, Tree};

/// Ways to ask a database for the time or for chance, in lower case.
const CLOCK_AND_CHANCE: &[&str] = &[
    "now()",
    "current_timestamp",
    "current_date",
    "current_time",
    "clock_timestamp(",
    "transaction_timestamp(",
    "'now'",
    "unixepoch(",
    "random()",
    "randomblob(",
    "gen_random_uuid(",
    "gen_random_bytes(",
];

/// SQL takes time and chance as parameters, so that a unit of work can be run again and a test
/// can choose them.
pub fn clock_and_chance(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut check = |file: &File, index: usize, sql: &str| {
        let sql = sql.to_lowercase();
        if let Some(word) = CLOCK_AND_CHANCE.iter().find(|word| has_word(&sql, word)) {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                format!("SQL that asks the database for {word}"),
                "pass it as a parameter: time comes from the clock port, chance from entropy",
            ));
        }
    };
    for file in tree.files.iter().filter(|file| file.crate_name() == Some("store")) {
        if file.path.ends_with(".sql") {
            for (index, line) in file.text.lines().enumerate() {
                let sql = line.split_once("--").map_or(line, |(sql, _)| sql);
                check(file, index, sql);
            }
        } else if file.path.ends_with(".rs") {
            for (index, line) in lines(&file.text).iter().enumerate() {
                check(file, index, &line.literals);
            }
        }
    }
    findings
}

/// Migrations of a folder are numbered 1, 2, 3 and so on. One number may have two files when the
/// engines differ: `.sqlite.sql` and `.postgres.sql`.
pub fn migrations(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut folders: BTreeMap<&str, BTreeMap<u32, Vec<&File>>> = BTreeMap::new();
    let is_migration =
        |file: &&File| file.path.starts_with("crates/store/") && file.path.contains("/migrations/");
    for file in tree.with_extension("sql").filter(is_migration) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        match number(file) {
            Some(number) => {
                folders.entry(folder).or_default().entry(number).or_default().push(file);
            }
            None => findings.push(Finding::new(
                &file.path,
                1,
                "a migration without a number",
                "name it like its neighbours: number, two underscores, what it does",
            )),
        }
    }
    folders.values().for_each(|steps| track(steps, &mut findings));
    findings
}

/// The findings of one folder.
fn track(steps: &BTreeMap<u32, Vec<&File>>, findings: &mut Vec<Finding>) {
    for (expected, (number, files)) in (1..).zip(steps) {
        if *number != expected {
            findings.push(Finding::new(
                &files[0].path,
                1,
                format!("migration {number} follows {}", expected - 1),
                "number migrations without holes; a step that was released keeps its number",
            ));
            break;
        }
    }
    let engine = |file: &File| {
        ["sqlite", "postgres"].iter().find(|e| file.path.ends_with(&format!(".{e}.sql"))).copied()
    };
    for (number, files) in steps {
        let mut engines: Vec<_> = files.iter().map(|file| engine(file)).collect();
        engines.sort_unstable();
        let is_pair = engines == [Some("postgres"), Some("sqlite")];
        if !is_pair && engines != [None] {
            findings.push(Finding::new(
                &files[0].path,
                1,
                format!("migration {number} is not one file, nor one for each engine"),
                "give every step its own number, or a .sqlite.sql and a .postgres.sql",
            ));
        }
    }
}

/// The number that the file's name starts with, with or without a `V` before it.
fn number(file: &File) -> Option<u32> {
    let name = file.path.rsplit('/').next()?;
    let name = name.strip_prefix('V').unwrap_or(name);
    let end = name.find(|c: char| !c.is_ascii_digit())?;
    name[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn the_database_has_no_clock_and_no_dice() {
        for word in CLOCK_AND_CHANCE {
            let sql = format!("select 1;\nselect {} ;\n", word.to_uppercase());
            let found = places(clock_and_chance, &[("crates/store/migrations/1.sql", &sql)]);
            assert_eq!(found, ["crates/store/migrations/1.sql:2"], "{word}");
        }
        let rust = "let now = clock.now();\nconst SQL: &str = \"select :now\";\n\
                    const BAD: &str = \"\n  values (now())\";\n";
        let found = places(
            clock_and_chance,
            &[("crates/store/src/timers.rs", rust), ("crates/service/src/jobs.rs", rust)],
        );
        assert_eq!(found, ["crates/store/src/timers.rs:4"]);
        let comment = [("crates/store/migrations/1.sql", "-- no now() here\n")];
        assert_eq!(places(clock_and_chance, &comment), [""; 0]);
    }

    fn check_migrations(names: &[&str], found_at: &[&str]) {
        let paths: Vec<_> =
            names.iter().map(|name| format!("crates/store/migrations/{name}")).collect();
        let files: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
        let expected: Vec<_> =
            found_at.iter().map(|name| format!("crates/store/migrations/{name}:1")).collect();
        assert_eq!(places(migrations, &files), expected, "{names:?}");
    }

    #[test]
    fn migrations_have_no_holes() {
        check_migrations(&[], &[]);
        check_migrations(&["V1__initial.sql", "V2__timers.sql"], &[]);
        check_migrations(&["0001_initial.sql", "0002_timers.sql"], &[]);
        check_migrations(&["V1__initial.sql", "V3__timers.sql"], &["V3__timers.sql"]);
        check_migrations(&["V2__initial.sql"], &["V2__initial.sql"]);
        check_migrations(&["initial.sql"], &["initial.sql"]);
        check_migrations(&["V1__a.sql", "V1__b.sql"], &["V1__a.sql"]);
        check_migrations(&["V1__a.sqlite.sql", "V1__a.postgres.sql"], &[]);
        check_migrations(&["V1__a.sqlite.sql"], &["V1__a.sqlite.sql"]);
        check_migrations(&["one/0001_initial.sql", "other/0001_initial.sql"], &[]);
        check_migrations(&["one/0001_a.sql", "other/0002_b.sql"], &["other/0002_b.sql"]);
    }
}
