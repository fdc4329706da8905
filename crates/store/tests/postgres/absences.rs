//! Asks: what happens while the database is not there, and is everything right when it is back?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::customer::Customer;
use domain::transaction::Transaction;
use store::error::StoreError;
use store::leases::{Lease, LeaseName};
use testbed::postgres::{Cluster, Database, Replication, Server, Shutdown};

use crate::support::{Refused, Result, customer, origin, transaction_id};
use crate::{Served, paid_in_the_end};

/// Longer than the pause between two probes of a database that is away.
const ASKED_ON: Duration = Duration::from_secs(1);

/// A request that takes longer has waited for the database.
const AT_ONCE: Duration = Duration::from_millis(900);

#[expect(clippy::disallowed_methods, reason = "how long it takes is what is asked")]
fn now() -> Instant {
    Instant::now()
}

fn is_unavailable(result: &Result) -> bool {
    matches!(result, Err(Refused::Store(StoreError::Unavailable(_))))
}

/// Pays, and is refused each time, while the database is probed more than once.
async fn turned_away_at_once(served: &Served) {
    let start = now();
    while start.elapsed() < ASKED_ON {
        let asked = now();
        let refused = served.pay(2).await;
        assert!(is_unavailable(&refused), "{refused:?}");
        let waited = asked.elapsed();
        assert!(waited < AT_ONCE, "turned away after {waited:?}");
    }
}

/// Freezes a server. The first caller waits for a deadline; from then on, no caller waits.
async fn hang_and_come_back(miss: impl AsyncFnOnce(&Served) -> Result) {
    let cluster = Cluster::start().unwrap();
    let served = Served::open(&cluster.server().url_of("postgres"));
    served.set_up().await;
    served.pay(1).await.unwrap();
    cluster.freeze().unwrap();
    let first = miss(&served).await;
    assert!(is_unavailable(&first), "{first:?}");
    turned_away_at_once(&served).await;
    let read = served.store.read(|_| Ok::<_, StoreError>(())).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    let look = served.store.get::<Lease>(LeaseName::Jobs).await;
    assert!(matches!(look, Err(StoreError::Unavailable(_))), "{look:?}");
    cluster.thaw().unwrap();
    paid_in_the_end(&served, 2).await;
    served.assert_paid(1..3).await;
    served.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_given_up_and_found_again() {
    hang_and_come_back(async |served| served.pay(2).await).await;
}

/// A unit that writes nothing misses the server as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_while_rows_are_read_is_not_taken_for_found() {
    let read = async |served: &Served| {
        let unknown = transaction_id(2);
        let read =
            served.store.write(origin(), move |unit| unit.get::<Transaction>(&unknown).map(drop));
        Ok(read.await?)
    };
    hang_and_come_back(read).await;
}

/// Requests read rows before they write anything, so the writer may not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_at_a_point_read_is_given_up_by_all() {
    let look =
        async |served: &Served| Ok(served.store.get::<Lease>(LeaseName::Jobs).await.map(drop)?);
    hang_and_come_back(look).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_while_only_lists_are_read_is_given_up_by_all() {
    let list = async |served: &Served| {
        let unknown = transaction_id(2);
        let read = served.store.read(move |view| view.get::<Transaction>(&unknown).map(drop));
        Ok(read.await?)
    };
    hang_and_come_back(list).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_is_used_again_without_a_word() {
    let mut cluster = Cluster::start().unwrap();
    let served = Served::open(&cluster.server().url_of("postgres"));
    served.set_up().await;
    for (number, shutdown) in [(1, Shutdown::Fast), (2, Shutdown::Immediate)] {
        served.pay(number).await.unwrap();
        cluster.restart(shutdown).unwrap();
        // Sessions that ended unnoticed are no reason to refuse a request.
        served.assert_paid(1..number + 1).await;
        served.store.get::<Lease>(LeaseName::Jobs).await.unwrap();
    }
    cluster.kill().unwrap();
    let refused = served.pay(3).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    cluster.resume().unwrap();
    paid_in_the_end(&served, 3).await;
    served.assert_paid(1..4).await;
    served.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_a_standby_takes_over() {
    let mut primary = Cluster::start().unwrap();
    let replica = primary.replica(Replication::Synchronous).unwrap();
    let hosts = [primary.server().address(), replica.server().address()].join(",");
    let url = format!("postgres://switchyard@{hosts}/postgres?target_session_attrs=read-write");
    let served = Served::open(&url);
    served.set_up().await;
    for number in 1..20 {
        served.pay(number).await.unwrap();
    }
    primary.kill().unwrap();
    let refused = served.pay(20).await;
    assert!(is_unavailable(&refused), "a standby takes no writes: {refused:?}");
    let primary = replica.promote().unwrap();
    paid_in_the_end(&served, 20).await;
    served.assert_paid(1..21).await;
    served.close();
    drop(primary);
}

/// A standby that is away keeps commits waiting. An operator may end the session or only the wait:
/// the commit must not be acknowledged then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_no_standby_has_is_not_acknowledged() {
    for cut in ["pg_terminate_backend", "pg_cancel_backend"] {
        cut_short(cut).await;
    }
}

/// Cuts short the wait of a commit for a standby, and waits until a commit waits again.
fn cut_wait_short(server: &Server, cut: &str, is_acknowledged: &AtomicBool) {
    let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    let end =
        format!("select count({cut}(pid)) from pg_stat_activity where wait_event = 'SyncRep'");
    while server.query(waits).unwrap() != "1" {}
    // The commit is on the primary's disk and nowhere else.
    assert_eq!(server.query(&end).unwrap(), "1");
    while server.query(waits).unwrap() != "1" {}
    assert!(!is_acknowledged.load(Ordering::SeqCst), "no standby has it");
}

async fn cut_short(cut: &str) {
    let primary = Cluster::start().unwrap();
    let mut replica = primary.replica(Replication::Synchronous).unwrap();
    let served = Served::open(&primary.server().url_of("postgres"));
    served.set_up().await;
    replica.stop(Shutdown::Fast).unwrap();
    let is_paid = Arc::new(AtomicBool::new(false));
    let pay = async {
        let paid = served.pay(1).await;
        is_paid.store(true, Ordering::SeqCst);
        paid
    };
    let is_acknowledged = Arc::clone(&is_paid);
    let interrupt = async {
        let (server, cut) = (primary.server().clone(), cut.to_owned());
        tokio::task::spawn_blocking(move || {
            cut_wait_short(&server, &cut, &is_acknowledged);
            replica.resume().unwrap();
            replica
        })
        .await
        .unwrap()
    };
    let (paid, _replica) = tokio::join!(pay, interrupt);
    paid.unwrap();
    served.assert_paid(1..2).await;
    served.close();
}

/// As the server ends a transaction that computes for longer than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_while_units_compute_acknowledges_none_of_them() {
    let database = Database::fresh();
    let served = Served::open(&database.url());
    served.set_up().await;
    let other = served.pay(1);
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and state = 'idle in transaction'";
    let ended = Arc::new(AtomicBool::new(false));
    let computes = served.store.write(origin(), {
        let (server, name) = (database.server().clone(), database.name().to_owned());
        let ended = Arc::clone(&ended);
        move |unit| {
            unit.put(customer(2, 1));
            if !ended.swap(true, Ordering::SeqCst) {
                assert_eq!(server.query_in(&name, end).unwrap(), "1");
            }
            Ok::<_, StoreError>(())
        }
    });
    let (other, computed) = tokio::join!(other, computes);
    assert!(matches!(computed, Err(StoreError::Unavailable(_))), "{computed:?}");
    assert!(other.is_ok() || is_unavailable(&other), "{other:?}");
    paid_in_the_end(&served, 2).await;
    let read = served.store.get::<Customer>(customer(2, 1).id).await.unwrap();
    assert!(read.is_none(), "it was never committed");
    served.close();
}
