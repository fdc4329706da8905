//! Backups, restored ones, and databases that move: nothing that was answered is lost on the way,
//! and nothing that is wrong gets a name.
//!
//! Servers are real processes under load. What their clients were answered is what a copy must
//! hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde_json::Value;
use tempfile::TempDir;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance, without_variables};
use testbed::place::AS_EARLIER_BUILD;
use testbed::postgres::Database;
use testbed::recorder::{Answer, Api, Load, Outcome, Recorder};

/// Clients that send at once.
const CLIENTS: usize = 8;

/// Backups that are made while they do.
const BACKUPS: usize = 3;

/// A folder with a database that is served.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        Ok(Self { folder: TempDir::new()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The server's database and what has its key.
    fn installation(&self, name: &str) -> Installation {
        let url = format!("sqlite://{}", self.path(name).display());
        let key = self.path("the.key").display().to_string();
        Installation::new(env!("CARGO_BIN_EXE_switchyard"), &url).with("SWITCHYARD_KEY_FILE", &key)
    }

    /// Serves the database with clients that pay.
    async fn served(&self, name: &str) -> Result<(Instance, Arc<Recorder>)> {
        let server = self.installation(name).start()?;
        let api = Api::new(&[server.base()])?;
        api.ready().await?;
        Ok((server, Recorder::set_up(api).await?))
    }

    /// What a server leaves in the database when it is killed after so many answers, once all
    /// payments have settled.
    async fn left(&self, name: &str, answers: u64) -> Result<Arc<Recorder>> {
        let (mut server, recorder) = self.served(name).await?;
        let load = Load::start(&recorder, CLIENTS);
        recorder.more(answers).await?;
        load.stop().await?;
        recorder.settled().await?;
        server.kill()?;
        Ok(recorder)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
        command.current_dir(self.folder.path()).args(line.split_whitespace());
        without_variables(&mut command);
        command.env("SWITCHYARD_KEY_FILE", "the.key");
        command
    }

    /// Runs a command to its end: its exit code and what it said.
    fn run(&self, line: &str) -> Result<(i32, String, String)> {
        let Output { status, stdout, stderr } = self.command(line).output()?;
        let code = status.code().context("it ended by a signal")?;
        Ok((code, String::from_utf8(stdout)?, String::from_utf8(stderr)?))
    }

    fn done(&self, line: &str) -> Result<String> {
        let (code, out, err) = self.run(line)?;
        ensure!(code == 0, "{line}: {code}\n{out}{err}");
        Ok(out)
    }

    fn refused(&self, line: &str, exit_code: i32, part: &str) -> Result<()> {
        let (code, out, err) = self.run(line)?;
        let said = format!("{out}{err}");
        ensure!(code == exit_code && said.contains(part), "{line}: {code}\n{said}");
        Ok(())
    }

    fn names(&self) -> Result<BTreeSet<String>> {
        let entries = std::fs::read_dir(self.folder.path())?;
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            Ok(entry?.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }
}

/// The files of a database that is in use.
const FILES: [&str; 6] = [
    "live.db",
    "live.db-wal",
    "live.db-shm",
    "live.db.journal",
    "live.db.journal-wal",
    "live.db.journal-shm",
];

/// The transaction that an answer tells of.
fn transaction_in((_, bytes): &Answer) -> Result<Option<Vec<u8>>> {
    let body: Value = serde_json::from_slice(bytes)?;
    let ids = [&body["id"], &body["transactionId"]];
    let id = ids.into_iter().find_map(|id| id.as_str()?.strip_prefix("Transaction:"));
    Ok(id.map(|id| hex::decode(id.replace('-', ""))).transpose()?)
}

/// The transactions that clients have answers about.
fn answered(recorder: &Recorder) -> Result<BTreeSet<Vec<u8>>> {
    let ids = recorder.known().into_iter().map(|(_, answer)| transaction_in(&answer));
    ids.filter_map(Result::transpose).collect()
}

/// The transactions in a file.
fn held(path: &Path) -> Result<BTreeSet<Vec<u8>>> {
    let database = Connection::open(path)?;
    let mut statement = database.prepare("select id from transactions")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_backup_under_load_is_sound_and_holds_all_that_was_answered_before() -> Result<()> {
    let place = Place::new()?;
    let (mut server, recorder) = place.served("live.db").await?;
    let load = Load::start(&recorder, CLIENTS);
    let mut sizes = Vec::new();
    for number in 0..BACKUPS {
        recorder.more(30).await?;
        let before = answered(&recorder)?;
        let name = format!("backup-{number}.db");
        let out = place.done(&format!("backup --database-url sqlite://live.db --to {name}"))?;
        ensure!(out.contains("checks hold") && out.contains("The key is not in it"), "{out}");
        let held = held(&place.path(&name))?;
        ensure!(held.is_superset(&before), "{name} lacks what was answered before it");
        ensure!(out.contains(&format!("{} transactions, the last change at", held.len())), "{out}");
        sizes.push(held.len());
    }
    ensure!(sizes.is_sorted() && sizes[0] < sizes[BACKUPS - 1], "no load: {sizes:?}");
    load.stop().await?;
    recorder.settled().await?;
    let report = recorder.check().await?;
    ensure!(report.unavailable == 0, "a backup was in the way of clients: {report}");
    // Nothing is in a copy that the server did not keep.
    let kept = held(&place.path("live.db"))?;
    for number in 0..BACKUPS {
        let copied = held(&place.path(&format!("backup-{number}.db")))?;
        ensure!(kept.is_superset(&copied), "backup-{number}.db holds unknown payments");
    }
    let again = "backup --database-url sqlite://live.db --to backup-0.db";
    place.refused(again, 1, "backup-0.db is there already and is never written over")?;
    server.kill()?;

    // Each is one file, complete by itself.
    let made: BTreeSet<_> = (0..BACKUPS).map(|number| format!("backup-{number}.db")).collect();
    let is_servers = |name: &String| name.starts_with("live.db") || name == "the.key";
    let found: BTreeSet<_> = place.names()?.into_iter().filter(|name| !is_servers(name)).collect();
    ensure!(found == made, "{found:?}");
    for name in made {
        place.done(&format!("verify --database-url sqlite://{name}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_is_served_and_what_it_lacks_can_be_asked_for_again() -> Result<()> {
    let place = Place::new()?;
    let (mut server, recorder) = place.served("live.db").await?;
    let load = Load::start(&recorder, CLIENTS);
    recorder.more(60).await?;
    place.done("backup --database-url sqlite://live.db --to backup.db")?;
    let kept = held(&place.path("backup.db"))?;
    recorder.more(60).await?;
    load.stop().await?;
    recorder.settled().await?;
    let asks = recorder.known();
    let feed = recorder.api().get("/events?start=latest").await?;
    let later = feed["nextCursor"].as_str().context("a feed has a cursor")?.to_owned();
    // Under a server that runs, files can be moved away without it noticing.
    let restore = "restore --from backup.db --database-url sqlite://live.db";
    for name in FILES {
        std::fs::rename(place.path(name), place.path(&format!("away-{name}")))?;
    }
    place.refused(restore, 1, "another server has")?;
    for name in FILES {
        std::fs::rename(place.path(&format!("away-{name}")), place.path(name))?;
    }
    server.kill()?;

    let restore = "restore --from backup.db --database-url sqlite://new.db";
    let mut wrong_key = place.command(restore);
    wrong_key.env_remove("SWITCHYARD_KEY_FILE").env("SWITCHYARD_SECRET_KEY", "ab".repeat(32));
    let said = String::from_utf8(wrong_key.output()?.stderr)?;
    ensure!(said.contains("the key is not the one"), "{said}");
    let missing_key = format!("{restore} --key-file no.key");
    place.refused(&missing_key, 1, "the key of the backup is not at no.key")?;
    place.refused(&restore.replace("new.db", "live.db"), 1, "live.db is there already")?;
    place.refused(&restore.replace("backup.db", "no.db"), 1, "there is no backup at no.db")?;
    // What a lost database leaves beside it would become a part of the new one.
    std::fs::write(place.path("new.db-wal"), b"left")?;
    place.refused(restore, 1, "new.db-wal is there already")?;
    std::fs::remove_file(place.path("new.db-wal"))?;
    ensure!(!place.path("new.db").exists(), "a refusal made a database");

    let out = place.done(restore)?;
    for part in ["checks hold", "the last change at", "idempotency key", "rail's statement"] {
        ensure!(out.contains(part), "{part} is missing in {out}");
    }
    ensure!(!out.contains("is not from switchyard backup"), "{out}");

    let installation = place.installation("new.db");
    let server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let url = format!("{}/2025-10-13/events?cursor={later}", server.base());
    let http = testbed::recorder::http(std::time::Duration::from_secs(60))?;
    let request = http.get(url).basic_auth(CLIENT_ID, Some(CLIENT_SECRET));
    let answer = request.send().await?;
    let (status, body): (_, Value) = (answer.status().as_u16(), answer.json().await?);
    ensure!(status == 400 && body["details"]["field"] == "cursor", "{status}: {body}");
    let (mut same, mut anew) = (0, 0);
    for (ask, answer) in asks {
        let Outcome::Known(now) = api.ask(&ask).await else {
            anyhow::bail!("no answer to {}", ask.key);
        };
        let is_kept = transaction_in(&answer)?.is_some_and(|id| kept.contains(&id));
        if ask.path.ends_with("/execute") {
            // It may have come after the backup, on a quote that came before.
            continue;
        }
        ensure!((now == answer) == is_kept, "{}: {:?}", ask.key, (now, answer));
        if is_kept { same += 1 } else { anew += 1 }
    }
    ensure!(same > 0 && anew > 0, "{same} answers were kept and {anew} given anew");
    installation.verify()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_an_earlier_build_is_refused() -> Result<()> {
    let place = Place::new()?;
    place.left("live.db", 60).await?;
    let backup = "backup --database-url sqlite://live.db --to";
    place.done(&format!("{backup} older.db"))?;
    Connection::open(place.path("older.db"))?.execute_batch(AS_EARLIER_BUILD)?;
    let what = "by an earlier build of Switchyard, which this one cannot read; start with an empty";
    place.refused("restore --from older.db --database-url sqlite://new.db", 1, what)?;
    ensure!(!place.path("new.db").exists(), "it was kept");
    let missing_key = format!("{backup} before.db --key-file no.key");
    place.refused(&missing_key, 2, "there is no key at no.key")?;

    Connection::open(place.path("live.db"))?.execute_batch(AS_EARLIER_BUILD)?;
    place.refused(&format!("{backup} before.db"), 1, what)?;
    ensure!(!place.path("before.db").exists(), "it was kept");
    place.refused("serve --database-url sqlite://live.db", 1, what)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_live_file_without_its_log_is_not_taken_for_a_backup() -> Result<()> {
    let place = Place::new()?;
    let (mut server, recorder) = place.served("live.db").await?;
    let copy = |name: &str| -> Result<()> {
        for ending in ["", ".journal"] {
            let from = place.path(&format!("live.db{ending}"));
            std::fs::copy(from, place.path(&format!("{name}{ending}")))?;
        }
        Ok(())
    };
    // Nothing but the schema has left the logs yet.
    copy("early.db")?;
    place.refused("verify --database-url sqlite://early.db", 1, "without its log")?;
    let restore = "restore --from early.db --database-url sqlite://new.db";
    place.refused(restore, 1, "early.db is not sound, so no copy was kept")?;

    let load = Load::start(&recorder, CLIENTS);
    recorder.more(300).await?;
    load.stop().await?;
    server.kill()?;
    // Half from before a checkpoint, half from after it, as a slow copy reads them.
    for name in ["live.db", "live.db.journal"] {
        Connection::open(place.path(name))?.execute_batch("pragma wal_checkpoint(truncate)")?;
    }
    copy("whole.db")?;
    // The tables alone are no database.
    std::fs::copy(place.path("whole.db"), place.path("alone.db"))?;
    place.refused("verify --database-url sqlite://alone.db", 2, "the database has no journal")?;
    place.refused(&restore.replace("early.db", "alone.db"), 1, "the database has no journal")?;
    let first = std::fs::read(place.path("early.db"))?;
    let second = std::fs::read(place.path("whole.db"))?;
    ensure!(first.len() < second.len() / 2, "no checkpoint: {} {}", first.len(), second.len());
    let mut torn = second.clone();
    torn[second.len() / 2..].fill(0);
    torn[..first.len()].copy_from_slice(&first);
    copy("torn.db")?;
    std::fs::write(place.path("torn.db"), torn)?;
    place.refused("verify --database-url sqlite://torn.db", 1, "BROKEN")?;
    place.refused(&restore.replace("early.db", "torn.db"), 1, "is not sound")?;

    // A file that lacks its log and is sound may be one of an earlier time: that cannot be
    // detected.
    let out = place.done(&restore.replace("early.db", "whole.db"))?;
    ensure!(out.contains("is not from switchyard backup"), "{out}");
    ensure!(!place.names()?.iter().any(|name| name.starts_with(".switchyard")), "left behind");
    Ok(())
}

/// What an unfinished copy has left in a file; nothing if it has not begun or is done.
fn mark(path: &Path) -> Option<Vec<u8>> {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    let mark = "select value from meta where name = 'copy' and exists (select 1 from platforms)";
    database.query_row(mark, [], |row| row.get(0)).optional().ok()?
}

fn signal(process: &Child, name: &str) -> Result<()> {
    let line = format!("kill -{name} {}", process.id());
    let status = Command::new("sh").args(["-c", &line]).status()?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

/// Starts a copy into an empty file and kills it in the middle.
fn killed_in_the_middle(place: &Place) -> Result<String> {
    for attempt in 0..20 {
        let name = format!("target-{attempt}.db");
        let line = format!("migrate --from sqlite://live.db --to sqlite://{name}");
        let mut process =
            place.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        while mark(&place.path(&name)).is_none() && process.try_wait()?.is_none() {
            std::thread::yield_now();
        }
        signal(&process, "STOP")?;
        let is_unfinished = mark(&place.path(&name)).is_some();
        process.kill()?;
        process.wait()?;
        if is_unfinished {
            return Ok(name);
        }
    }
    anyhow::bail!("it was always done before it could be killed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_moves_when_no_one_uses_it_and_goes_on_after_kill_9() -> Result<()> {
    let place = Place::new()?;
    let (mut server, recorder) = place.served("live.db").await?;
    let load = Load::start(&recorder, CLIENTS);
    recorder.more(400).await?;
    load.stop().await?;
    recorder.settled().await?;
    let migrate = "migrate --from sqlite://live.db --to";
    let used = format!("{migrate} sqlite://used.db");
    place.refused(&used, 1, "stop every server and command that has it open")?;
    ensure!(!place.path("used.db").exists(), "a refusal made a database");
    server.kill()?;

    let name = killed_in_the_middle(&place)?;
    let url = format!("sqlite://{name}");
    let unfinished = "a copy into this database is not finished";
    place.refused(&format!("--listen 127.0.0.1:0 --database-url {url}"), 1, unfinished)?;
    place.refused(&format!("verify --database-url {url}"), 2, unfinished)?;

    let (code, out, err) = place.run(&format!("{migrate} {url}"))?;
    ensure!(code == 0 && err.contains("going on with an earlier copy"), "{out}{err}");
    for part in ["same", "accounts have the balance", "moved", "all", "checks hold", "USD"] {
        ensure!(out.contains(part), "{part} is missing in {out}");
    }
    ensure!(!out.contains("DIFFERENT"), "{out}");
    // One that was killed before it could say so is proven again.
    let (code, again, err) = place.run(&format!("{migrate} {url}"))?;
    ensure!(code == 0 && err.contains("an earlier copy was finished"), "{again}{err}");
    ensure!(digests(&again)? == digests(&out)?, "{out}{again}");
    place.refused(&format!("{migrate} sqlite://live.db"), 1, "is the one that is to be moved")?;
    let wrong_key = format!("{migrate} sqlite://other.db --key-file other.key");
    place.refused(&wrong_key, 1, "the key is missing")?;
    ensure!(held(&place.path(&name))? == held(&place.path("live.db"))?, "not the same payments");

    // Clients find everything at the new place.
    let installation = place.installation(&name);
    let server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    for (ask, answer) in recorder.known() {
        let now = api.ask(&ask).await;
        ensure!(now == Outcome::Known(answer), "{}: {now:?}", ask.key);
    }
    installation.verify()?;
    drop(server);
    place.refused(&format!("{migrate} {url}"), 1, "name one that is empty")
}

/// Calls behind each of which something is on the disk that was not, or has another name, or was
/// said or sent. There are hundreds of those that write pages or send.
#[cfg(target_os = "linux")]
const CALLS: &str = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,\
    ftruncate,write,pwrite64,sendto,sendmsg,writev";

/// A command is killed at so many calls of each kind all over its time, and at so many at its end.
#[cfg(target_os = "linux")]
const ALL_OVER: usize = 6;
#[cfg(target_os = "linux")]
const AT_THE_END: usize = 3;

/// Runs a command to its end or its death, with what strace is to do at its calls.
#[cfg(target_os = "linux")]
fn is_done(place: &Place, line: &str, options: &[&str]) -> Result<bool> {
    let command = place.command(line);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq"]).args(options);
    traced.arg(command.get_program()).args(command.get_args()).current_dir(place.folder.path());
    without_variables(&mut traced);
    let Output { status, stdout, stderr } =
        traced.env("SWITCHYARD_KEY_FILE", "the.key").output()?;
    let said = String::from_utf8([stdout, stderr].concat())?;
    ensure!(status.success() || status.code().is_none(), "{line}: {status}: {said}");
    Ok(status.success())
}

/// Whether commands can be traced here.
#[cfg(target_os = "linux")]
fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).status();
    traced.is_ok_and(|status| status.success())
}

/// The calls that a command makes, once it is done: how many of each kind a thread makes at most.
#[cfg(target_os = "linux")]
fn calls_made(place: &Place, line: &str) -> Result<BTreeMap<String, usize>> {
    let trace = TempDir::new()?;
    let (file, traced) = (trace.path().join("calls"), format!("trace={CALLS}"));
    ensure!(is_done(place, line, &["-o", file.to_str().context("a path")?, "-e", &traced])?);
    let mut by_thread = BTreeMap::<(String, String), usize>::new();
    for call in std::fs::read_to_string(file)?.lines() {
        let (thread, call) = call.split_once(' ').context("a thread")?;
        // A call that another thread came between has a second line.
        if let Some((name, _)) = call.trim_start().split_once('(')
            && !name.contains(' ')
        {
            *by_thread.entry((thread.to_owned(), name.to_owned())).or_default() += 1;
        }
    }
    let mut calls = BTreeMap::new();
    for ((_, name), made) in by_thread {
        let most = calls.entry(name).or_insert(made);
        *most = made.max(*most);
    }
    Ok(calls)
}

/// Kills a command at its calls, with `check` behind each kill and behind a run that nothing kills.
/// `check` makes everything as it was before.
#[cfg(target_os = "linux")]
fn killed_at_calls(
    place: &Place,
    line: &str,
    mut check: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    if !can_trace() {
        println!("nothing was tried: strace is not there, or may not trace anything");
        return Ok(());
    }
    let calls = calls_made(place, line)?;
    check(line)?;
    let mut killed = 0;
    for (call, &made) in &calls {
        let all_over = (1..=made).step_by(made.div_ceil(ALL_OVER));
        let at_the_end = made.saturating_sub(AT_THE_END) + 1..=made;
        for number in all_over.chain(at_the_end).collect::<BTreeSet<_>>() {
            // Each kind has numbers of its own.
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let is_done = is_done(place, line, &["-o", "/dev/null", "-e", &inject])?;
            check(&format!("{line}, killed at {call} {number} of {made}"))?;
            killed += usize::from(!is_done);
        }
    }
    println!("{line}: killed {killed} times, of these calls: {calls:?}");
    ensure!(killed > ALL_OVER, "it was hardly killed");
    Ok(())
}

/// The commands about the whole database that its journal has.
#[cfg(target_os = "linux")]
fn whole_in_journal(place: &Place, url: &str) -> Result<Vec<String>> {
    let out = place.done(&format!("audit --database-url {url}"))?;
    let whole = out.lines().filter(|line| line.ends_with("  the whole database"));
    Ok(whole.filter_map(|line| line.split("  ").nth(1).map(str::to_owned)).collect())
}

/// Removes a database and what is beside it.
#[cfg(target_os = "linux")]
fn remove(place: &Place, database: &str) -> Result<()> {
    for name in place.names()?.iter().filter(|name| name.starts_with(database)) {
        std::fs::remove_file(place.path(name))?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_is_killed_at_any_call_is_done_again() -> Result<()> {
    let place = Place::new()?;
    place.left("live.db", 40).await?;
    place.done("backup --database-url sqlite://live.db --to backup.db")?;
    let (kept, url) = (held(&place.path("backup.db"))?, "sqlite://new.db");
    let restore = format!("restore --from backup.db --database-url {url}");
    let names = place.names()?;
    let says_so = |when: &str| {
        let said = whole_in_journal(&place, url)?;
        ensure!(said.len() == 1 && said[0].starts_with("restore ("), "{when}: {said:?}");
        Ok(())
    };
    killed_at_calls(&place, &restore, |when| {
        if place.path("new.db").exists() {
            says_so(when)?;
        }
        let (code, out, err) = place.run(&restore)?;
        ensure!(code == 0 && out.contains("idempotency key"), "{when}: {out}{err}");
        says_so(when)?;
        ensure!(held(&place.path("new.db"))? == kept, "{when}: other payments");
        place.done(&format!("verify --replay --database-url {url}"))?;
        remove(&place, "new.db")?;
        let left = place.names()?;
        ensure!(left == names, "{when}: {left:?}");
        Ok(())
    })?;
    // A database that was changed since is never taken for the same.
    place.done(&restore)?;
    place.done(&restore)?;
    let platform = "platform create --name x --uma-domain x.example --database-url";
    place.done(&format!("{platform} {url}"))?;
    place.refused(&restore, 1, "new.db is there already")
}

/// A move is done, whatever was left of the last one: the digests of all tables but the journal,
/// which has who has moved it.
#[cfg(target_os = "linux")]
fn moved_again(place: &Place, when: &str, url: &str) -> Result<BTreeMap<String, (String, String)>> {
    let (code, out, err) = place.run(&format!("migrate --from sqlite://live.db --to {url}"))?;
    ensure!(code == 0 && out.contains("moved"), "{when}: {out}{err}");
    let said = whole_in_journal(place, url)?;
    ensure!(said.len() == 1 && said[0].starts_with("migrate ("), "{when}: {said:?}");
    place.done(&format!("verify --replay --database-url {url}"))?;
    digests(&out)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_at_any_call_is_done_again() -> Result<()> {
    let place = Place::new()?;
    place.left("live.db", 40).await?;
    let (kept, url) = (held(&place.path("live.db"))?, "sqlite://new.db");
    let migrate = format!("migrate --from sqlite://live.db --to {url}");
    let first = digests(&place.done(&migrate)?)?;
    remove(&place, "new.db")?;
    killed_at_calls(&place, &migrate, |when| {
        ensure!(moved_again(&place, when, url)? == first, "{when}: other rows");
        ensure!(held(&place.path("new.db"))? == kept, "{when}: other payments");
        remove(&place, "new.db")
    })?;
    Ok(())
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_to_postgres_that_is_killed_at_any_call_is_done_again() -> Result<()> {
    let place = Place::new()?;
    place.left("live.db", 40).await?;
    let postgres = Database::fresh();
    let url = postgres.url();
    let emptied = || postgres.query("drop schema public cascade; create schema public").map(drop);
    let migrate = format!("migrate --from sqlite://live.db --to {url}");
    let first = digests(&place.done(&migrate)?)?;
    emptied()?;
    killed_at_calls(&place, &migrate, |when| {
        ensure!(moved_again(&place, when, &url)? == first, "{when}: other rows");
        emptied()
    })
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_is_killed_at_any_call_goes_on() -> Result<()> {
    let place = Place::new()?;
    place.left("live.db", 40).await?;
    let (url, damaged) = ("sqlite://live.db", b"this was a database");
    // A command leaves no log behind, as a server that was killed does.
    place.done(&format!("token list --database-url {url}"))?;
    let kept = held(&place.path("live.db"))?;
    std::fs::write(place.path("live.db"), damaged)?;
    let (names, rebuild) = (place.names()?, format!("rebuild --database-url {url}"));
    let journal = std::fs::read(place.path("live.db.journal"))?;
    let mut went_on = 0;
    killed_at_calls(&place, &rebuild, |when| {
        let (tables, former) = (place.path("live.db"), place.path("live.db.replaced-1"));
        if !tables.exists() {
            let verify = format!("verify --database-url {url}");
            place.refused(&verify, 2, "made anew by switchyard rebuild")?;
        }
        if !tables.exists() || std::fs::read(&tables)? == damaged {
            let (code, out, err) = place.run(&rebuild)?;
            ensure!(code == 0, "{when}: {out}{err}");
            went_on += usize::from(err.contains("going on behind row"));
        }
        ensure!(std::fs::read(former)? == damaged, "{when}: the damaged file is gone");
        place.done(&format!("verify --replay --database-url {url}"))?;
        ensure!(held(&tables)? == kept, "{when}: other payments");
        let left = place.names()?;
        let is_known = |name: &&String| names.contains(*name) || name.contains(".replaced-1");
        ensure!(left.iter().all(|name| is_known(&name)), "{when}: {left:?}");
        remove(&place, "live.db")?;
        std::fs::write(&tables, damaged)?;
        Ok(std::fs::write(place.path("live.db.journal"), &journal)?)
    })?;
    ensure!(went_on > 0 || !can_trace(), "nothing was left to go on with");
    Ok(())
}

/// A customer who was deleted and erased, whose name is to be found nowhere.
async fn erased(place: &Place, server: &Instance, name: &str, url: &str) -> Result<()> {
    let http = testbed::recorder::http(std::time::Duration::from_secs(60))?;
    let page = format!("{}/2025-10-13/customers", server.base());
    let body = serde_json::json!({ "customerType": "INDIVIDUAL", "fullName": name });
    let request = http.post(&page).basic_auth(CLIENT_ID, Some(CLIENT_SECRET)).json(&body);
    let made: Value = request.send().await?.error_for_status()?.json().await?;
    let id = made["id"].as_str().context("an id")?;
    let request = http.delete(format!("{page}/{id}")).basic_auth(CLIENT_ID, Some(CLIENT_SECRET));
    request.send().await?.error_for_status()?;
    place.done(&format!("customer erase {id} --database-url {url}")).map(drop)
}

/// The tables are those of the journal, and clients get their answers.
async fn all_is_there(installation: &Installation, recorder: &Recorder) -> Result<Instance> {
    installation.verify()?;
    let server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    for (ask, answer) in recorder.known() {
        let now = api.ask(&ask).await;
        ensure!(now == Outcome::Known(answer), "{}: {now:?}", ask.key);
    }
    Ok(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_and_damaged_tables_are_made_anew_from_the_journal() -> Result<()> {
    let (place, url) = (Place::new()?, "sqlite://live.db");
    let (mut server, recorder) = place.served("live.db").await?;
    erased(&place, &server, "Glenn Quagmire", url).await?;
    let load = Load::start(&recorder, CLIENTS);
    recorder.more(60).await?;
    let rotate = format!("key rotate-journal --database-url {url}");
    place.done(&rotate)?;
    recorder.more(60).await?;
    load.stop().await?;
    recorder.settled().await?;
    let rebuild = format!("rebuild --database-url {url}");
    place.refused(&rebuild, 1, "another server has")?;
    server.kill()?;
    place.done(&format!("key rotate --reencrypt --database-url {url}"))?;
    let (tables, early) = (place.path("live.db"), std::fs::read(place.path("live.db.journal"))?);
    let kept = held(&tables)?;

    for is_empty in [false, true] {
        for name in ["live.db", "live.db-wal", "live.db-shm"] {
            let _ = std::fs::remove_file(place.path(name));
        }
        if is_empty {
            std::fs::write(&tables, "")?;
        }
        for (line, code) in [("serve --listen 127.0.0.1:0", 1), ("token list", 1), ("verify", 2)] {
            place.refused(&format!("{line} --database-url {url}"), code, "switchyard rebuild")?;
        }
        let (code, out, err) = place.run(&rebuild)?;
        ensure!(code == 0 && err.contains("making the tables anew from"), "{out}{err}");
        ensure!(out.contains("rows of the journal") && out.contains("took"), "{out}");
        ensure!(out.contains("live.db.replaced-1") == is_empty, "{out}");
        ensure!(held(&tables)? == kept, "other payments");
        let file = std::fs::read(&tables)?;
        ensure!(!file.windows(8).any(|it| it.eq_ignore_ascii_case(b"quagmire")), "not erased");
        all_is_there(&place.installation("live.db"), &recorder).await?.kill()?;
    }

    // Damage that is found at once, and damage that only a replay finds.
    place.done(&format!("token list --database-url {url}"))?;
    std::fs::write(&tables, "no database")?;
    let serve = format!("serve --listen 127.0.0.1:0 --database-url {url}");
    place.refused(&serve, 1, "switchyard rebuild makes them anew")?;
    let out = place.done(&rebuild)?;
    ensure!(out.contains("live.db.replaced-2: nothing of them is needed"), "{out}");
    ensure!(std::fs::read(place.path("live.db.replaced-2"))? == b"no database");
    Connection::open(&tables)?.execute_batch("delete from quotes; delete from events")?;
    place.refused(&format!("verify --replay --database-url {url}"), 1, "BROKEN")?;
    place.done(&rebuild)?;
    all_is_there(&place.installation("live.db"), &recorder).await?.kill()?;

    // Tables that have what their journal has lost are not given up for it.
    place.done(&format!("platform create --name x --uma-domain x.example --database-url {url}"))?;
    std::fs::write(place.path("live.db.journal"), early)?;
    place.refused(&rebuild, 1, "put the journal back that belongs to them")?;
    std::fs::remove_file(place.path("live.db.journal"))?;
    place.refused(&rebuild, 1, "live.db.journal is not there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_tables_in_postgres_are_made_anew_from_the_journal() -> Result<()> {
    let (place, postgres) = (Place::new()?, Database::fresh());
    let (url, key) = (postgres.url(), place.path("the.key").display().to_string());
    let installation =
        Installation::new(env!("CARGO_BIN_EXE_switchyard"), &url).with("SWITCHYARD_KEY_FILE", &key);
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    erased(&place, &server, "Glenn Quagmire", &url).await?;
    let load = Load::start(&recorder, CLIENTS);
    recorder.more(120).await?;
    load.stop().await?;
    recorder.settled().await?;
    let (rebuild, serve) = (
        format!("rebuild --database-url {url}"),
        format!("serve --listen 127.0.0.1:0 --database-url {url}"),
    );
    place.refused(&rebuild, 1, "stop every server and command that has it open")?;
    for lost in [
        "drop table quotes, applied",
        "truncate transactions, events, applied",
        "drop table refinery_schema_history",
    ] {
        server.kill()?;
        postgres.query(lost)?;
        if lost.starts_with("drop table quotes") {
            place.refused(&serve, 1, "switchyard rebuild makes its tables anew")?;
        }
        let (code, out, err) = place.run(&rebuild)?;
        ensure!(code == 0 && out.contains("rows of the journal"), "{lost}: {out}{err}");
        server = all_is_there(&installation, &recorder).await?;
    }
    server.kill()?;
    Ok(())
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_in_postgres_that_is_killed_at_any_call_goes_on() -> Result<()> {
    let place = Place::new()?;
    place.left("live.db", 40).await?;
    let postgres = Database::fresh();
    let url = postgres.url();
    place.done(&format!("migrate --from sqlite://live.db --to {url}"))?;
    // The lease came with the rest, and its server is gone: it is not waited for each time.
    postgres.query("update leases set until = 0")?;
    let rebuild = format!("rebuild --database-url {url}");
    let mut unfinished = 0;
    killed_at_calls(&place, &rebuild, |when| {
        let verify = format!("verify --replay --database-url {url}");
        if place.run(&verify)?.0 == 0 {
            return Ok(());
        }
        let serve = format!("serve --listen 127.0.0.1:0 --database-url {url}");
        place.refused(&serve, 1, "run it again to go on with it").context(when.to_owned())?;
        unfinished += 1;
        place.done(&rebuild)?;
        place.done(&verify).map(drop)
    })?;
    ensure!(unfinished > 0 || !can_trace(), "it was never killed halfway");
    Ok(())
}

/// The digests that a move prints, by table.
fn digests(out: &str) -> Result<BTreeMap<String, (String, String)>> {
    let mut digests = BTreeMap::new();
    for line in out.lines().skip(1).take_while(|line| !line.is_empty()) {
        let columns: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let [table, rows, from, to, result] = <[String; 5]>::try_from(columns)
            .map_err(|columns| anyhow::anyhow!("not a table's line: {columns:?}"))?;
        ensure!(from == to && result == "same", "{line}");
        digests.insert(table, (rows, to));
    }
    Ok(digests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_to_postgres_and_comes_back_is_the_same() -> Result<()> {
    let place = Place::new()?;
    let recorder = place.left("live.db", 200).await?;

    let postgres = Database::fresh();
    let url = postgres.url();
    let there = place.done(&format!("migrate --from sqlite://live.db --to {url}"))?;
    let (code, out, err) = place.run(&format!("migrate --from sqlite://live.db --to {url}"))?;
    ensure!(code == 0 && err.contains("an earlier copy was finished"), "{code} {out}{err}");
    ensure!(digests(&out)? == digests(&there)?, "{there}{out}");
    let back = place.done(&format!("migrate --from {url} --to sqlite://back.db"))?;
    let (mut out, mut home) = (digests(&there)?, digests(&back)?);
    ensure!(out.len() > 10, "{there}");
    // The journal has one row more: who has moved it.
    ensure!(out.remove("journal").is_some() && home.remove("journal").is_some(), "{there}");
    ensure!(out == home, "{there}{back}");
    place.done("verify --database-url sqlite://back.db")?;

    // Clients find everything in PostgreSQL, and what they do there is a reason not to move.
    let key = place.path("the.key").display().to_string();
    let installation =
        Installation::new(env!("CARGO_BIN_EXE_switchyard"), &url).with("SWITCHYARD_KEY_FILE", &key);
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    for (ask, answer) in recorder.known() {
        let now = api.ask(&ask).await;
        ensure!(now == Outcome::Known(answer), "{}: {now:?}", ask.key);
    }
    let used = format!("migrate --from {url} --to sqlite://used.db");
    place.refused(&used, 1, "stop every server and command that has it open")?;
    ensure!(!place.path("used.db").exists(), "a refusal made a database");
    server.kill()?;
    installation.verify()?;
    let again = format!("migrate --from sqlite://live.db --to {url}");
    place.refused(&again, 1, "name one that is empty")?;
    let backup = format!("backup --database-url {url} --to backup.db");
    place.refused(&backup, 2, "is for a database in a file")?;
    let restore = format!("restore --database-url {url} --from live.db");
    place.refused(&restore, 2, "is for a database in a file")?;
    Ok(())
}

/// The commands on a page, in their order.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_on_operating_do_what_it_says() -> Result<()> {
    let page = include_str!("../../../docs/operating.md");
    let postgres = Database::fresh();
    let page = page.replace("postgres://pay@db.example/switchyard", &postgres.url());
    let [
        reencrypt,
        backup,
        check,
        audit,
        replay,
        rebuild,
        restore,
        waiting,
        there,
        check_there,
        back,
    ] = commands(&page)[..]
    else {
        anyhow::bail!("the page has other commands than this test");
    };
    let folder = TempDir::new()?;
    let programs = Path::new(env!("CARGO_BIN_EXE_switchyard")).parent().context("a folder")?;
    let path = std::env::join_paths(
        [programs.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let paste = |lines: &str| {
        let mut shell = Command::new("sh");
        shell.current_dir(&folder).args(["-ec", lines]).env("PATH", &path);
        without_variables(&mut shell);
        let Output { status, stdout, stderr } = shell.output()?;
        let said = String::from_utf8([stdout, stderr].concat())?;
        ensure!(status.success(), "{lines}: {said}");
        Ok(said)
    };

    let url = format!("sqlite://{}", folder.path().join("switchyard.db").display());
    let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &url);
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);
    recorder.more(40).await?;
    ensure!(paste(backup)?.contains("checks hold"));
    ensure!(paste(reencrypt)?.contains("Everything is sealed with a new secret"));
    load.stop().await?;
    recorder.settled().await?;
    server.kill()?;
    ensure!(paste(check)?.contains(" 0 broken, 0 skipped"));
    ensure!(paste(audit)?.contains("created Transaction:"));
    ensure!(paste(replay)?.contains(" 0 broken, 0 skipped"));
    let tables = folder.path().join("switchyard.db");
    std::fs::remove_file(&tables)?;
    ensure!(paste(rebuild)?.contains("rows of the journal"));
    ensure!(paste(replay)?.contains(" 0 broken, 0 skipped"));
    ensure!(paste(restore)?.contains("the last change at"));
    let restored = paste("switchyard audit")?;
    let last = restored.lines().last().context("an entry")?;
    ensure!(last.contains("  restore (") && last.ends_with("  the whole database"), "{last}");
    ensure!(held(&folder.path().join("switchyard.db"))?.len() > 10);
    paste(waiting)?;
    ensure!(paste(there)?.contains("moved"));
    ensure!(paste(check_there)?.contains(" 0 broken, 0 skipped"));
    ensure!(paste(back)?.contains("moved"));
    let moved =
        paste("switchyard audit --database-url sqlite://back.db --key-file switchyard.db.key")?;
    let whole: Vec<_> =
        moved.lines().filter(|line| line.ends_with("  the whole database")).collect();
    let commands: Vec<_> = ["restore", "migrate", "migrate"].map(|it| format!("  {it} (")).into();
    ensure!(whole.len() == commands.len(), "{moved}");
    ensure!(whole.iter().zip(&commands).all(|(line, command)| line.contains(command)), "{moved}");
    ensure!(held(&folder.path().join("back.db"))? == held(&folder.path().join("switchyard.db"))?);
    Ok(())
}
