//! Asks: does the lane find rows by their keys, whatever the tables looked like when the server
//! planned its statements?

use std::ops::RangeInclusive;
use std::time::Duration;

use domain::transaction::{self, StatusReason, Transaction};
use store::error::StoreError;
use store::select::{Order, Page, PageRequest};
use store::timers::TimerKind;
use store::transactions::{Named, TransactionFilter};
use store::unit::Unit;
use testbed::postgres::Database;
use testbed::wait;

use crate::Served;
use crate::support::*;

/// Tables that payments change.
const CHANGED: &str = "'transactions', 'ledger_accounts', 'postings', 'timers', 'tallies'";

/// Payments of the test. The server plans the first five times for what is asked, and may keep to
/// one plan then.
const PAYMENTS: u128 = 20;

/// How long the server may take to end sessions.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until all sessions have ended, which is when they tell what they did.
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
        let set = served.store.write(move |unit| {
            unit.set_timer(timer(uuid(number), TimerKind::AskRail, at(1), at(0)));
            Ok::<_, StoreError>(())
        });
        set.await.unwrap();
        let clear = served.store.write(move |unit| {
            unit.clear_timer((uuid(number), TimerKind::AskRail));
            Ok::<_, StoreError>(())
        });
        clear.await.unwrap();
    }
    served.assert_paid(1..PAYMENTS + 1).await;
    served.close();
    assert_eq!(scans(&database), before);
}

/// Blocks of the index of payments that wait for their rail that were looked at.
fn looked_at(database: &Database) -> i64 {
    all_have_ended(database);
    let sum = "select idx_blks_hit + idx_blks_read from pg_statio_user_indexes \
               where indexrelname = 'transactions_outgoing_pending'";
    database.query(sum).unwrap().trim().parse().unwrap()
}

/// Payments that have waited for their rail leave entries in an index that all accounts share, and
/// the server clears them up when it sees fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_that_have_waited_are_not_looked_at_again() {
    /// Their entries are on some fifty blocks.
    const ENDED: u128 = 3_000;
    /// The new entry, two lists with their numbers and a count, of some blocks each.
    const BLOCKS_MAX: i64 = 30;
    let database = Database::fresh();
    let served = Served::open(&database.url());
    served.set_up().await;
    database.query("alter table transactions set (autovacuum_enabled = off)").unwrap();
    let pay = async |served: &Served, numbers: RangeInclusive<u128>| {
        let pay = move |unit: &mut Unit<'_, '_>| {
            numbers.clone().try_for_each(|number| begin(unit, transfer_out(number, 1, 7, 10)))
        };
        served.store.write(pay).await.unwrap();
    };
    let refuse = async |served: &Served, numbers: RangeInclusive<u128>| {
        let refuse = move |unit: &mut Unit<'_, '_>| {
            let refused = [transaction::Event::Refused(StatusReason::REJECTED_BY_RECEIVER)];
            numbers.clone().try_for_each(|number| advance(unit, number, &refused, at(9_000)))
        };
        served.store.write(refuse).await.unwrap();
    };
    for first in (1..ENDED).step_by(500) {
        let numbers = first..=first + 499;
        pay(&served, numbers.clone()).await;
        refuse(&served, numbers).await;
    }
    served.close();
    // A lane that knows nothing yet counts an account with the first of these ids.
    for number in ENDED + 1..=ENDED + 2 {
        let served = Served::open(&database.url());
        pay(&served, number..=number).await;
        refuse(&served, number..=number).await;
        served.close();
    }
    let before = looked_at(&database);
    let served = Served::open(&database.url());
    // The first has its accounts counted once more.
    for number in ENDED + 3..=ENDED + 4 {
        pay(&served, number..=number).await;
    }
    let account = Some(Named::Account(customer_account(1, "USD").uuid()));
    let of_account = TransactionFilter { source_account: account, ..TransactionFilter::default() };
    for filter in [TransactionFilter::default(), of_account] {
        let page = PageRequest { limit: 20, after: None, order: Order::Descending };
        let list = served.store.read(move |view| view.transactions(platform_id(1), &filter, page));
        let list: Page<Transaction> = list.await.unwrap();
        assert_eq!((list.rows.len(), list.total), (20, ENDED as u64 + 4));
    }
    served.close();
    let looks = looked_at(&database) - before;
    assert!(looks <= BLOCKS_MAX, "{looks} blocks");
}

/// Payments of accounts that their tallies do not count.
const UNCOUNTED: &str = "select count(*) from transactions join tallies \
     on scope = cast('\\x021c' as bytea) || own_account and facet = 131072 and bucket = -1 \
     and id >= decode(lpad(to_hex(rows), 12, '0') || repeat('0', 20), 'hex')";

/// A list counts on the index what the tally of an account does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_account_few_payments_are_left_to_be_counted() {
    /// Payments of the account in one second each.
    const PAYMENTS: u128 = 1_000;
    const AT_ONCE: u128 = 20;
    /// The 256th has it counted, up to some five seconds before.
    const LEFT_MAX: u128 = 255 + 5;
    let database = Database::fresh();
    let served = Served::open(&database.url());
    served.set_up().await;
    let mut most = 0;
    for first in (1..=PAYMENTS).step_by(AT_ONCE as usize) {
        let numbers = first..first + AT_ONCE;
        let pay = move |unit: &mut Unit<'_, '_>| {
            numbers.clone().try_for_each(|number| {
                begin(unit, transfer_out(number, 1, 7, 10))?;
                advance(
                    unit,
                    number,
                    &[transaction::Event::Refused(StatusReason::REJECTED_BY_RECEIVER)],
                    at(9_000),
                )
            })
        };
        served.store.write(pay).await.unwrap();
        most = database.query(UNCOUNTED).unwrap().trim().parse::<u128>().unwrap().max(most);
    }
    served.close();
    assert!((LEFT_MAX - AT_ONCE..=LEFT_MAX).contains(&most), "{most} were left");
}
