//! Asks: is a payment that somebody looked at taken from memory where several servers may change
//! it, and is it then never older than what anybody was told?

use std::time::Duration;

use domain::transaction::Transaction;
use store::Store;
use testbed::postgres::{Database, shared};
use testbed::proxy::Proxy;
use testbed::wait;

use crate::Served;
use crate::support::{change_while_looked_at, transaction_id};

/// Something that only who asks the database for the payment can see, and no server is told of.
const CHANGED_IN_SECRET: &str = "update transactions set platform_customer_id = 'other'";

/// When the newest session began that is not the one which asks.
const NEWEST_SESSION: &str = "select max(backend_start)::text from pg_stat_activity \
    where datname = current_database() and pid <> pg_backend_pid()";

/// How long it takes at most until somebody who looks has noticed that his session is over.
const SESSION_WITHIN: Duration = Duration::from_secs(20);

async fn whose(store: &Store) -> String {
    let payment = store.get::<Transaction>(transaction_id(1)).await.unwrap().unwrap();
    payment.draft().platform_customer_id.clone()
}

/// Looks until the payment comes from memory: a server that has just come does not know yet who
/// else writes, and the next look is the first that leaves something.
async fn looked_at(store: &Store) -> String {
    for _ in 0..3 {
        whose(store).await;
    }
    whose(store).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_looked_at_is_remembered_until_another_server_writes() {
    let database = Database::fresh();
    let [one, other] = [(); 2].map(|()| Served::open(&database.url()));
    one.set_up().await;
    one.pay(1).await.unwrap();
    let remembered = looked_at(&one.store).await;
    database.query(CHANGED_IN_SECRET).unwrap();
    assert_eq!(whose(&one.store).await, remembered);
    one.pay(2).await.unwrap();
    assert_eq!(whose(&one.store).await, remembered);
    other.pay(3).await.unwrap();
    assert_eq!(whose(&one.store).await, "other");
    // Nothing stays that was there before, even if nobody looked before this one wrote again.
    let changed_back = CHANGED_IN_SECRET.replace("other", "third");
    assert_eq!(looked_at(&one.store).await, "other");
    database.query(&changed_back).unwrap();
    other.pay(4).await.unwrap();
    one.pay(5).await.unwrap();
    assert_eq!(whose(&one.store).await, "third");
    for server in [one, other] {
        server.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_looked_at_is_remembered_for_one_session() {
    let database = Database::fresh();
    let proxy = Proxy::start(shared()).unwrap();
    let served = Served::open(&proxy.server().url_of(database.name()));
    served.set_up().await;
    served.pay(1).await.unwrap();
    let remembered = looked_at(&served.store).await;
    database.query(CHANGED_IN_SECRET).unwrap();
    assert_eq!(whose(&served.store).await, remembered);
    // The next session may be on another server. Who looks has one before anybody asks.
    let known = database.query(NEWEST_SESSION).unwrap();
    proxy.cut();
    let look = || Ok((database.query(NEWEST_SESSION)? > known).then_some(()));
    wait::until("a new session", SESSION_WITHIN, look).unwrap();
    assert_eq!(whose(&served.store).await, "other");
    served.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_less_than_was_answered_whichever_server_changed_it() {
    let database = Database::fresh();
    let servers = [(); 2].map(|()| Served::open(&database.url()));
    servers[0].set_up().await;
    change_while_looked_at(&[&servers[0].store, &servers[1].store], 24, 6).await;
    for server in servers {
        server.close();
    }
}
