//! Asks: do several servers see each other's changes, and is a commit whose answer was lost made
//! once?

use std::time::Duration;

use store::PostgresServer;
use store::engine::Engine as _;
use store::error::StoreError;
use store::leases::{Lease, LeaseName};
use testbed::postgres::{Database, shared};
use testbed::proxy::{Chosen, Moment, Proxy};

use crate::support::{at, change_while_read, deposit, event, origin, platform_id, uuid};
use crate::{PAID, Served};

/// A database that two servers use, one of them through a proxy.
struct Pair {
    database: Database,
    proxy: Proxy,
    cut: Served,
    whole: Served,
}

impl Pair {
    async fn new() -> Self {
        let database = Database::fresh();
        let proxy = Proxy::start(shared()).unwrap();
        let cut = Served::open(&proxy.server().url_of(database.name()));
        let whole = Served::open(&database.url());
        cut.set_up().await;
        Self { database, proxy, cut, whole }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_write_one_after_the_other_and_see_what_the_others_left() {
    let pair = Pair::new().await;
    let (one, two) = (&pair.cut, &pair.whole);
    for round in 0..20 {
        // All at once, so that batches of both wait for the lock.
        let numbers = (round * 8 + 1)..(round * 8 + 9);
        let pays = numbers.map(|number| {
            let server = if number % 2 == 0 { one } else { two };
            server.pay(number)
        });
        for paid in futures_util::future::join_all(pays).await {
            paid.unwrap();
        }
    }
    one.assert_paid(1..161).await;
    two.assert_paid(1..161).await;
}

/// Payments that each server gets at once.
const MANY: u128 = 30;

/// Batches of each server, or a few more.
const ROUNDS: u128 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_batches_of_several_nodes_have_every_event_once_and_in_order() {
    let database = Database::fresh();
    let [one, two] = [(); 2].map(|()| Served::open(&database.url()));
    one.set_up().await;
    for round in 0..ROUNDS {
        let pays = (1..=MANY).flat_map(|number| {
            let number = round * 2 * MANY + number;
            [one.pay(number), two.pay(number + MANY)]
        });
        for paid in futures_util::future::join_all(pays).await {
            paid.unwrap();
        }
    }
    let count = ROUNDS * 2 * MANY;
    two.assert_paid(1..count + 1).await;
    let feed = one.store.read(|view| view.feed(platform_id(1), 0, None, u32::MAX)).await.unwrap();
    let ordinals: Vec<_> = feed.events.iter().map(|numbered| numbered.ordinal).collect();
    assert_eq!(ordinals, (1..=i64::try_from(count).unwrap()).collect::<Vec<_>>());
    let mut notified: Vec<_> = feed.events.into_iter().map(|numbered| numbered.event).collect();
    let paid = (1..=count).map(|number| event(&deposit(number, 1, 1, PAID, "USD")));
    let mut paid: Vec<_> = paid.collect();
    notified.sort_by_key(|event| event.resource);
    paid.sort_by_key(|event| event.resource);
    assert_eq!(notified, paid);
    for server in [one, two] {
        server.close();
    }
}

async fn check(moment: Moment) {
    let pair = Pair::new().await;
    // The projector's commits are cut too. A batch that is cut six times in a row is given up.
    pair.proxy.cut_commits(moment, Chosen::Percent { percent: 20, seed: 7 });
    for number in (1..81).step_by(2) {
        let (ours, theirs) = tokio::join!(pair.cut.pay(number), pair.whole.pay(number + 1));
        // Each caller gets the true outcome, with one request.
        assert_eq!((ours, theirs), (Ok(()), Ok(())));
    }
    pair.proxy.spare_commits();
    let counts = pair.proxy.counts();
    let cuts = counts.cut_before + counts.cut_during + counts.cut_after;
    assert!(cuts >= 5, "{counts:?}");
    pair.whole.assert_paid(1..81).await;
    pair.cut.assert_paid(1..81).await;
    pair.cut.close();
    pair.whole.close();
    drop(pair.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_made_again() {
    check(Moment::Before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_under_way_is_waited_for() {
    check(Moment::During).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    check(Moment::After).await;
}

/// Lets no payment be committed before there is a row in `go`.
const SLOW_COMMITS: &str = "create table go (a integer); \
    create function wait() returns trigger language plpgsql as $$ begin \
        while not exists (select from go) loop perform pg_sleep(0.01); end loop; return null; \
    end $$; \
    create constraint trigger wait after insert on transactions deferrable initially deferred \
        for each row execute function wait()";

/// How long a session takes to ask for the lock.
const ASKED_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_commit_of_a_server_is_waited_for_as_well() {
    let database = Database::fresh();
    let proxy = Proxy::start(shared()).unwrap();
    let whole = Served::open(&database.url());
    whole.set_up().await;
    database.query(SLOW_COMMITS).unwrap();
    let cut = Served::open(&proxy.server().url_of(database.name()));
    proxy.cut_commits(Moment::During, Chosen::Next(1));
    let paid = async {
        let paid = cut.pay(1).await;
        (paid, proxy.counts().cut_during)
    };
    let asked = tokio::task::spawn_blocking(move || {
        let waits = "select count(*) from pg_stat_activity \
            where datname = current_database() and wait_event_type = 'Lock'";
        let look = || Ok((database.query(waits)? == "1").then_some(()));
        testbed::wait::until("the lock is asked for", ASKED_WITHIN, look).unwrap();
        database.query("insert into go values (1)").unwrap();
        database
    });
    let (paid, database) = tokio::join!(paid, asked);
    assert_eq!(paid, (Ok(()), 1));
    whole.assert_paid(1..2).await;
    cut.close();
    whole.close();
    drop(database);
}

/// As [`check`], for a server that is alone and has units that wait while a commit is cut.
async fn check_alone(moment: Moment) {
    let pair = Pair::new().await;
    pair.proxy.cut_commits(moment, Chosen::Percent { percent: 20, seed: 7 });
    let pay = async |from: u128| {
        for number in from..from + 20 {
            pair.cut.pay(number).await.unwrap();
        }
    };
    tokio::join!(pay(1), pay(21), pay(41), pay(61));
    pair.proxy.spare_commits();
    let counts = pair.proxy.counts();
    let cuts = counts.cut_before + counts.cut_during + counts.cut_after;
    assert!(cuts >= 5, "{counts:?}");
    pair.whole.assert_paid(1..81).await;
    pair.cut.close();
    pair.whole.close();
    drop(pair.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_behind_a_commit_that_never_arrived_are_made_once() {
    check_alone(Moment::Before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_behind_a_commit_that_is_under_way_wait_for_it() {
    check_alone(Moment::During).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_behind_a_commit_whose_answer_was_lost_are_made_once() {
    check_alone(Moment::After).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_at_once_on_an_empty_database_do_not_collide() {
    let database = Database::fresh();
    let url = database.url();
    let servers: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> =
            (0..6).map(|_| scope.spawn(|| Served::try_open(&url).map(drop))).collect();
        starting.into_iter().map(|server| server.join().unwrap()).collect()
    });
    assert!(servers.iter().all(Result::is_ok), "{servers:?}");
    let server = Served::open(&url);
    server.set_up().await;
    server.pay(1).await.unwrap();
    server.assert_paid(1..2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_renews_its_lease_now_and_then_is_noticed_by_who_wants_to_be_alone() {
    let database = Database::fresh();
    let served = Served::open(&database.url());
    let renew = |second| {
        served.store.write(origin(), move |unit| {
            unit.put(Lease {
                name: LeaseName::Jobs,
                holder: uuid(1),
                epoch: 1,
                until: at(second),
                address: None,
            });
            Ok::<_, StoreError>(())
        })
    };
    renew(0).await.unwrap();
    let engine = PostgresServer::new(&database.url()).unwrap();
    let mut alone = tokio::task::spawn_blocking(move || engine.alone().map(drop));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut alone).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    renew(1).await.unwrap();
    let refused = alone.await.unwrap();
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    served.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_sees_less_than_was_answered_whichever_node_wrote_it() {
    let database = Database::fresh();
    let servers = [(); 2].map(|()| Served::open(&database.url()));
    servers[0].set_up().await;
    change_while_read(&[&servers[0].store, &servers[1].store], 24, 6).await;
    for server in servers {
        server.close();
    }
}
