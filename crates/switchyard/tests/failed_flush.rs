//! A disk that cannot flush ends the server, and the next start tells the truth (reliability F06).
//!
//! What the system could not write it may take for written the next time that it is asked. So
//! nothing is acknowledged after a failed flush, and nothing is done that would need the pages in
//! question: of the log, whose commit is uncertain, or of a database file, for which the log is
//! kept.
//!
//! A real server, in which `strace` makes one flush of a file fail. Where that is not installed, or
//! its users may not trace, there is nothing to run here.

#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use testbed::instance::{Installation, Instance, write_script};
use testbed::recorder::{Api, Load, Recorder, within_deadline};

const BINARY: &str = env!("CARGO_BIN_EXE_switchyard");

/// Clients that send at once.
const CLIENTS: usize = 8;

/// The file of the tables, that of the journal, and their logs.
const TABLES: &str = "flush.db";
const TABLES_LOG: &str = "flush.db-wal";
const JOURNAL: &str = "flush.db.journal";
const LOG: &str = "flush.db.journal-wal";

/// The file whose flush fails, and the number of that flush among those of its thread since the
/// server was started. The log of the tables is flushed before it is moved into their file.
const FAULTS: [(&str, u32); 5] = [(LOG, 1), (TABLES_LOG, 1), (LOG, 6), (TABLES_LOG, 2), (LOG, 41)];

/// The exit code that says so: `EX_IOERR`.
const EXIT_IO_ERROR: i32 = 74;

/// A server whose next start is one with a fault, if there is one.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// A new one; none where no process can be traced.
    fn new() -> Result<Option<Self>> {
        let mut traced = Command::new("strace");
        traced
            .args(["-D", "-f", "-o", "/dev/null", "true"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if !traced.status().is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let machine = Self { folder: TempDir::new()? };
        let (entrance, options) = (machine.entrance(), machine.options());
        let options = options.display();
        // Taken away before they are used, so that the start after the fault is one without. With
        // `-D` the process that was started is the server, and strace is beside it.
        let script = format!(
            "#!/bin/sh\n\
             if [ \"$1\" = serve ] && [ -e '{options}' ]; then\n\
             set -- -D -f -qq -o /dev/null $(cat '{options}') '{BINARY}' \"$@\"\n\
             rm '{options}'\n\
             exec strace \"$@\"\n\
             fi\n\
             exec '{BINARY}' \"$@\"\n"
        );
        write_script(&entrance, &script)?;
        Ok(Some(machine))
    }

    /// What runs the server.
    fn entrance(&self) -> PathBuf {
        self.folder.path().join("switchyard")
    }

    /// What strace is to do to the next one.
    fn options(&self) -> PathBuf {
        self.folder.path().join("options")
    }

    fn installation(&self) -> Installation {
        let file = self.folder.path().join(TABLES);
        Installation::new(self.entrance(), &format!("sqlite://{}", file.display()))
    }

    /// Has a flush of a file fail after the next start.
    fn break_flush(&self, name: &str, number: u32) -> Result<()> {
        let file = self.folder.path().join(name);
        let inject = format!("fsync,fdatasync:error=EIO:when={number}");
        let options = format!("-P {} -e inject={inject}", file.display());
        std::fs::write(self.options(), options).context("the options of strace")
    }

    /// Waits until a server has ended because of it: it says so, and leaves the log for the next.
    async fn ends(&self, server: &mut Instance, fault: &str) -> Result<()> {
        let code = code_of(server).await.with_context(|| fault.to_owned())?;
        ensure!(code == Some(EXIT_IO_ERROR), "{fault}: exit code {code:?}");
        let log =
            std::fs::metadata(self.folder.path().join(LOG)).with_context(|| fault.to_owned())?;
        ensure!(log.len() > 0, "{fault}: the log is empty");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_that_fails_ends_the_server_and_loses_nothing() -> Result<()> {
    let Some(machine) = Machine::new()? else { return nothing_was_tried() };
    let installation = machine.installation();
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);
    for (name, number) in FAULTS {
        recorder.more(50).await?;
        server.kill()?;
        machine.break_flush(name, number)?;
        server.resume()?;
        machine.ends(&mut server, &format!("flush {number} of {name} failed")).await?;
        installation.verify()?;
        server.resume()?;
    }
    recorder.more(50).await?;
    load.stop().await?;
    recorder.settled().await?;
    let report = recorder.check().await?;
    ensure!(report.lost >= FAULTS.len() as u64, "no fault fell into a request: {report}");
    server.kill()?;
    installation.verify()?;
    println!("{} flushes failed: {report}", FAULTS.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_that_fails_when_the_server_is_stopped_keeps_the_log() -> Result<()> {
    let Some(machine) = Machine::new()? else { return nothing_was_tried() };
    let installation = machine.installation();
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let recorder = Recorder::set_up(api).await?;
    for file in [TABLES, JOURNAL] {
        server.terminate()?;
        let code = code_of(&mut server).await?;
        ensure!(code == Some(0), "nothing was wrong yet: exit code {code:?}");
        // What follows is too little to be moved before the end.
        machine.break_flush(file, 1)?;
        server.resume()?;
        recorder.api().ready().await?;
        recorder.ask(&recorder.transfer(format!("the last of {file}"))).await?;
        server.terminate()?;
        machine.ends(&mut server, &format!("the last flush of {file} failed")).await?;
        installation.verify()?;
        server.resume()?;
        recorder.api().ready().await?;
    }
    recorder.settled().await?;
    recorder.check().await?;
    Ok(())
}

/// The exit code of a server, once it has ended.
async fn code_of(server: &mut Instance) -> Result<Option<i32>> {
    let mut code = None;
    let has_ended = async || {
        code = server.ended()?;
        Ok(code.is_some())
    };
    within_deadline("the server ends", has_ended).await?;
    Ok(code)
}

/// Says so, and that nothing failed.
fn nothing_was_tried() -> Result<()> {
    println!("nothing was tried: strace is not there, or may not trace anything");
    Ok(())
}
