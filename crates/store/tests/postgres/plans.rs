//! Asks: does the writer thread find rows by their keys, whatever the tables looked like when the
//! server planned its statements?

use std::time::Duration;

use store::error::StoreError;
use store::timers::TimerKind;
use testbed::postgres::Database;
use testbed::wait;

use crate::Served;
use crate::support::*;

/// Tables that payments change.
const CHANGED: &str = "'transactions', 'ledger_accounts', 'postings', 'timers'";

/// Payments of the test. The server plans the first five times for what is asked, and may keep to
/// one plan then.
const PAYMENTS: u128 = 20;

/// How long the server may take to end sessions.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until all sessions have ended, which is when they report their statistics.
fn all_have_ended(database: &Database) {
    let sessions = "select count(*) from pg_stat_activity \
                    where datname = current_database() and pid <> pg_backend_pid()";
    let ended = || Ok((database.query(sessions)?.trim() == "0").then_some(()));
    wait::until("all sessions have ended", PATIENCE, ended).unwrap();
}

/// How often one of these tables was read from one end to the other.
fn scans(database: &Database) -> i64 {
    all_have_ended(database);
    let sum = format!("select sum(seq_scan) from pg_stat_user_tables where relname in ({CHANGED})");
    database.query(&sum).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_read_from_end_to_end_to_change_a_row() {
    let database = Database::fresh();
    let served = Served::open(&database.url());
    served.set_up().await;
    served.close();
    let before = scans(&database);
    let served = Served::open(&database.url());
    for number in 1..=PAYMENTS {
        served.pay(number).await.unwrap();
        let set = served.store.write(origin(), move |unit| {
            unit.set_timer(timer(uuid(number), TimerKind::AskRail, at(1), at(0)));
            Ok::<_, StoreError>(())
        });
        set.await.unwrap();
        let clear = served.store.write(origin(), move |unit| {
            unit.clear_timer((uuid(number), TimerKind::AskRail));
            Ok::<_, StoreError>(())
        });
        clear.await.unwrap();
    }
    served.assert_paid(1..PAYMENTS + 1).await;
    served.close();
    assert_eq!(scans(&database), before);
}
