//! Whatever becomes of servers, connections and databases: no acknowledged change is lost, none is
//! doubled, and work goes on by itself once the fault is over.
//!
//! Real servers of ours on a real PostgreSQL. Clients ask until they know, see
//! [`testbed::recorder`]; in the end everything must have settled, every server must give every
//! answer again byte for byte, the money must add up, and `verify` must find nothing. Each test
//! prints its figures: `cargo nextest run -p switchyard --test faults --no-capture`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance};
use testbed::postgres::{Cluster, Database, Replication, Shutdown};
use testbed::proxy::{Chosen, Counts, Moment, Proxy, Traffic};
use testbed::recorder::{Api, Load, Outcome, Recorder, Report};
use tokio::task::JoinSet;

/// All servers of an installation have the same.
const SECRET_KEY: &str = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e";

/// Clients that send at once.
const CLIENTS: usize = 8;

/// Whatever should happen has happened by then, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that cannot tell when it changes.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// How often each fault happens; `SWITCHYARD_FAULT_ROUNDS` multiplies it.
fn rounds(few: u64) -> u64 {
    let factor = std::env::var("SWITCHYARD_FAULT_ROUNDS").ok();
    few * factor.and_then(|text| text.parse::<u64>().ok()).unwrap_or(1)
}

#[expect(clippy::disallowed_methods, reason = "how long recovery takes is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "other processes take real time")]
async fn pause() {
    tokio::time::sleep(LOOK_AGAIN_AFTER).await;
}

/// Waits until it is so, and tells how long that took.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<Duration> {
    let start = now();
    while !is_so().await? {
        ensure!(start.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        pause().await;
    }
    Ok(start.elapsed())
}

/// A server looks for its database several times a second.
const RECOVERED_WITHIN: Duration = Duration::from_secs(3);

fn installation(database_url: &str) -> Installation {
    let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), database_url);
    installation.with("SWITCHYARD_SECRET_KEY", SECRET_KEY)
}

/// Servers on one database, and what their clients know.
struct Site {
    installation: Installation,
    servers: Vec<Instance>,
    recorder: Arc<Recorder>,
    /// For what is asked beside the API.
    http: reqwest::Client,
}

impl Site {
    /// One server on a new database.
    async fn open(database_url: &str) -> Result<Self> {
        let installation = installation(database_url);
        let server = installation.start()?;
        Self::of(installation, vec![server]).await
    }

    /// These servers, once they are ready.
    async fn of(installation: Installation, servers: Vec<Instance>) -> Result<Self> {
        let bases: Vec<_> = servers.iter().map(Instance::base).collect();
        let api = Api::new(&bases)?;
        api.ready().await?;
        let (recorder, http) = (Recorder::set_up(api).await?, testbed::recorder::http(PATIENCE)?);
        Ok(Self { installation, servers, recorder, http })
    }

    /// A figure of the first server; 0 if nothing has counted yet.
    async fn metric(&self, name: &str) -> Result<u64> {
        let url = format!("{}/metrics", self.servers[0].base());
        let text = self.http.get(&url).send().await?.text().await?;
        let count = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        count.map_or(Ok(0), |count| count.parse().with_context(|| format!("reading {name}")))
    }

    fn load(&self) -> Load {
        Load::start(&self.recorder, CLIENTS)
    }

    /// How long it takes from now on, when the database is ready, until a client is answered.
    async fn answers_again(&self) -> Result<Duration> {
        let start = now();
        self.recorder.more(1).await?;
        let recovery = start.elapsed();
        ensure!(recovery < RECOVERED_WITHIN, "the database was back for {recovery:.1?}");
        Ok(recovery)
    }

    /// Stops the clients and makes sure that all is as they were answered.
    async fn is_right(&self, load: Load) -> Result<Report> {
        load.stop().await?;
        self.recorder.settled().await?;
        let report = self.recorder.check().await?;
        self.installation.verify()?;
        Ok(report)
    }
}

/// A session of another program.
async fn session(database: &Database) -> Result<tokio_postgres::Client> {
    let url = database.url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    // It ends with its client.
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_sealed_anew_beside_two_servers_under_load() -> Result<()> {
    let database = Database::fresh();
    let old = installation(&database.url());
    let first = old.start()?;
    Api::new(&[first.base()])?.ready().await?;
    let second = old.start()?;
    let mut site = Site::of(old.clone(), vec![first, second]).await?;
    let load = site.load();
    site.recorder.more(20).await?;
    let folder = tempfile::TempDir::new()?;
    let key_file = folder.path().join("new.key").display().to_string();
    let file = key_file.clone();
    let rotate = move || old.run(&["key", "rotate", "--reencrypt", "--new-key-file", &file]);
    let said = tokio::task::spawn_blocking(rotate).await??;
    ensure!(said.contains("Everything is sealed with a new secret"), "{said}");
    site.recorder.more(20).await?;
    // The old key opens nothing any more, and servers that have it go on until they end.
    ensure!(site.installation.verify().is_err(), "the old key opens the database");
    let binary = env!("CARGO_BIN_EXE_switchyard");
    site.installation =
        Installation::new(binary, &database.url()).with("SWITCHYARD_KEY_FILE", &key_file);
    site.installation.verify()?;
    let third = site.installation.start()?;
    Api::new(&[third.base()])?.ready().await?;
    let report = site.is_right(load).await?;
    // Servers without clients learn of a new secret too.
    let next = folder.path().join("next.key").display().to_string();
    let command = site.installation.clone();
    let rotate = move || command.run(&["key", "rotate", "--reencrypt", "--new-key-file", &next]);
    tokio::task::spawn_blocking(rotate).await??;
    site.recorder.check().await?;
    println!("sealed anew beside two servers: {report}");
    Ok(())
}

/// A server that is killed holds the lease for a few seconds more; then another does what is due.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);

/// The same, with a margin, until clients under load have as many answers as show it.
const ANSWERED_AGAIN_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_the_one_leader_is_killed_again_and_again() -> Result<()> {
    let database = Database::fresh();
    let installation = installation(&database.url());
    let first = installation.start()?;
    Api::new(&[first.base()])?.ready().await?;
    let session = session(&database).await?;
    let holder = async || -> Result<String> {
        let sql = "select encode(holder, 'hex') from leases where name = 'JOBS'";
        Ok(session.query_opt(sql, &[]).await?.map_or_else(String::new, |row| row.get(0)))
    };
    until("the only server leads", async || Ok(!holder().await?.is_empty())).await?;
    let second = installation.start()?;
    let mut site = Site::of(installation, vec![first, second]).await?;

    let load = site.load();
    // A server that starts draws a new name, so only that of the longest at work is known.
    let (mut known, mut known_name) = (0, holder().await?);
    let mut takeovers = Vec::new();
    for _ in 0..rounds(3) {
        site.recorder.more(60).await?;
        let name = holder().await?;
        let victim = if name == known_name { known } else { 1 - known };
        site.servers[victim].kill()?;
        let killed = now();
        until("the other server takes over", async || Ok(holder().await? != name)).await?;
        let taken_over = killed.elapsed();
        (known, known_name) = (1 - victim, holder().await?);
        let survivor = Api::new(&[site.servers[known].base()])?;
        let settled = "/transactions?status=COMPLETED&type=OUTGOING&";
        let before = survivor.total(settled).await?;
        let more = async || Ok(survivor.total(settled).await? > before);
        until("the other server settles payments", more).await?;
        takeovers.push((taken_over, killed.elapsed()));
        site.servers[victim].resume()?;
        Api::new(&[site.servers[victim].base()])?.ready().await?;
    }
    let report = site.is_right(load).await?;
    for (taken_over, settled) in takeovers {
        println!("taken over after {taken_over:.1?}, payments settle after {settled:.1?}");
        assert!(taken_over < TAKEN_OVER_WITHIN, "the lease is kept for too long");
    }
    println!("two servers: {report}");
    Ok(())
}

/// The leader, and another server that all clients use, which forwards their changing requests.
struct Forwarding {
    leader: Instance,
    site: Site,
}

impl Forwarding {
    async fn open(database: &Database) -> Result<Self> {
        let installation = installation(&database.url());
        let leader = installation.start()?;
        Api::new(&[leader.base()])?.ready().await?;
        let has_lease = async || {
            Ok(database.query("select count(*) from leases where address is not null")? == "1")
        };
        until("the only server leads", has_lease).await?;
        let other = installation.start()?;
        let site = Site::of(installation, vec![other]).await?;
        Ok(Self { leader, site })
    }

    /// How many requests were forwarded with this outcome.
    async fn forwarded(&self, outcome: &str) -> Result<u64> {
        let name = format!("switchyard_forwarded_requests_total{{outcome=\"{outcome}\"}}");
        self.site.metric(&name).await
    }

    /// Waits until clients' changes are forwarded.
    async fn forwards(&self) -> Result<()> {
        let forwards = async || Ok(self.forwarded("answered").await? > 100);
        until("changing requests are forwarded", forwards).await.map(drop)
    }

    /// How many requests were executed where they arrived.
    async fn executed_here(&self) -> Result<u64> {
        Ok(self.forwarded("again").await? + self.forwarded("here").await?)
    }
}

/// `fail` has something happen to the leader, under load, and `recover` undoes it. What the
/// clients wait for is how long there is no answer.
async fn with_a_failing_leader(
    fail: impl FnOnce(&mut Instance) -> Result<()>,
    recover: impl FnOnce(&mut Instance) -> Result<()>,
) -> Result<()> {
    let database = Database::fresh();
    let mut forwarding = Forwarding::open(&database).await?;
    let load = forwarding.site.load();
    forwarding.forwards().await?;
    fail(&mut forwarding.leader)?;
    let failed = now();
    forwarding.site.recorder.more(20).await?;
    let answered_again = failed.elapsed();
    recover(&mut forwarding.leader)?;
    forwarding.site.recorder.more(60).await?;
    let here = forwarding.executed_here().await?;
    let report = forwarding.site.is_right(load).await?;
    println!("answered again after {answered_again:.1?}, {here} executed here: {report}");
    assert!(answered_again < ANSWERED_AGAIN_WITHIN, "the other server waits for too long");
    assert!(here > 0, "nothing was under way when it happened");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_freezes_with_the_write_lock_is_replaced_within_five_seconds() -> Result<()> {
    let database = Database::fresh();
    let forwarding = Forwarding::open(&database).await?;
    let session = session(&database).await?;
    let load = forwarding.site.load();
    forwarding.forwards().await?;
    let frozen = async || -> Result<bool> {
        // The holder of the lock waits for its client, which does not go on.
        let sql = "select exists (select from pg_stat_activity a join pg_locks l using (pid) \
            where a.datname = current_database() and a.state = 'idle in transaction' \
            and l.relation = 'write_lock'::regclass and l.mode = 'RowShareLock')";
        Ok(session.query_one(sql, &[]).await?.get(0))
    };
    let has_lock = async || {
        forwarding.leader.freeze()?;
        let has_lock = frozen().await? && frozen().await?;
        if !has_lock {
            forwarding.leader.thaw()?;
        }
        Ok(has_lock)
    };
    until("the leader freezes with the lock", has_lock).await?;
    let start = now();
    let leader = "select encode(holder, 'hex') from leases where name = 'JOBS'";
    let before = database.query(leader)?;
    let probe = forwarding.site.recorder.transfer("probe".to_owned());
    forwarding.site.recorder.ask(&probe).await?;
    let answered = start.elapsed();
    until("the other server leads", async || Ok(database.query(leader)? != before)).await?;
    let taken_over = start.elapsed();
    forwarding.leader.thaw()?;
    forwarding.site.recorder.more(60).await?;
    let report = forwarding.site.is_right(load).await?;
    println!(
        "frozen with the lock: answers after {answered:.1?}, leads after {taken_over:.1?}; {report}"
    );
    assert!(
        answered < TAKEN_OVER_WITHIN && taken_over < TAKEN_OVER_WITHIN,
        "it waits for too long"
    );
    Ok(())
}

/// The same with clients who send no idempotency key and never ask again: each is to be answered,
/// and what it asked for is to be there once.
async fn without_keys_with_a_failing_leader(
    fail: impl FnOnce(&mut Instance) -> Result<()>,
    recover: impl FnOnce(&mut Instance) -> Result<()>,
) -> Result<()> {
    let database = Database::fresh();
    let mut forwarding = Forwarding::open(&database).await?;
    let (made, is_over) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let recorder = Arc::clone(&forwarding.site.recorder);
        let (made, is_over) = (Arc::clone(&made), Arc::clone(&is_over));
        clients.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let outcome = recorder.api().ask(&recorder.transfer(String::new())).await;
                match outcome {
                    Outcome::Known((201, _)) => drop(made.fetch_add(1, Ordering::Relaxed)),
                    // It was not made, and the count below shows whether that is true.
                    Outcome::Unavailable(503) => pause().await,
                    outcome => anyhow::bail!("its outcome is unknown: {outcome:?}"),
                }
            }
            Ok(())
        });
    }
    let more = async |more| {
        let enough = made.load(Ordering::Relaxed) + more;
        until("payments are made", async || Ok(made.load(Ordering::Relaxed) >= enough)).await
    };
    forwarding.forwards().await?;
    fail(&mut forwarding.leader)?;
    let answered_again = more(20).await?;
    recover(&mut forwarding.leader)?;
    more(60).await?;
    let here = forwarding.executed_here().await?;
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.context("a client panicked")??;
    }
    println!("answered again after {answered_again:.1?}, {here} executed here");
    assert!(here > 0, "nothing was under way when it happened");
    let recorder = &forwarding.site.recorder;
    recorder.settled().await?;
    let found = recorder.api().total("/transactions?type=OUTGOING&").await?;
    assert_eq!(found, made.load(Ordering::Relaxed), "what is there and what was answered");
    forwarding.site.installation.verify()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_passed_on_to_a_server_that_is_killed_is_answered_all_the_same() -> Result<()> {
    with_a_failing_leader(Instance::kill, Instance::resume).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_passed_on_to_a_server_that_hangs_is_answered_all_the_same() -> Result<()> {
    with_a_failing_leader(|server| server.freeze(), |server| server.thaw()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_passed_on_without_a_key_to_a_server_that_is_killed_is_made_once() -> Result<()> {
    without_keys_with_a_failing_leader(Instance::kill, Instance::resume).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_passed_on_without_a_key_to_a_server_that_hangs_is_made_once() -> Result<()> {
    without_keys_with_a_failing_leader(|server| server.freeze(), |server| server.thaw()).await
}

const MOMENTS: [Moment; 3] = [Moment::Before, Moment::During, Moment::After];

fn cuts(counts: Counts, moment: Moment) -> u64 {
    match moment {
        Moment::Before => counts.cut_before,
        Moment::During => counts.cut_during,
        Moment::After => counts.cut_after,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_at_a_commit_now_and_then_is_no_clients_concern() -> Result<()> {
    let database = Database::fresh();
    let proxy = Proxy::start(database.server())?;
    let site = Site::open(&proxy.server().url_of(database.name())).await?;
    let load = site.load();
    for moment in MOMENTS {
        for _ in 0..rounds(8) {
            let before = cuts(proxy.counts(), moment);
            proxy.cut_commits(moment, Chosen::Next(1));
            until("a commit is cut", async || Ok(cuts(proxy.counts(), moment) > before)).await?;
            // Each request of the batch that was cut has its answer by then.
            site.recorder.more(2 * CLIENTS as u64).await?;
        }
    }
    let counts = proxy.counts();
    let report = site.is_right(load).await?;
    println!("single cuts: {counts:?}; {report}");
    assert_eq!((report.lost, report.unavailable), (0, 0), "a client had to ask again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_at_many_commits_leave_one_true_answer() -> Result<()> {
    let database = Database::fresh();
    let proxy = Proxy::start(database.server())?;
    let site = Site::open(&proxy.server().url_of(database.name())).await?;
    let load = site.load();
    for (moment, seed) in MOMENTS.into_iter().zip(1..) {
        let enough = cuts(proxy.counts(), moment) + rounds(12);
        proxy.cut_commits(moment, Chosen::Percent { percent: 40, seed });
        until("commits are cut", async || Ok(cuts(proxy.counts(), moment) >= enough)).await?;
    }
    proxy.spare_commits();
    let counts = proxy.counts();
    let report = site.is_right(load).await?;
    println!("many cuts: {counts:?}; {report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_and_restarted_under_load_keeps_every_promise() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let database = Database::new(cluster.server())?;
    let site = Site::open(&database.url()).await?;
    let load = site.load();
    let mut recoveries = Vec::new();
    for round in 0..rounds(2) {
        for shutdown in [None, Some(Shutdown::Fast), Some(Shutdown::Immediate)] {
            site.recorder.more(30 + (round * 37) % 101).await?;
            match shutdown {
                None => cluster.kill()?,
                Some(shutdown) => cluster.stop(shutdown)?,
            }
            cluster.resume()?;
            recoveries.push((shutdown, site.answers_again().await?));
        }
    }
    let report = site.is_right(load).await?;
    assert_eq!(site.metric(MISSING_COMMITS).await?, 0, "nothing is missing");
    for (shutdown, recovery) in recoveries {
        let fault = shutdown.map_or("kill -9".to_owned(), |shutdown| format!("{shutdown:?} stop"));
        println!("{fault}: answers {recovery:.0?} after the database is ready");
    }
    println!("restarts of the database: {report}");
    Ok(())
}

/// A heartbeat looks at the tables twice a second.
async fn readiness_is(site: &Site, status: u16, reason: &str) -> Result<()> {
    let url = format!("{}/readyz", site.servers[0].base());
    until(&format!("/readyz is {status}"), async || {
        let answer = site.http.get(&url).send().await?;
        let found = answer.status().as_u16();
        Ok(found == status && answer.text().await?.contains(reason))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_lost_under_a_running_server_is_noticed() -> Result<()> {
    let database = Database::fresh();
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let installation = installation(&database.url()).logging_to(&log);
    let server = installation.start()?;
    let site = Site::of(installation, vec![server]).await?;
    readiness_is(&site, 200, "ready").await?;
    for (lost, found) in [
        ("alter table quotes rename to lost", "alter table lost rename to quotes"),
        (
            "alter table timers rename column due_at to lost",
            "alter table timers rename column lost to due_at",
        ),
    ] {
        database.query(lost)?;
        readiness_is(&site, 503, "lacks a table or a column").await?;
        database.query(found)?;
        readiness_is(&site, 200, "ready").await?;
    }
    let said = std::fs::read_to_string(&log)?;
    assert!(said.contains("the database lacks a table or a column: restore it"), "{said}");
    assert!(said.contains("the database has all its tables again"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_replaced_under_a_running_server_gets_no_payment() -> Result<()> {
    let database = Database::fresh();
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let installation = installation(&database.url()).logging_to(&log);
    let server = installation.start()?;
    let site = Site::of(installation, vec![server]).await?;
    let load = site.load();
    site.recorder.more(50).await?;
    let (own, away) = (database.name(), format!("{}_away", database.name()));
    let put_away = |name: &str, other: &str| -> Result<()> {
        database.server().query(&format!("alter database {name} with allow_connections false"))?;
        database.server().query(&format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
        ))?;
        database.server().query(&format!("alter database {name} rename to {other}"))?;
        Ok(())
    };
    put_away(own, &away)?;
    // It is not there, and then there is an empty one under its name.
    let url = format!("{}/2025-10-13/config", site.servers[0].base());
    for is_there in [false, true] {
        if is_there {
            database.server().query(&format!("create database {own}"))?;
        }
        readiness_is(&site, 503, "the database cannot be").await?;
        let (user, password) = (CLIENT_ID, Some(CLIENT_SECRET));
        let answer = site.http.get(&url).basic_auth(user, password).send().await?;
        assert_eq!(answer.status(), 503);
    }
    let said = std::fs::read_to_string(&log)?;
    assert!(said.contains("database unreachable"), "{said}");
    put_away(own, &format!("{own}_empty"))?;
    database.server().query(&format!("drop database {own}_empty"))?;
    database.server().query(&format!("alter database {away} rename to {own}"))?;
    database.server().query(&format!("alter database {own} with allow_connections true"))?;
    readiness_is(&site, 200, "ready").await?;
    site.answers_again().await?;
    let report = site.is_right(load).await?;
    assert_eq!(report.lost, 0, "{report}");
    Ok(())
}

/// How long the database is frozen after it was noticed: longer than any deadline, so that no later
/// state of a server is left out.
const FROZEN_ON: Duration = Duration::from_secs(9);

/// A request that is turned away costs nothing but processor time.
const REFUSED_WITHIN: Duration = Duration::from_millis(100);

/// Shorter than any deadline: a request that takes longer has waited for the database.
const REFUSED_WITHIN_MAX: Duration = Duration::from_secs(1);

/// Requests that come before it is noticed that the database is frozen.
const EARLY: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_database_is_noticed_and_requests_are_refused_quickly() -> Result<()> {
    let cluster = Cluster::start()?;
    let database = Database::new(cluster.server())?;
    let site = Site::open(&database.url()).await?;
    let http = testbed::recorder::http(PATIENCE)?;
    let status = async |path: &str| -> Result<u16> {
        let url = format!("{}{path}", site.servers[0].base());
        Ok(http.get(url).send().await?.status().as_u16())
    };
    let load = site.load();
    site.recorder.more(40).await?;

    cluster.freeze()?;
    // These wait for rows, or for one another: what the server remembers of their client is too old
    // after the first of them.
    let mut early = JoinSet::new();
    for _ in 0..EARLY {
        let recorder = Arc::clone(&site.recorder);
        early.spawn(async move { recorder.api().get("/transactions?limit=1").await });
        pause().await;
    }
    let noticed = until("it is not ready", async || Ok(status("/readyz").await? == 503)).await?;
    let probe = site.recorder.transfer("probe".to_owned());
    let mut refusals = Vec::new();
    let start = now();
    while start.elapsed() < FROZEN_ON {
        assert_eq!(status("/healthz").await?, 200, "the process is well");
        assert_eq!(status("/readyz").await?, 503, "the database is frozen");
        let asked = now();
        let outcome = site.recorder.api().ask(&probe).await;
        refusals.push(asked.elapsed());
        assert_eq!(outcome, Outcome::Unavailable(503), "the outcome is uncertain");
        let asked = now();
        let read = site.recorder.api().get("/transactions?limit=1").await;
        refusals.push(asked.elapsed());
        assert!(read.is_err(), "there is nothing to read from");
        pause().await;
    }
    for read in early.join_all().await {
        assert!(read.is_err(), "there was nothing to read from");
    }
    cluster.thaw()?;
    let recovery = site.answers_again().await?;
    let ready = until("it is ready", async || Ok(status("/readyz").await? == 200)).await?;
    site.recorder.ask(&probe).await?;
    let report = site.is_right(load).await?;

    refusals.sort_unstable();
    let p99 = refusals[refusals.len() * 99 / 100];
    let (median, last) = (refusals[refusals.len() / 2], refusals[refusals.len() - 1]);
    println!(
        "frozen: noticed after {noticed:.1?}; {} refusals: median {median:.1?}, p99 {p99:.1?}, max \
         {last:.1?}; answers {recovery:.0?} after the thaw, ready {ready:.0?} after that; {report}",
        refusals.len()
    );
    assert!(p99 < REFUSED_WITHIN, "99 of 100 refusals take up to {p99:?}");
    assert!(last < REFUSED_WITHIN_MAX, "a request was turned away after {last:?}");
    Ok(())
}

/// The bound of `docs/postgresql.md` and a margin: a client of ours has not given up by then.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_cannot_be_looked_for_keeps_no_client_waiting() -> Result<()> {
    let database = Database::fresh();
    let proxy = Proxy::start(database.server())?;
    let site = Site::open(&proxy.server().url_of(database.name())).await?;
    let load = site.load();
    site.recorder.more(40).await?;

    // The answer to a commit is lost, and the search for it finds the network in pieces.
    let before = cuts(proxy.counts(), Moment::After);
    proxy.set(Traffic::Refused);
    proxy.cut_commits(Moment::After, Chosen::Next(1));
    let probe = site.recorder.transfer("probe".to_owned());
    let asked = now();
    let answered = tokio::spawn({
        let (recorder, probe) = (Arc::clone(&site.recorder), probe.clone());
        async move { recorder.api().ask(&probe).await }
    });
    until("a commit is cut", async || Ok(cuts(proxy.counts(), Moment::After) > before)).await?;
    proxy.set(Traffic::Held);
    assert_eq!(answered.await?, Outcome::Unavailable(503), "the outcome is uncertain");
    let waited = asked.elapsed();

    proxy.set(Traffic::Flows);
    let recovery = site.answers_again().await?;
    site.recorder.ask(&probe).await?;
    let report = site.is_right(load).await?;
    println!(
        "lost at a commit: given up after {waited:.1?}; answers {recovery:.0?} after; {report}"
    );
    assert!(waited < GIVEN_UP_WITHIN, "a client waited for {waited:.1?}");
    Ok(())
}

/// Nothing may hold up the writer more often for one request: the batch and then each of its units
/// are tried a few times.
const DEADLOCKS_MAX: u64 = 40;

/// Holds the table that the writer appends to, and then wants the write lock. The server ends the
/// writer's transaction, because this one does not look for deadlocks.
struct Rival {
    session: tokio_postgres::Client,
}

impl Rival {
    async fn new(database: &Database) -> Result<Self> {
        let session = session(database).await?;
        session.batch_execute("set deadlock_timeout = '1h'").await?;
        Ok(Self { session })
    }

    async fn hold_journal(&self) -> Result<()> {
        let sql = "begin; lock table journal in share mode";
        Ok(self.session.batch_execute(sql).await?)
    }

    /// Whether another session waits for its locks.
    async fn is_waited_for(&self) -> Result<bool> {
        let sql = "select exists (select from pg_locks where not granted)";
        Ok(self.session.query_one(sql, &[]).await?.get(0))
    }

    /// Makes the deadlock, and gives back the lock that it brought.
    async fn deadlock(&self) -> Result<()> {
        let sql = "savepoint before; select from write_lock for update; \
                   rollback to before";
        Ok(self.session.batch_execute(sql).await?)
    }

    async fn let_go(&self) -> Result<()> {
        Ok(self.session.batch_execute("rollback").await?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_deadlocks_ends_in_answers_and_never_in_a_loop() -> Result<()> {
    // The default of one second would make the storm a breeze.
    let cluster = Cluster::start_with(&[("deadlock_timeout", "50ms")])?;
    let database = Database::new(cluster.server())?;
    let site = Site::open(&database.url()).await?;
    let conflicts = async || site.metric("switchyard_commit_conflicts_total").await;
    let rival = Rival::new(&database).await?;

    // As often as it is tried, until the client is asked to come back.
    let probe = site.recorder.transfer("against a wall".to_owned());
    rival.hold_journal().await?;
    let start = now();
    let asked = tokio::spawn({
        let (recorder, probe) = (Arc::clone(&site.recorder), probe.clone());
        async move { recorder.api().ask(&probe).await }
    });
    let mut deadlocks = 0;
    while !asked.is_finished() {
        if rival.is_waited_for().await? {
            rival.deadlock().await?;
            deadlocks += 1;
            assert!(deadlocks <= DEADLOCKS_MAX, "the writer tries again and again");
        } else {
            pause().await;
        }
    }
    let refused = start.elapsed();
    assert_eq!(asked.await?, Outcome::Unavailable(503), "it was never committed");
    assert!(deadlocks > 1, "it was tried once only");
    rival.let_go().await?;
    site.recorder.ask(&probe).await?;
    let retries = conflicts().await?;
    println!("deadlocks without end: 503 after {deadlocks} in {refused:.0?}, {retries} retries");

    // One now and then, under load.
    let load = site.load();
    for _ in 0..rounds(10) {
        site.recorder.more(CLIENTS as u64).await?;
        rival.hold_journal().await?;
        until("the writer waits", async || rival.is_waited_for().await).await?;
        rival.deadlock().await?;
        rival.let_go().await?;
    }
    let report = site.is_right(load).await?;
    let retries = conflicts().await? - retries;
    println!("deadlocks now and then: {} in all, {retries} retries; {report}", rounds(10));
    assert!(retries >= rounds(10), "a deadlock was not met");
    assert_eq!((report.lost, report.unavailable), (0, 0), "a client had to ask again");
    Ok(())
}

/// Has three statements in ten that append to the journal fail, some of its commits, and three in
/// ten that bring the postings up to date, as engines do that let transactions run side by side and
/// see in the end that they cannot.
const STORM: &str = "create function storm() returns trigger language plpgsql as $$ begin \
     if random() < 0.3 then raise exception 'a storm' using errcode = '40001'; end if; \
     return null; end $$; \
     create trigger storm after insert on journal for each statement execute function storm(); \
     create constraint trigger late_storm after insert on journal deferrable initially deferred \
     for each row when (mod(new.at, 4) = 0) execute function storm(); \
     create trigger storm after insert on postings for each statement execute function storm()";

/// Clients in the storm.
const MANY_CLIENTS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_serialization_failures_is_the_servers_concern() -> Result<()> {
    let database = Database::fresh();
    let site = Site::open(&database.url()).await?;
    database.query(STORM)?;
    let load = Load::start(&site.recorder, MANY_CLIENTS);
    site.recorder.more(rounds(1_000)).await?;
    // One transaction each: one for all would hold the first table while it waits for the second,
    // which the server locks the other way round.
    for (name, table) in [("storm", "postings"), ("storm", "journal"), ("late_storm", "journal")] {
        database.query(&format!("drop trigger {name} on {table}"))?;
    }
    let report = site.is_right(load).await?;
    let retries = site.metric("switchyard_commit_conflicts_total").await?;
    println!("a storm of serialization failures: {retries} retries; {report}");
    assert!(retries > 5, "there was no storm");
    assert_eq!(report.lost, 0, "a connection was lost");
    Ok(())
}

/// Commits that the database had acknowledged to a server and that it has not any more.
const MISSING_COMMITS: &str = "switchyard_missing_commits_total";

/// Both hosts, of which the one that takes writes is to be found.
fn url_of_both(primary: &Cluster, standby: &str, database: &Database) -> String {
    let name = database.name();
    format!("{},{standby}/{name}?target_session_attrs=read-write", primary.server().url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_over_to_a_synchronous_standby_loses_nothing() -> Result<()> {
    let mut primary = Cluster::start()?;
    let database = Database::new(primary.server())?;
    let standby = primary.replica(Replication::Synchronous)?;
    let url = url_of_both(&primary, standby.server().address(), &database);
    let site = Site::open(&url).await?;
    let load = site.load();
    site.recorder.more(150).await?;

    primary.kill()?;
    let killed = now();
    let promoted = standby.promote()?;
    let down = killed.elapsed();
    let recovery = site.answers_again().await?;
    site.recorder.more(150).await?;
    let report = site.is_right(load).await?;
    assert_eq!(site.metric(MISSING_COMMITS).await?, 0, "nothing is missing");
    println!("synchronous: promoted after {down:.1?}, answers {recovery:.0?} after that; {report}");
    drop(promoted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_over_to_a_standby_that_fell_behind_loses_only_what_it_never_had() -> Result<()> {
    let mut primary = Cluster::start()?;
    let database = Database::new(primary.server())?;
    let mut standby = primary.replica(Replication::Asynchronous)?;
    let url = url_of_both(&primary, standby.server().address(), &database);
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let installation = installation(&url).logging_to(&log);
    let server = installation.start()?;
    let site = Site::of(installation, vec![server]).await?;
    let load = site.load();
    site.recorder.more(100).await?;
    standby.stop(Shutdown::Immediate)?;
    site.recorder.more(100).await?;

    primary.kill()?;
    standby.resume()?;
    let promoted = standby.promote()?;
    let recovery = site.answers_again().await?;
    site.recorder.more(100).await?;
    load.stop().await?;
    site.recorder.settled().await?;
    // The server remembers what the database has forgotten; none of that may come back in parts.
    site.installation.verify()?;
    let vanished = site.recorder.vanished().await?;
    assert!(!vanished.is_empty(), "the standby had not fallen behind");
    let named = named_as_missing(&std::fs::read_to_string(&log)?)?;
    let commits = site.metric(MISSING_COMMITS).await?;
    println!(
        "asynchronous: {} acknowledged payments are gone, which the standby never had; the server \
         missed {commits} commits and named {} payments; answers {recovery:.0?} after the \
         promotion; {} answers in all",
        vanished.len(),
        named.len(),
        site.recorder.answered()
    );
    let unnamed: Vec<_> = vanished.difference(&named).collect();
    assert!(unnamed.is_empty(), "gone, and not logged: {unnamed:?}");
    let there = site.recorder.api().ids("/transactions?").await?;
    let wrong: Vec<_> = named.intersection(&there).collect();
    assert!(wrong.is_empty(), "there, and named as missing: {wrong:?}");
    assert!(commits > 0, "nothing was counted");
    drop(promoted);
    Ok(())
}

/// The payments that the log of a server names as made, acknowledged and not in the database.
fn named_as_missing(log: &str) -> Result<BTreeSet<String>> {
    let mut named = BTreeSet::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).context("reading the log")?;
        if line["what"] == "made" {
            let payments = line["payments"].as_str().context("a line names payments")?;
            named.extend(payments.split(' ').map(str::to_owned));
        }
    }
    Ok(named)
}
