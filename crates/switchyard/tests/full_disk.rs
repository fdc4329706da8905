//! A full disk refuses changes and loses none (reliability F05). Nothing has to be started again
//! once there is room.
//!
//! A real server on a real file system, which is small and in memory. It is mounted where only the
//! processes of the test see it; a system that does not allow that to its users has nothing to run
//! here.

#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use testbed::instance::{Installation, write_script};
use testbed::recorder::{Api, Load, Recorder, http, within_deadline};

const BINARY: &str = env!("CARGO_BIN_EXE_switchyard");

/// Room for the database and what was written of it twice, and soon full.
const DISK_MEGABYTES: u32 = 64;

/// How often the disk is filled.
const ROUNDS: usize = 2;

/// Clients that send at once.
const CLIENTS: usize = 8;

/// Whatever should happen has happened by then, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system, as long as the process that stands in its place of mounts lives.
struct Disk {
    folder: TempDir,
    keeper: Child,
}

impl Disk {
    /// A new one; none where users may not mount anything.
    fn new() -> Result<Option<Self>> {
        let folder = TempDir::new()?;
        std::fs::create_dir(folder.path().join("disk"))?;
        let script = "mount -t tmpfs -o size=$2m tmpfs \"$1\" && echo mounted && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.arg(folder.path().join("disk")).arg(DISK_MEGABYTES.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            spawned => spawned.context("making a place of mounts")?,
        };
        let mut said = String::new();
        let out = keeper.stdout.take().context("it is piped")?;
        BufReader::new(out).read_line(&mut said)?;
        let mut disk = Self { folder, keeper };
        if said != "mounted\n" {
            disk.keeper.wait()?;
            return Ok(None);
        }
        disk.make_entrance()?;
        Ok(Some(disk))
    }

    /// What runs the server where the disk is.
    fn entrance(&self) -> PathBuf {
        self.folder.path().join("switchyard")
    }

    fn make_entrance(&mut self) -> Result<()> {
        let keeper = self.keeper.id();
        let enter = format!("nsenter --target {keeper} --user --mount --preserve-credentials");
        let script = format!("#!/bin/sh\nexec {enter} -- '{BINARY}' \"$@\"\n");
        write_script(&self.entrance(), &script)
    }

    fn installation(&self) -> Installation {
        let file = self.folder.path().join("disk").join("full.db");
        Installation::new(self.entrance(), &format!("sqlite://{}", file.display()))
    }

    /// The file that takes all room, as it is seen from here.
    fn filler(&self) -> PathBuf {
        let inside = self.folder.path().join("disk").join("filler");
        let place = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        place.join(inside.strip_prefix("/").unwrap_or(&inside))
    }

    fn fill(&self) -> Result<()> {
        let mut file = std::fs::File::options().append(true).create(true).open(self.filler())?;
        for size in [1 << 20, 4_096] {
            let part = vec![1; size];
            loop {
                match file.write_all(&part) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => bail!("filling the disk: {error}"),
                }
            }
        }
        Ok(())
    }

    fn free(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_changes_and_loses_none() -> Result<()> {
    let Some(disk) = Disk::new()? else {
        println!("nothing was tried: users of this system may not mount anything");
        return Ok(());
    };
    let installation = disk.installation();
    let mut server = installation.start()?;
    let api = Api::new(&[server.base()])?;
    api.ready().await?;
    let client = http(PATIENCE)?;
    let readyz = format!("{}/readyz", server.base());
    let is_unready = async || Ok(client.get(&readyz).send().await?.status().as_u16() == 503);
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);
    for round in 0..ROUNDS {
        recorder.more(200).await?;
        disk.fill()?;
        within_deadline("it is not ready", &is_unready).await?;
        let mut probes = Vec::new();
        // How long the log has room for one more is unknown.
        let is_refused = async || {
            let probe = recorder.transfer(format!("probe {round} {}", probes.len()));
            let answer = recorder.api().send(&probe).await?;
            probes.push(probe);
            if answer.status().as_u16() != 503 {
                return Ok(false);
            }
            ensure!(answer.headers().contains_key("retry-after"), "{:?}", answer.headers());
            let body: serde_json::Value = answer.json().await?;
            ensure!(body["code"] == "SERVICE_UNAVAILABLE", "{body}");
            // Some were in the queue when others found the disk full.
            Ok(body["details"]["reason"] == "STORAGE_FULL")
        };
        within_deadline("a change is refused", is_refused).await?;
        recorder.api().get("/transactions?limit=1").await.context("what is there can be read")?;
        disk.free()?;
        recorder.api().ready().await?;
        for probe in &probes {
            recorder.ask(probe).await?;
        }
    }
    recorder.more(200).await?;
    load.stop().await?;
    recorder.settled().await?;
    let report = recorder.check().await?;
    ensure!(report.unavailable > 0, "no request was refused: {report}");
    server.kill()?;
    installation.verify()?;
    println!("a full disk, {ROUNDS} times: {report}");
    Ok(())
}
