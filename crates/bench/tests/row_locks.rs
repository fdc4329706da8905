//! The yardstick does what it is compared with for: its books balance after real load.

use std::time::Duration;

use bench::load::{self, Pace, Phase};
use bench::postgres::{blocking, connect};
use bench::row_locks::{Booked, RowLocks};
use testbed::postgres::Database;

/// Some load of the yardstick: how many payments its clients counted, and what the tables say.
fn pay<const N: usize>(booked: Booked, questions: [&str; N]) -> (i64, [i64; N]) {
    let database = Database::fresh();
    let row_locks = RowLocks::set_up(&database.url()).expect("tables");
    let phase = Phase {
        sessions: 8,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(300),
        pace: Pace::Closed,
    };
    let outcome = load::run(&phase, async |_| row_locks.open(booked).await).expect("load");
    let counts = blocking(async {
        let client = connect(&database.url()).await?;
        let mut counts = [0; N];
        for (count, sql) in counts.iter_mut().zip(questions) {
            *count = client.query_one(sql, &[]).await?.get::<_, i64>(0);
        }
        Ok(counts)
    });
    (i64::try_from(outcome.all).expect("a small number"), counts.expect("counts"))
}

#[test]
fn payments_under_row_locks_are_all_there_and_balance() {
    let questions = [
        "select count(*) from transactions where not settled",
        "select count(*) from idempotency",
        "select count(*) from outbox",
        "select count(*) / 2 from entries",
        "select balance / 100 from accounts where id = 2",
        "select posted from accounts where id = 2",
        "select coalesce(sum(amount), 0)::bigint from entries",
    ];
    let (all, counts) = pay(Booked::Accepted, questions);
    assert_eq!(counts, [all, all, all, all, all, 0, 0]);
}

#[test]
fn payments_that_are_settled_under_row_locks_are_posted_too() {
    let questions = [
        "select count(*) from transactions where settled",
        "select count(*) / 2 from outbox",
        "select balance / 100 from accounts where id = 2",
        "select posted / 100 from accounts where id = 2",
        "select -posted / 100 from accounts where id = 1",
    ];
    let (all, counts) = pay(Booked::Settled, questions);
    assert!(all > 0, "nothing was paid");
    assert_eq!(counts, [all; 5]);
}
