//! A real PostgreSQL, whole and broken.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::postgres::{Cluster, Database, Replication, Server, Shutdown, shared};

use crate::eventually;

/// Commits a row, in a table that is made when there is none.
fn write(server: &Server, id: u32) {
    server.query("create table if not exists kept (id int primary key)").expect("a table");
    server.query(&format!("insert into kept values ({id})")).expect("a row");
}

fn rows(server: &Server) -> String {
    server.query("select string_agg(id::text, ' ' order by id) from kept").expect("the rows")
}

#[test]
fn each_test_has_an_empty_database_of_its_own() {
    let (one, two) = (Database::fresh(), Database::fresh());
    one.query("create table mine (id int)").expect("a table");
    let count = "select count(*) from pg_class where relname = 'mine'";
    assert_eq!(one.query(count).expect("a count"), "1");
    assert_eq!(two.query(count).expect("a count"), "0");
    assert_eq!(two.url(), format!("{}/{}", shared().url(), two.name()));

    let name = one.name().to_owned();
    let left = format!("select count(*) from pg_database where datname = '{name}'");
    assert_eq!(shared().query(&left).expect("a count"), "1");
    drop(one);
    assert_eq!(shared().query(&left).expect("a count"), "0");
}

#[test]
fn refusals_are_reported() {
    let error = shared().query("select no_such_column").expect_err("there is none");
    assert!(error.to_string().contains("no_such_column"), "{error}");
    let error = Cluster::start_with(&[("no_such_setting", "1")]).expect_err("there is none");
    assert!(format!("{error:#}").contains("no_such_setting"), "{error:#}");
}

#[test]
fn a_cluster_keeps_what_it_acknowledged_through_every_end() {
    let mut cluster = Cluster::start().expect("a cluster");
    let server = cluster.server().clone();
    assert_eq!(server.query("show fsync").expect("a setting"), "on");
    assert_eq!(server.query("show synchronous_commit").expect("a setting"), "on");

    write(&server, 1);
    cluster.kill().expect("killed");
    server.query("select 1").expect_err("no listener");
    cluster.resume().expect("recovers");
    assert!(cluster.log().contains("was not properly shut down"), "{}", cluster.log());

    write(&server, 2);
    cluster.restart(Shutdown::Immediate).expect("restarts");
    write(&server, 3);
    cluster.restart(Shutdown::Fast).expect("restarts");
    assert_eq!(rows(&server), "1 2 3");

    cluster.resume().expect_err("it runs");
    cluster.stop(Shutdown::Fast).expect("stops");
    cluster.kill().expect_err("it does not run");
}

/// How many of 500 commits are gone after their cluster was killed at once, all of them
/// acknowledged.
fn gone_after_a_kill(synchronous_commit: &str) -> usize {
    let mut cluster = Cluster::start().expect("a cluster");
    let server = cluster.server().clone();
    server.query("create table kept (id int)").expect("a table");
    // Nothing flushes them before the kill but what must, however slow this machine is.
    cluster.freeze_wal_writer().expect("it stands still");
    let setting = format!("set synchronous_commit = {synchronous_commit};");
    let commits = (0..500).map(|id| format!("begin; insert into kept values ({id}); commit;"));
    let sql: String = std::iter::once(setting).chain(commits).collect();
    server.query(&sql).expect("all of them are acknowledged");
    cluster.kill().expect("killed");
    cluster.resume().expect("recovers");
    let kept = server.query("select count(*) from kept").expect("a count");
    500 - kept.parse::<usize>().expect("a number")
}

#[test]
fn a_kill_takes_away_what_was_not_flushed_and_only_that() {
    // The control for every test that kills a cluster and finds nothing lost.
    let (on, off) = (gone_after_a_kill("on"), gone_after_a_kill("off"));
    println!("gone of 500 acknowledged commits: {on} with synchronous_commit, {off} without");
    assert_eq!(on, 0);
    assert!(off > 0, "a cluster that is killed loses nothing: such tests show nothing");
}

#[test]
fn a_frozen_server_answers_nobody_until_it_is_thawed() {
    let mut cluster = Cluster::start().expect("a cluster");
    cluster.freeze().expect("freezes");
    // The kernel accepts, the server does not speak.
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.port())).expect("the kernel accepts");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    // The request for encryption: a server that lives answers with one byte.
    let request = [0, 0, 0, 8, 4, 210, 22, 47];
    stream.write_all(&request).expect("the kernel takes it");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect_err("a frozen server says nothing");
    cluster.thaw().expect("thaws");
    stream.set_read_timeout(None).expect("no limit");
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, *b"N");

    cluster.freeze().expect("freezes");
    cluster.kill().expect("a frozen server can be killed");
    cluster.resume().expect("and started again");
}

#[test]
fn a_synchronous_standby_takes_over_with_everything_acknowledged() {
    let mut primary = Cluster::start().expect("a cluster");
    write(primary.server(), 1);
    let mut standby = primary.replica(Replication::Synchronous).expect("a standby");
    write(primary.server(), 2);
    standby.server().query("insert into kept values (0)").expect_err("a standby is read only");

    // Without its standby the primary acknowledges nothing.
    standby.stop(Shutdown::Fast).expect("stops");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| write(primary.server(), 3));
        let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        eventually("the commit waits for the standby", || {
            assert!(!waiting.is_finished(), "acknowledged without the standby");
            primary.server().query(waits).expect("reading needs no standby") == "1"
        });
        standby.resume().expect("resumes");
    });
    primary.kill().expect("fenced");
    let new = standby.promote().expect("promoted");
    write(new.server(), 4);
    assert_eq!(rows(new.server()), "1 2 3 4");
    assert_eq!(new.server().query("select pg_is_in_recovery()").expect("a state"), "f");
}

#[test]
fn an_asynchronous_standby_holds_nobody_up() {
    let primary = Cluster::start().expect("a cluster");
    let mut standby = primary.replica(Replication::Asynchronous).expect("a standby");
    standby.stop(Shutdown::Immediate).expect("stops");
    write(primary.server(), 1);
    assert_eq!(rows(primary.server()), "1");
}

/// Tells a process that it is the one to be killed.
const VICTIM: &str = "TESTBED_VICTIM";

#[test]
fn a_server_goes_with_the_process_that_started_it() {
    if std::env::var_os(VICTIM).is_some() {
        let cluster = Cluster::start().expect("a cluster");
        let folder = cluster.server().query("show data_directory").expect("a folder");
        println!("\nvictim {} {folder}", cluster.port());
        cluster.freeze().expect("freezes");
        // Holds until it is killed: nothing writes to its input.
        std::io::stdin().read_line(&mut String::new()).expect("it is killed before");
        return;
    }
    let this = "postgres::a_server_goes_with_the_process_that_started_it";
    let mut victim = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", this, "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = BufReader::new(victim.stdout.take().expect("piped"));
    let said = output.lines().map(|line| line.expect("text"));
    let said = said.filter_map(|line| line.strip_prefix("victim ").map(str::to_owned)).next();
    let said = said.expect("it started a server");
    let (port, folder) = said.split_once(' ').expect("a port and a folder");
    let address = format!("127.0.0.1:{port}");
    assert!(TcpStream::connect(&address).is_ok(), "it runs");
    victim.kill().expect("killed");
    victim.wait().expect("gone");
    let folder = std::path::Path::new(folder);
    within_seconds("the server is gone", || TcpStream::connect(&address).is_err());
    within_seconds("its folder is gone", || !folder.exists());
}

/// Like [`eventually`], for what can be looked at in no time.
#[expect(clippy::disallowed_methods, reason = "another process does it, in real time")]
fn within_seconds(what: &str, is_so: impl Fn() -> bool) {
    eventually(what, || {
        std::thread::sleep(Duration::from_millis(10));
        is_so()
    });
}
