//! Asks: does the engine take every statement, and are parameters numbered as every engine counts?

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

/// SQLite numbers `$n` by first appearance, Postgres by the number: they agree only in this order.
#[test]
fn parameters_first_appear_in_order() {
    let statements = store::statements();
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
