//! The proxy passes what it should and breaks what it should.

use std::net::TcpStream;

use testbed::postgres::{Cluster, Database, Replication, shared};
use testbed::proxy::{Chosen, Counts, Moment, Proxy, Traffic};

use crate::eventually;

/// A table to commit into, and a proxy to its server.
struct Stage {
    database: Database,
    proxy: Proxy,
}

impl Stage {
    fn new() -> Self {
        let database = Database::fresh();
        database.query("create table kept (id int primary key)").expect("a table");
        let proxy = Proxy::start(shared()).expect("a proxy");
        Self { database, proxy }
    }

    /// The answer to a client at the proxy that commits a row.
    fn commit(&self, id: u32) -> anyhow::Result<String> {
        let sql = format!("begin; insert into kept values ({id}); commit");
        self.proxy.server().query_in(self.database.name(), &sql)
    }

    /// What is in the table, asked past the proxy.
    fn kept(&self) -> String {
        let sql = "select string_agg(id::text, ' ' order by id) from kept";
        self.database.query(sql).expect("the rows")
    }
}

#[test]
fn a_cut_before_the_commit_leaves_nothing_and_one_after_it_everything() {
    let stage = Stage::new();
    stage.commit(1).expect("passes");
    stage.proxy.cut_commits(Moment::Before, Chosen::Next(1));
    stage.commit(2).expect_err("cut");
    assert_eq!(stage.kept(), "1");
    stage.commit(3).expect("only one was chosen");
    stage.proxy.cut_commits(Moment::After, Chosen::Next(2));
    stage.commit(4).expect_err("cut");
    stage.commit(5).expect_err("cut");
    assert_eq!(stage.kept(), "1 3 4 5");
    stage.proxy.cut_commits(Moment::During, Chosen::Next(1));
    stage.commit(6).expect_err("cut");
    eventually("the server has committed", || stage.kept() == "1 3 4 5 6");
    stage.commit(7).expect("passes");
    let counts = Counts { connections: 7, commits: 7, cut_before: 1, cut_during: 1, cut_after: 2 };
    assert_eq!(stage.proxy.counts(), counts);
}

#[test]
fn a_commit_that_fails_is_not_one_to_cut_after() {
    let stage = Stage::new();
    stage.proxy.cut_commits(Moment::After, Chosen::Next(1));
    stage.commit(1).expect_err("cut");
    stage.proxy.cut_commits(Moment::After, Chosen::Next(1));
    let error = stage.commit(1).expect_err("the key is taken");
    assert!(error.to_string().contains("kept_pkey"), "the client learns why: {error}");
    stage.commit(2).expect_err("now it is cut");
    assert_eq!(stage.kept(), "1 2");
    assert_eq!(stage.proxy.counts().cut_after, 2);
}

#[test]
fn the_same_seed_cuts_the_same_commits() {
    let cut = |seed| {
        let stage = Stage::new();
        stage.proxy.cut_commits(Moment::Before, Chosen::Percent { percent: 50, seed });
        (0..12).map(|id| stage.commit(id).is_err()).collect::<Vec<_>>()
    };
    let first = cut(7);
    assert!(first.contains(&true) && first.contains(&false), "{first:?}");
    assert_eq!(cut(7), first);
}

#[test]
fn connections_are_cut_refused_and_held() {
    let stage = Stage::new();
    let slow = || stage.proxy.server().query_in(stage.database.name(), "select pg_sleep(60)");
    let count = "select count(*) from pg_stat_activity \
                 where datname = current_database() and query like '%pg_sleep%' \
                 and pid <> pg_backend_pid()";
    std::thread::scope(|scope| {
        let slow = scope.spawn(slow);
        eventually("it runs", || stage.database.query(count).expect("a count") == "1");
        stage.proxy.set(Traffic::Refused);
        let error = stage.commit(1).expect_err("refused");
        assert!(error.to_string().contains("refused"), "{error}");
        assert!(!slow.is_finished(), "open connections go on");
        stage.proxy.cut();
        slow.join().expect("a thread").expect_err("cut");
    });
    stage.proxy.set(Traffic::Flows);
    stage.commit(2).expect("flows again");

    stage.proxy.set(Traffic::Held);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| stage.commit(3));
        assert_eq!(stage.kept(), "2");
        assert!(!held.is_finished(), "no answer");
        stage.proxy.set(Traffic::Flows);
        held.join().expect("a thread").expect("goes on");
    });
    assert_eq!(stage.kept(), "2 3");
}

#[test]
fn a_setting_of_a_proxy_holds_for_the_very_next_connection() {
    let proxy = Proxy::start(shared()).expect("a proxy");
    for _ in 0..100 {
        proxy.set(Traffic::Refused);
        TcpStream::connect(proxy.address()).expect_err("refused");
        proxy.set(Traffic::Flows);
        TcpStream::connect(proxy.address()).expect("accepted");
    }
}

#[test]
fn a_proxy_follows_the_primary() {
    let mut primary = Cluster::start().expect("a cluster");
    let proxy = Proxy::start(primary.server()).expect("a proxy");
    proxy.server().query("create table kept (id int)").expect("a table");
    let standby = primary.replica(Replication::Synchronous).expect("a standby");
    proxy.server().query("insert into kept values (1)").expect("a row");
    primary.kill().expect("fenced");
    proxy.server().query("select 1").expect_err("the primary is gone");
    let promoted = standby.promote().expect("promoted");
    proxy.retarget(promoted.server());
    assert_eq!(proxy.server().query("select count(*) from kept").expect("a count"), "1");
}
