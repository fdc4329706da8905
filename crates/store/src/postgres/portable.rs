//! Holds every statement to the SQL that engines with PostgreSQL's wire protocol share, distributed
//! ones too (`docs/scaling.md`). It lists what is allowed: whoever needs more adds a word here and
//! thereby says that those engines have it.

use std::collections::BTreeMap;

use tokio_postgres::types::Type;

use super::texts::Texts;
use crate::migrate;

/// How a statement may begin. No functions, triggers, notifications, locks of tables, sequences,
/// settings or copies.
const BEGINNINGS: &[&str] = &[
    "select ",
    "with recursive ",
    "insert into ",
    "update ",
    "delete from ",
    "create table ",
    "create index ",
    "create unique index ",
    "alter table ",
    "begin isolation level ",
    "commit",
    "rollback",
];

/// What may stand before a bracket: functions that are the same everywhere, and words of the
/// language. No clock, chance, advisory lock, sequence or notification is among them.
const BEFORE_BRACKETS: &[&str] = &[
    // Functions.
    "any",
    "cast",
    "coalesce",
    "count",
    "length",
    "max",
    "min",
    "substr",
    "sum",
    "unnest",
    // Words.
    "and",
    "as",
    "between",
    "by",
    "check",
    "conflict",
    "exists",
    "from",
    "in",
    "key",
    "not",
    "on",
    "or",
    "references",
    "select",
    "then",
    "u",
    "union",
    "all",
    "unique",
    "values",
    "when",
    "where",
    "with",
];

/// Words that must stand nowhere: what distributed engines lack, refuse or do differently.
const NOWHERE: &[&str] = &[
    "advisory",
    "autoincrement",
    "ctid",
    "deferrable",
    "ilike",
    "inherits",
    "lateral",
    "listen",
    "lock",
    "materialized",
    "nextval",
    "notify",
    "nowait",
    "oid",
    "partition",
    "plpgsql",
    "procedure",
    "rowid",
    "sequence",
    "serial",
    "setval",
    "temp",
    "temporary",
    "trigger",
    "unlogged",
    "vacuum",
    "xmin",
];

/// Tables of the engine's own catalogue, which others do not have.
const CATALOGUES: &[&str] = &["pg_", "sqlite_", "information_schema", "pragma"];

/// A column's type as the migrations say it.
fn types_of_columns(migrations: &[String]) -> BTreeMap<(String, String), Type> {
    let mut types = BTreeMap::new();
    let mut table = String::new();
    for line in migrations.iter().flat_map(|text| text.lines()) {
        if let Some(rest) = line.strip_prefix("create table ") {
            table = rest.trim_end_matches(" (").to_owned();
        }
        let mut column = line;
        if let Some((altered, added)) =
            line.strip_prefix("alter table ").and_then(|rest| rest.split_once(" add column "))
        {
            (table, column) = (altered.to_owned(), added);
        }
        let mut words = column.split_whitespace();
        if let (Some(column), Some(kind)) = (words.next(), words.next()) {
            let kind = match kind.trim_end_matches([',', ';']) {
                "bigint" => Type::INT8,
                "bytea" => Type::BYTEA,
                "text" => Type::TEXT,
                _ => continue,
            };
            types.insert((table.clone(), column.to_owned()), kind);
        }
    }
    types
}

fn all() -> Vec<String> {
    let migrations: Vec<_> = migrate::postgres_texts().map(|(_, text)| text).collect();
    let types = types_of_columns(&migrations);
    let mut all = crate::statements();
    all.extend(super::connection::statements());
    for shape in crate::shapes() {
        let version = shape.versioned.then_some("version");
        let columns = shape.columns.iter().copied().chain(version);
        let types: Vec<_> =
            columns.map(|column| &types[&(shape.table.to_owned(), column.to_owned())]).collect();
        all.extend(Texts::new(shape, &types).expect("types of migrations").all());
    }
    for text in migrations {
        let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
        let text = lines.collect::<Vec<_>>().join(" ");
        let statements = text.split(';').map(|sql| sql.split_whitespace().collect::<Vec<_>>());
        all.extend(statements.filter(|words| !words.is_empty()).map(|words| words.join(" ")));
    }
    all
}

/// The statement in lower case and without what stands in quotes.
fn plain(sql: &str) -> String {
    let outside = sql.split('\'').step_by(2).collect::<Vec<_>>().join("''");
    outside.to_lowercase().replace("\"c\"", "")
}

fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// What is wrong with a statement.
fn objections(sql: &str) -> Vec<String> {
    let sql = plain(sql);
    let mut objections = Vec::new();
    if !BEGINNINGS.iter().any(|beginning| sql.starts_with(beginning)) {
        objections.push("it begins like nothing that is allowed".to_owned());
    }
    if sql.starts_with("alter table ") && !sql.contains(" add column ") {
        objections.push("it changes what a table has, and not only adds to it".to_owned());
    }
    objections.extend(
        words(&sql).filter(|word| NOWHERE.contains(word)).map(|word| format!("it says {word}")),
    );
    objections.extend(
        CATALOGUES
            .iter()
            .filter(|name| sql.contains(**name))
            .map(|name| format!("{name} is asked")),
    );
    let names_columns = sql.starts_with("insert into ") || sql.starts_with("create ");
    for (before, _) in sql.match_indices('(').map(|(at, _)| (&sql[..at], at)) {
        let is_spaced = before.ends_with(' ');
        let Some(word) = words(before.trim_end()).last() else { continue };
        let is_word = before.trim_end().ends_with(word);
        // `insert into t (a, b)` and `create index i on t (a, b)` have brackets behind a name.
        let is_allowed = BEFORE_BRACKETS.contains(&word) || (names_columns && is_spaced);
        if is_word && !is_allowed {
            objections.push(format!("{word}( is called"));
        }
    }
    objections
}

#[test]
fn every_statement_is_portable() {
    let all = all();
    assert!(all.len() > 100, "{} statements", all.len());
    let wrong: Vec<_> = all
        .iter()
        .map(|sql| (sql, objections(sql)))
        .filter(|(_, objections)| !objections.is_empty())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_not_portable_is_named() {
    for sql in [
        "listen payments",
        "select pg_advisory_xact_lock($1)",
        "select nextval('numbers')",
        "select id from transactions where at < statement_timestamp()",
        "select id from timers order by gen_salt($1) limit 1",
        "create trigger told after insert on events execute function tell()",
        "create table t (id bigserial primary key, at int default nextval('s'))",
        "alter table events alter column at type text",
        "lock table write_lock in exclusive mode",
        "copy events from stdin",
        "select rowid from events",
    ] {
        assert!(!objections(sql).is_empty(), "{sql}");
    }
}
