//! A server of our own, with its data, that can be broken.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::binaries::{self, Binaries};
use super::keeper::Keeper;
use super::processes;
use super::server::Server;
use crate::{ports, signals, wait};

/// The owner of everything in the cluster.
pub(super) const USER: &str = "switchyard";

/// Settings of every server of ours. Nothing here makes it less durable than it is out of
/// the box, and two settings say so, because tests of durability rest on them.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    // The path of a temporary folder can be longer than a socket's name may be.
    ("unix_socket_directories", ""),
    // One for each of many test processes with a pool each.
    ("max_connections", "400"),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
];

/// Recovery after a kill replays at most one checkpoint's worth of log: seconds.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A shutdown writes what is in memory to disk: seconds.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// Another process can take a free port before the server does; hardly twice in a row.
const STARTS_MAX: u32 = 5;

/// Bytes from the end of the log that an error shows.
const LOG_SHOWN_MAX: usize = 2_000;

/// How a server is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Rolls back what runs, writes a checkpoint, ends.
    Fast,
    /// Ends at once, as if it had crashed; the next start recovers.
    Immediate,
}

/// A server with data of its own. It ends, and its data go, when the value is dropped or our
/// process ends.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    settings: Vec<(String, String)>,
    port: u16,
    server: Server,
    /// The postmaster, a direct child, so that only this process reaps it and its id stays.
    process: Option<Child>,
    keeper: Keeper,
    /// Removed last.
    folder: TempDir,
}

impl Cluster {
    /// A new cluster, ready for connections, that keeps what it acknowledges.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is not installed or does not start; the error has the end of its log.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with `settings` beside ours and stronger than ours.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is not installed or does not start; the error has the end of its log.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Self> {
        Self::start_with_files(settings, &[])
    }

    /// Like [`start_with`](Self::start_with), with `files` (name and content) in the folder of the
    /// data, readable by the server only: `pg_hba.conf`, or `server.crt` and `server.key`.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is not installed or does not start; the error has the end of its log.
    pub fn start_with_files(settings: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Self> {
        let binaries = Binaries::find()?;
        let mut cluster = Self::prepare(binaries, settings)?;
        let mut command = cluster.command("initdb");
        command.arg("--pgdata").arg(cluster.data());
        command.args(["--username", USER, "--auth", "trust", "--encoding", "UTF8"]);
        // The new files need not be safe: nothing in them was acknowledged to anybody.
        command.args(["--no-locale", "--no-sync", "--no-instructions"]);
        binaries::output(command).context("making a cluster")?;
        for (name, content) in files {
            let path = cluster.data().join(name);
            std::fs::write(&path, content).with_context(|| format!("writing {name}"))?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))
                .with_context(|| format!("keeping {name} secret"))?;
            cluster.binaries.give(&path)?;
        }
        cluster.start_first()?;
        Ok(cluster)
    }

    /// A folder, a port and a keeper, but no data and no server yet.
    pub(super) fn prepare(binaries: Binaries, settings: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("switchyard-postgres-").tempdir();
        let folder = folder.context("making a folder for the cluster")?;
        binaries.give(folder.path())?;
        let keeper = Keeper::start(folder.path())?;
        let settings = SETTINGS.iter().chain(settings);
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let port = ports::free()?;
        let server = Server::new(url(port), binaries.clone());
        let settings = settings.collect();
        Ok(Self { binaries, settings, port, server, process: None, keeper, folder })
    }

    /// The first start, which may choose another port.
    pub(super) fn start_first(&mut self) -> Result<()> {
        let mut starts = 1;
        while let Err(error) = self.resume() {
            if starts == STARTS_MAX || !self.log().contains("could not bind") {
                return Err(error);
            }
            starts += 1;
            self.port = ports::free()?;
            self.server = Server::new(url(self.port), self.binaries.clone());
        }
        Ok(())
    }

    /// Where it is reached. The address stays the same when it is started again.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything that the server has said.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Kills the postmaster and all backends with SIGKILL. None can finish anything. A killed
    /// cluster that is never [resumed](Self::resume) is fenced.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn kill(&mut self) -> Result<()> {
        processes::kill_all(self.process_id()?)?;
        self.reap()
    }

    /// Ends the server as `shutdown` says and waits until it is gone.
    ///
    /// # Errors
    ///
    /// If it does not run, or is still there after a minute.
    pub fn stop(&mut self, shutdown: Shutdown) -> Result<()> {
        let signal = match shutdown {
            Shutdown::Fast => Signal::SIGINT,
            Shutdown::Immediate => Signal::SIGQUIT,
        };
        signals::send(self.process_id()?, signal)?;
        self.reap()
    }

    /// Starts the server again after it was killed or stopped: same data, same port. Ready for
    /// connections when this returns.
    ///
    /// # Errors
    ///
    /// If it runs already or does not start; the error has the end of its log.
    pub fn resume(&mut self) -> Result<()> {
        if let Some(process) = &self.process {
            bail!("the server runs already, as process {}", process.id());
        }
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.context("opening the log of the server")?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // An interrupt must not reach the server before we have looked at the damage.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = command.spawn().context("starting the server")?;
        self.keeper.tell(Some(process.id()))?;
        self.process = Some(process);
        let ready = self.wait_until_ready();
        if ready.is_err() && self.process.is_some() {
            self.kill()?;
        }
        ready
            .with_context(|| format!("starting the server; its log ends with:\n{}", self.log_end()))
    }

    /// Stops the server as `shutdown` says and starts it again.
    ///
    /// # Errors
    ///
    /// If it does not run, does not end or does not start.
    pub fn restart(&mut self, shutdown: Shutdown) -> Result<()> {
        self.stop(shutdown)?;
        self.resume()
    }

    /// Stops all its processes where they are, as a machine does that hangs: connections stay open
    /// and are not answered, and new ones are accepted by the kernel and not answered.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn freeze(&self) -> Result<()> {
        processes::freeze(self.process_id()?)
    }

    /// Stops the process that writes the log behind the commits that do not wait for it: those are
    /// flushed by a checkpoint only, or by another commit that waits.
    ///
    /// # Errors
    ///
    /// If the server does not run.
    pub fn freeze_wal_writer(&self) -> Result<()> {
        // While it sleeps it holds no lock that others wait for.
        const WAL_WRITER: &str = "select pid from pg_stat_activity \
            where backend_type = 'walwriter' and wait_event = 'WalWriterMain'";
        // It starts when the server takes connections already.
        let id = wait::until("the WAL writer has started", READY_WITHIN, || {
            Ok(Some(self.server.query(WAL_WRITER)?).filter(|id| !id.is_empty()))
        })?;
        processes::freeze_one(id.parse().with_context(|| format!("{id} is no process id"))?)
    }

    /// Lets a [frozen](Self::freeze) server go on where it was.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn thaw(&self) -> Result<()> {
        processes::thaw(self.process_id()?)
    }

    /// Changes a setting that can be changed while the server runs. It holds for every statement
    /// that starts later, and after a restart.
    ///
    /// # Errors
    ///
    /// If the server refuses the setting.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let value = value.replace('\'', "''");
        self.server.query(&format!("alter system set {name} = '{value}'"))?;
        self.server.query("select pg_reload_conf()")?;
        Ok(())
    }

    pub(super) fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// A program of the same version, run in the folder of the cluster.
    pub(super) fn command(&self, program: &str) -> std::process::Command {
        self.binaries.command(program, self.folder.path())
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let start = log.len().saturating_sub(LOG_SHOWN_MAX);
        let start = (start..=log.len()).find(|index| log.is_char_boundary(*index));
        log[start.unwrap_or(0)..].to_owned()
    }

    fn process_id(&self) -> Result<u32> {
        let process = self.process.as_ref().context("the server does not run: resume it first")?;
        Ok(process.id())
    }

    /// The server writes what it is about into a file beside its data. Whether it is our process
    /// which says so matters: an answer on the port could come from another server.
    fn wait_until_ready(&mut self) -> Result<()> {
        let path = self.data().join("postmaster.pid");
        wait::until("the server is ready", READY_WITHIN, || {
            let process = self.process.as_mut().context("the server was started above")?;
            if let Some(status) = process.try_wait().context("looking after the server")? {
                self.process = None;
                self.keeper.tell(None)?;
                bail!("the server ended: {status}");
            }
            Ok(is_ready(&path, process.id()).then_some(()))
        })
    }

    /// Waits until the postmaster, which was asked to end, has ended.
    fn reap(&mut self) -> Result<()> {
        let process = self.process.as_mut().context("the server does not run")?;
        wait::until("the server ends", STOPPED_WITHIN, || {
            process.try_wait().context("looking after the server")
        })?;
        self.process = None;
        self.keeper.tell(None)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.process.is_some() {
            // The keeper removes leftovers.
            let _ = self.kill();
        }
    }
}

/// Where a server on `port` is reached.
fn url(port: u16) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}")
}

/// Whether the file says that `process` takes connections: its id is on the first line, its state
/// on the eighth.
fn is_ready(path: &Path, process: u32) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(process.to_string().as_str()) && lines.nth(6) == Some("ready")
}
