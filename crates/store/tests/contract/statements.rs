//! Asks: does the engine take every statement, are parameters numbered as every engine counts, and
//! do lists read no more than they show?

use std::collections::BTreeSet;

use crate::support::keyring;
use crate::{Provider, open};

pub async fn the_engine_accepts_every_statement<P: Provider>() {
    let provider = open::<P>().close();
    let mut connection = provider.engine().prepare(&keyring()).unwrap();
    for sql in store::statements(P::IS_EMBEDDED) {
        if let Err(error) = connection.prepare(&sql) {
            panic!("{sql}: {error}");
        }
    }
    assert!(connection.prepare("select nothing from nowhere").is_err());
}

/// The indexes that lists are read from, but for those of customers: which of two is the better one
/// depends on how many rows there are.
const OF_LISTS: [&str; 18] = [
    "deliveries_by_platform",
    "deliveries_by_resource",
    "external_accounts_by_owner",
    "external_accounts_by_platform",
    "quotes_by_destination_lasting",
    "quotes_by_destination_passing",
    "quotes_by_own_account_lasting",
    "quotes_by_own_account_passing",
    "quotes_by_payer_lasting",
    "quotes_by_payer_passing",
    "quotes_by_platform",
    "tokens_by_platform",
    "transactions_by_destination_passing",
    "transactions_by_own_account_passing",
    "transactions_by_own_address_passing",
    "transactions_by_payer_passing",
    "transactions_by_platform",
    "transactions_outgoing_pending",
];

/// What has the payments of an account that do not change any more: the embedded engine has a table
/// of its own for them.
const OF_ACCOUNTS: [&str; 4] = [
    "transactions_by_destination_lasting",
    "transactions_by_own_account_lasting",
    "transactions_by_own_address_lasting",
    "transactions_by_payer_lasting",
];

pub async fn lists_read_one_run_of_an_index_each<P: Provider>() {
    let provider = open::<P>().close();
    let of_accounts = if P::IS_EMBEDDED { &["listed"][..] } else { &OF_ACCOUNTS };
    let of_lists: BTreeSet<_> = OF_LISTS.iter().chain(of_accounts).copied().collect();
    let mut used = BTreeSet::new();
    for sql in store::statements(P::IS_EMBEDDED) {
        let strands = sql.matches(" and id between ").count();
        if strands == 0 || sql.contains("from customers") {
            continue;
        }
        let plan = provider.plan(&sql);
        let steps: Vec<_> = plan.lines().collect();
        let mut runs = 0;
        for (number, step) in steps.iter().enumerate() {
            let words = step.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let Some(index) = { words }.find(|word| of_lists.contains(word)) else { continue };
            // SQLite tells the range in the step itself, PostgreSQL in the next line.
            let next = steps.get(number + 1).copied().unwrap_or_default();
            // Only this one begins with the ids.
            let (here, there) = match index {
                "transactions_outgoing_pending" => ("(id>? AND id<?)", ": ((id >= $"),
                _ => ("AND id>? AND id<?)", "AND (id >= $"),
            };
            let is_range = step.contains(here) || next.contains(there);
            let is_sorted = next.contains("TEMP B-TREE") || plan.contains("->  Sort");
            assert!(is_range && !is_sorted, "{index}: {sql}\n{plan}");
            used.insert(of_lists.get(index).copied());
            runs += 1;
        }
        assert_eq!(runs, strands, "{sql}\n{plan}");
        // Of tallies, several are one term of a sum.
        let mut filters = steps.iter().filter(|step| step.contains("Filter: "));
        assert!(filters.all(|step| step.contains("(facet = ANY")), "{sql}\n{plan}");
    }
    assert!(used.iter().flatten().eq(&of_lists), "{used:?}");
}

/// SQLite numbers `$n` by first appearance, Postgres by the number: they agree only in this order.
#[test]
fn parameters_first_appear_in_order() {
    let statements: BTreeSet<_> = [true, false].into_iter().flat_map(store::statements).collect();
    assert!(statements.len() > 40, "{}", statements.len());
    for sql in statements.into_iter().chain(store::embedded_statements()) {
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
