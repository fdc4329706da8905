//! Asks: does the engine take every statement, are parameters numbered as every engine counts, and
//! do lists read no more than they show?

use std::collections::BTreeSet;

use crate::support::keyring;
use crate::{Provider, open};

pub async fn the_engine_accepts_every_statement<P: Provider>() {
    let provider = open::<P>().close();
    let mut connection = provider.engine().prepare(&keyring()).unwrap();
    for sql in store::statements() {
        if let Err(error) = connection.prepare(&sql) {
            panic!("{sql}: {error}");
        }
    }
    assert!(connection.prepare("select nothing from nowhere").is_err());
}

/// The indexes that lists are read from, but for those of customers: which of two is the better one
/// depends on how many rows there are.
const OF_LISTS: [&str; 16] = [
    "deliveries_by_kind",
    "deliveries_by_platform",
    "deliveries_by_resource",
    "external_accounts_by_currency",
    "external_accounts_by_owner",
    "external_accounts_by_platform",
    "quotes_by_destination",
    "quotes_by_owner",
    "quotes_by_platform",
    "quotes_by_source",
    "tokens_by_platform",
    "transactions_by_destination",
    "transactions_by_own_address",
    "transactions_by_owner",
    "transactions_by_platform",
    "transactions_by_source",
];

pub async fn lists_read_one_run_of_an_index_each<P: Provider>() {
    let provider = open::<P>().close();
    let of_lists = BTreeSet::from(OF_LISTS);
    let mut used = BTreeSet::new();
    for sql in store::statements() {
        let expected = sql.matches(" and id between ").count();
        if expected == 0 || sql.contains("from customers") {
            continue;
        }
        let plan = provider.plan(&sql);
        let steps: Vec<_> = plan.lines().collect();
        let mut runs = 0;
        for (number, step) in steps.iter().enumerate() {
            let words = step.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let Some(index) = { words }.find(|word| of_lists.contains(word)) else { continue };
            // SQLite names the range in the step itself, PostgreSQL in the next line.
            let next = steps.get(number + 1).copied().unwrap_or_default();
            let is_range = step.contains("AND id>? AND id<?)") || next.contains("AND (id >= $");
            let is_sorted = next.contains("TEMP B-TREE") || plan.contains("->  Sort");
            assert!(is_range && !is_sorted, "{index}: {sql}\n{plan}");
            used.insert(of_lists.get(index).copied());
            runs += 1;
        }
        assert_eq!(runs, expected, "{sql}\n{plan}");
        assert!(!plan.contains("Filter: "), "{sql}\n{plan}");
    }
    assert!(used.iter().flatten().eq(&of_lists), "{used:?}");
}

/// SQLite numbers `$n` by first appearance, Postgres by the number: they agree only in this order.
#[test]
fn parameters_first_appear_in_order() {
    let statements = BTreeSet::from_iter(store::statements());
    assert!(statements.len() > 40, "{}", statements.len());
    for sql in statements {
        let mut seen = 0;
        for part in sql.split('$').skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let number: u32 = digits.parse().unwrap_or_else(|_| panic!("{sql}"));
            assert!((1..=seen + 1).contains(&number), "${number} after ${seen} in {sql}");
            seen = seen.max(number);
        }
        assert!(!sql.contains('?'), "{sql}");
    }
}

/// Words that no statement may have: they name a clock, chance, or a mechanism that distributed
/// engines with PostgreSQL's wire protocol lack.
const NOT_PORTABLE: [&str; 22] = [
    "advisory",
    "autoincrement",
    "ctid",
    "deferrable",
    "function",
    "gen_random_uuid",
    "information_schema",
    "lateral",
    "listen",
    "lock",
    "nextval",
    "notify",
    "now",
    "nowait",
    "random",
    "rowid",
    "sequence",
    "serial",
    "temp",
    "trigger",
    "vacuum",
    "xmin",
];

/// The first word of a statement, outside of texts, that is not portable.
fn not_portable(sql: &str) -> Option<&str> {
    let outside = sql.split('\'').step_by(2);
    let mut words = outside
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty());
    words.find(|word| {
        NOT_PORTABLE.contains(word) || word.starts_with("pg_") || word.starts_with("sqlite_")
    })
}

#[test]
fn every_statement_is_portable() {
    let migrations = concat!(
        include_str!("../../migrations/journal/0001_initial.sql"),
        include_str!("../../migrations/tables/0001_initial.sql"),
    );
    let lines = migrations.lines().map(|line| line.split("--").next().unwrap_or_default());
    let migration = lines.collect::<Vec<_>>().join("\n");
    for sql in store::statements().into_iter().chain([migration]) {
        assert_eq!(not_portable(&sql), None, "{sql}");
    }
    assert_eq!(not_portable("select pg_advisory_xact_lock($1)"), Some("pg_advisory_xact_lock"));
    assert_eq!(not_portable("select 'lock' from t where rowid = 1"), Some("rowid"));
}
