//! kill -9 at any moment loses no acknowledged change and doubles none.
//!
//! The server is killed in the middle of requests, again and again, on the same database, and
//! started again. Clients ask until they know, see [`testbed::recorder`]. After each kill `verify`
//! must find nothing. In the end every answer is still the same to the byte, the money adds up, and
//! everything that was under way has settled.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance};
use testbed::postgres::Database;
use testbed::receiver::Receiver;
use testbed::recorder::{Api, Load, Recorder, http, within_deadline};

const BINARY: &str = env!("CARGO_BIN_EXE_switchyard");

/// A database that is no file has no place beside it for a key.
const SECRET_KEY: &str = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e";

/// How often the server is killed; more with `SWITCHYARD_CRASH_ROUNDS`.
const ROUNDS: u64 = 8;

/// Clients that send at once.
const CLIENTS: usize = 8;

fn rounds() -> u64 {
    let given = std::env::var("SWITCHYARD_CRASH_ROUNDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_under_load_loses_nothing_and_doubles_nothing_on_sqlite() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let database_url = format!("sqlite://{}", folder.path().join("crash.db").display());
    killed_under_load(&Installation::new(BINARY, &database_url)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_under_load_loses_nothing_and_doubles_nothing_on_postgres() -> Result<()> {
    let database = Database::fresh();
    let installation = Installation::new(BINARY, &database.url());
    killed_under_load(&installation.with("SWITCHYARD_SECRET_KEY", SECRET_KEY)).await
}

/// The server is killed while a command seals everything anew, and starts again in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_sealed_anew_beside_a_server_that_is_killed_under_load() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let key_file = folder.path().join("crash.db.key");
    let database_url = format!("sqlite://{}", folder.path().join("crash.db").display());
    let installation = Installation::new(BINARY, &database_url);
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);
    recorder.more(60).await?;
    let old_key = std::fs::read(&key_file)?;
    let command = installation.clone();
    let rotate = move || command.run(&["key", "rotate", "--reencrypt"]);
    let rotation = tokio::task::spawn_blocking(rotate);
    within_deadline("the new key", async || Ok(std::fs::read(&key_file)? != old_key)).await?;
    recorder.more(20).await?;
    server.kill()?;
    installation.verify()?;
    server.resume()?;
    recorder.more(20).await?;
    let said = rotation.await??;
    assert!(said.contains("Everything is sealed with a new secret"), "{said}");
    recorder.more(20).await?;
    installation.verify()?;
    server.kill()?;
    server.resume()?;
    load.stop().await?;
    recorder.settled().await?;
    let report = recorder.check().await?;
    server.kill()?;
    installation.verify()?;
    println!("sealed anew: {report}");
    Ok(())
}

/// How the files of a database leave their names.
#[derive(Debug, Clone, Copy)]
enum Move {
    /// This one is renamed.
    Away(&'static str),
    /// A copy takes the name of this one.
    Copied(&'static str),
    /// All of them are renamed, as by `mv`.
    All,
    /// The folder is renamed, as when a volume is unmounted.
    Folder,
}

/// The files of the database, but for those that SQLite keeps in memory only.
const FILES: [&str; 4] = ["crash.db", "crash.db-wal", "crash.db.journal", "crash.db.journal-wal"];

/// Two folders: one for the data, the other for files that were moved away.
struct Volume {
    data: PathBuf,
    away: PathBuf,
}

impl Volume {
    fn take(&self, how: Move) -> Result<()> {
        let files: &[&str] = match how {
            Move::Folder => return Ok(std::fs::rename(&self.data, &self.away)?),
            Move::All => &FILES,
            Move::Away(ref name) | Move::Copied(ref name) => std::slice::from_ref(name),
        };
        std::fs::create_dir(&self.away)?;
        for name in files {
            let (file, kept) = (self.data.join(name), self.away.join(name));
            if let Move::Copied(_) = how {
                std::fs::hard_link(&file, &kept)?;
                std::fs::copy(&file, self.data.join("copy"))?;
                std::fs::rename(self.data.join("copy"), &file)?;
            } else {
                std::fs::rename(&file, &kept)?;
            }
        }
        Ok(())
    }

    fn put_back(&self, how: Move) -> Result<()> {
        if let Move::Folder = how {
            return Ok(std::fs::rename(&self.away, &self.data)?);
        }
        for entry in self.away.read_dir()? {
            let name = entry?.file_name();
            std::fs::rename(self.away.join(&name), self.data.join(&name))?;
        }
        Ok(std::fs::remove_dir(&self.away)?)
    }
}

/// The exit code of a server, once it has ended.
async fn exit_code(server: &mut Instance) -> Result<Option<i32>> {
    let mut code = None;
    let has_ended = async || {
        code = server.ended()?;
        Ok(code.is_some())
    };
    within_deadline("the server ends", has_ended).await?;
    Ok(code)
}

/// The exit code of a server whose files were moved away: `EX_IOERR`.
const EXIT_IO_ERROR: i32 = 74;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_moved_away_under_load_stop_the_server_and_lose_nothing() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let path = |name: &str| folder.path().join(name);
    let volume = Volume { data: path("data"), away: path("away") };
    std::fs::create_dir(&volume.data)?;
    let url = format!("sqlite://{}", volume.data.join("crash.db").display());
    let installation = Installation::new(BINARY, &url).logging_to(&path("log"));
    let key_file = path("the.key");
    let installation = installation.with("SWITCHYARD_KEY_FILE", &key_file.display().to_string());
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);
    let moves = FILES.map(Move::Away).into_iter().chain([Move::Copied(FILES[2]), Move::All]);
    for how in moves.chain([Move::Folder]) {
        recorder.more(20).await?;
        volume.take(how)?;
        // Sent after they had gone: it may be refused, or find no server any more.
        let probe = recorder.transfer(format!("after {how:?}"));
        if let Ok(answer) = recorder.api().send(&probe).await {
            assert_eq!(answer.status(), 503, "{how:?}");
        }
        assert_eq!(exit_code(&mut server).await?, Some(EXIT_IO_ERROR), "{how:?}");
        if let Move::All | Move::Folder = how {
            // No other database takes their place.
            server.resume()?;
            assert_eq!(exit_code(&mut server).await?, Some(1), "{how:?}");
        }
        volume.put_back(how)?;
        server.resume()?;
        recorder.api().ready().await?;
        recorder.ask(&probe).await?;
    }
    load.stop().await?;
    recorder.settled().await?;
    let report = recorder.check().await?;
    server.kill()?;
    installation.verify()?;
    let log = std::fs::read_to_string(path("log"))?;
    let said = log.matches("database file removed, renamed or replaced").count();
    assert_eq!(said, FILES.len() + 3, "{log}");
    println!("files moved away {said} times: {report}");
    Ok(())
}

/// How long a list may be refused for want of tables that follow, and readiness be wrong.
const LATE_AFTER_SECONDS: f64 = 5.0;

/// Payments are taken while the tables cannot follow; everything that needs the tables says why it
/// does not work.
async fn tables_stand_still(
    server: &Instance,
    (recorder, receiver): (&Recorder, &Receiver),
    why: &str,
) -> Result<()> {
    let ask = async |path: &str| -> Result<(u16, String)> {
        let url = format!("{}{path}", server.base());
        let client = http(Duration::from_secs(20))?;
        let answer = client.get(url).basic_auth(CLIENT_ID, Some(CLIENT_SECRET)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    };
    let (_, payment) = recorder.ask(&recorder.transfer(format!("before {why}"))).await?;
    let payment: serde_json::Value = serde_json::from_slice(&payment)?;
    let id = payment["id"].as_str().unwrap_or_default().to_owned();
    let is_settled = async || {
        let payment = recorder.api().get(&format!("/transactions/{id}")).await?;
        Ok(payment["status"] == "COMPLETED")
    };
    within_deadline("payments settle", is_settled).await?;
    let is_late = async || {
        let (status, body) = ask("/readyz").await?;
        Ok(status == 503 && body.contains("s behind the journal") && body.contains(why))
    };
    within_deadline("the server says that its tables are late", is_late).await?;
    let (_, metrics) = ask("/metrics").await?;
    let behind =
        metrics.lines().find_map(|it| it.strip_prefix("switchyard_tables_behind_seconds "));
    let behind: f64 = behind.unwrap_or_default().parse()?;
    assert!(behind >= LATE_AFTER_SECONDS, "{behind}");
    let (_, payment) = recorder.ask(&recorder.transfer(format!("after {why}"))).await?;
    let payment: serde_json::Value = serde_json::from_slice(&payment)?;
    let id = payment["id"].as_str().unwrap_or_default().to_owned();
    let is_delivered = async || {
        let bodies = receiver.received().into_iter().map(|it| it.body);
        let is_end = |body: &[u8]| {
            let body = String::from_utf8_lossy(body);
            body.contains(&id) && body.contains("COMPLETED")
        };
        Ok(bodies.into_iter().any(|body| is_end(&body)))
    };
    within_deadline("its last event is delivered", is_delivered).await?;
    let (status, refused) = ask("/2025-10-13/transactions").await?;
    assert_eq!(status, 503, "{refused}");
    assert!(refused.contains("lists cannot be read now, as their tables are behind"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_tables_stand_still_is_not_ready_and_says_why() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let (file, log) = (folder.path().join("crash.db"), folder.path().join("log"));
    let url = format!("sqlite://{}", file.display());
    let installation = Installation::new(BINARY, &url).logging_to(&log);
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    let receiver = Receiver::start()?;
    let endpoint = serde_json::json!({ "webhookEndpoint": receiver.url("/") });
    recorder.api().change("/config", endpoint).await?;
    recorder.ask(&recorder.transfer("first".to_owned())).await?;
    recorder.settled().await?;

    // Another program has locked the file of the tables.
    let other = rusqlite::Connection::open(&file)?;
    other.execute_batch("begin immediate")?;
    tables_stand_still(&server, (&recorder, &receiver), "database is locked").await?;
    other.execute_batch("rollback")?;
    recorder.api().ready().await?;
    recorder.settled().await?;
    let root = "select rootpage from sqlite_schema where name = 'events'";
    let page: u32 = other.query_row(root, [], |row| row.get(0))?;
    let size: u32 = other.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let (page, size) = (usize::try_from(page)?, usize::try_from(size)?);
    drop(other);

    // The root page of a table is damaged.
    server.terminate()?;
    within_deadline("the server ends", async || Ok(server.ended()?.is_some())).await?;
    let mut bytes = std::fs::read(&file)?;
    bytes[(page - 1) * size..page * size].fill(0xa5);
    std::fs::write(&file, bytes)?;
    server.resume()?;
    recorder.api().ready().await?;
    tables_stand_still(&server, (&recorder, &receiver), "malformed").await?;
    let log = std::fs::read_to_string(log)?;
    let is_logged = |line: &&str| line.contains("ERROR") && line.contains("tables do not follow");
    assert_eq!(log.lines().filter(is_logged).count(), 2, "{log}");
    Ok(())
}

async fn killed_under_load(installation: &Installation) -> Result<()> {
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);

    for round in 0..rounds() {
        // Killed after a number of answers that differs from round to round, so that the moment
        // falls everywhere between a request, its commit and its answer.
        recorder.more(20 + (round * 37) % 101).await?;
        server.kill()?;
        installation.verify()?;
        server.resume()?;
    }
    load.stop().await?;
    recorder.settled().await?;
    let report = recorder.check().await?;
    // Each client was waiting for an answer whenever the server was killed.
    assert!(report.lost >= rounds(), "no kill fell into a request: {report}");
    server.kill()?;
    installation.verify()?;
    println!("kills {}; {report}", rounds() + 1);
    Ok(())
}
