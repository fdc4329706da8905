//! Asks: what happens while the database is not there, and is everything right when it is back?

use store::error::StoreError;
use store::leases::{Duty, Lease};
use testbed::postgres::{Cluster, Replication, Shutdown};

use crate::support::Refused;
use crate::{Served, paid_in_the_end};

fn is_unavailable(result: &Result<(), Refused>) -> bool {
    matches!(result, Err(Refused::Store(StoreError::Unavailable(_))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_given_up_and_found_again() {
    let cluster = Cluster::start().unwrap();
    let served = Served::open(&cluster.server().url_of("postgres"));
    served.set_up().await;
    served.pay(1).await.unwrap();
    cluster.freeze().unwrap();
    // The first waits for the deadline; from then on nobody waits.
    let first = served.pay(2).await;
    assert!(is_unavailable(&first), "{first:?}");
    for _ in 0..100 {
        let refused = served.pay(2).await;
        assert!(is_unavailable(&refused), "{refused:?}");
    }
    let read = served.store.read(|_| Ok::<_, StoreError>(())).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    let look = served.store.get::<Lease>(Duty::Jobs).await;
    assert!(matches!(look, Err(StoreError::Unavailable(_))), "{look:?}");
    cluster.thaw().unwrap();
    paid_in_the_end(&served, 2).await;
    served.assert_paid(1..3).await;
    served.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_is_used_again_without_a_word() {
    let mut cluster = Cluster::start().unwrap();
    let served = Served::open(&cluster.server().url_of("postgres"));
    served.set_up().await;
    for (number, shutdown) in [(1, Shutdown::Fast), (2, Shutdown::Immediate)] {
        served.pay(number).await.unwrap();
        cluster.restart(shutdown).unwrap();
        // Sessions that ended while nobody looked are no reason to refuse anybody.
        served.assert_paid(1..number + 1).await;
        served.store.get::<Lease>(Duty::Jobs).await.unwrap();
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

/// A standby that is away keeps commits waiting. Whoever cuts them short must not be taken at their
/// word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_no_standby_has_is_not_acknowledged() {
    let primary = Cluster::start().unwrap();
    let mut replica = primary.replica(Replication::Synchronous).unwrap();
    let served = Served::open(&primary.server().url_of("postgres"));
    served.set_up().await;
    replica.stop(Shutdown::Fast).unwrap();
    let pay = served.pay(1);
    let interrupt = async {
        let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
            where wait_event = 'SyncRep'";
        let server = primary.server().clone();
        tokio::task::spawn_blocking(move || {
            while server.query(waits).unwrap() != "1" {}
            // The commit is on the primary's disk and nowhere else.
            assert_eq!(server.query(end).unwrap(), "1");
            while server.query(waits).unwrap() != "1" {}
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
