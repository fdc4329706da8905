//! The yardstick does what it is compared with for: its books balance after real load.

use std::time::Duration;

use bench::load::{self, Pace, Phase};
use bench::postgres::{blocking, connect};
use bench::row_locks::RowLocks;
use testbed::postgres::Database;

#[test]
fn payments_under_row_locks_are_all_there_and_balance() {
    let database = Database::fresh();
    let row_locks = RowLocks::set_up(&database.url()).expect("tables");
    let phase = Phase {
        sessions: 8,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(300),
        pace: Pace::Closed,
    };
    let outcome = load::run(&phase, async |_| row_locks.open().await).expect("load");
    let counts = blocking(async {
        let client = connect(&database.url()).await?;
        let mut counts = Vec::new();
        for sql in [
            "select count(*) from transactions",
            "select count(*) from idempotency",
            "select count(*) from outbox",
            "select count(*) / 2 from entries",
            "select balance / 100 from accounts where id = 2",
            "select coalesce(sum(amount), 0)::bigint from entries",
        ] {
            counts.push(client.query_one(sql, &[]).await?.get::<_, i64>(0));
        }
        Ok(counts)
    });
    let all = i64::try_from(outcome.all).expect("a small number");
    assert_eq!(counts.expect("counts"), [all, all, all, all, all, 0]);
}
