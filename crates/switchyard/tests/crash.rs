//! kill -9 at any moment loses no acknowledged change and doubles none.
//!
//! The server is killed in the middle of requests, again and again, on the same database, and
//! started again. Clients ask until they know, see [`testbed::recorder`]. After each kill `verify`
//! must find nothing. In the end every answer is still the same to the byte, the money adds up, and
//! everything that was under way has settled.

use anyhow::Result;
use testbed::instance::Installation;
use testbed::postgres::Database;
use testbed::recorder::{Api, Load, Recorder};

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
