//! Servers under test, each in a process of its own: this program, started again as a server.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::counters::{ATTEMPTS, Counters};
use crate::http::{Client, Heads};
use crate::place::Place;
use crate::receivers::Receivers;
use crate::sessions::Keys;
use crate::time::{now, pause};
use crate::yardsticks;

/// The key that all databases of the benchmark are sealed with. They hold nothing of anybody's.
pub const SECRET_KEY: [u8; 32] = [1; 32];

/// The program whose allocator counts, beside this one.
const COUNTING: &str = "bench-counted";

const CLIENT_ID: &str = "bench";
const CLIENT_SECRET: &str = "bench-secret-of-no-one";

/// A start on the largest database that takes longer hangs.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Between two questions whether a server is ready; small against the fastest start.
const READY_POLL: Duration = Duration::from_millis(1);

/// The time that a server promises for an orderly end, and some.
const STOPPED_WITHIN: Duration = Duration::from_secs(40);

/// Between two looks at a process that is stopping.
const POLL: Duration = Duration::from_millis(20);

/// Between two looks at a backlog. The server works for each, beside what is measured.
const BACKLOG_POLL: Duration = Duration::from_millis(100);

/// A backlog that is still there after this is not being worked off.
const SETTLED_WITHIN: Duration = Duration::from_secs(1_200);

/// No attempt for so long means that every event was delivered.
const DELIVERED: Duration = Duration::from_secs(3);

/// The end of a log that a message repeats, in bytes.
const LOG_SHOWN_BYTES: u64 = 2_000;

/// A server that is ready.
pub struct Server {
    process: Child,
    address: SocketAddr,
    log: PathBuf,
    ready_after: Duration,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// Of that, what is the process's own and not pages of its file.
    pub own: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

/// How requests to every server of the benchmark begin.
pub fn heads() -> Heads {
    Heads::new(CLIENT_ID, CLIENT_SECRET)
}

/// Starts this program again, as whatever a measurement needs beside it.
#[derive(Debug, Clone)]
pub struct Starter {
    program: PathBuf,
    logs: PathBuf,
}

impl Starter {
    /// Starts `program`, which is this one, and leaves logs of servers in a folder.
    pub fn new(program: &Path, logs: &Path) -> Self {
        Self { program: program.to_owned(), logs: logs.to_owned() }
    }

    /// The same with a server that counts its allocations.
    #[must_use]
    pub fn counting(&self) -> Self {
        Self { program: self.program.with_file_name(COUNTING), logs: self.logs.clone() }
    }

    /// The folder of the logs, which is on the disk that is meant.
    pub fn folder(&self) -> &Path {
        &self.logs
    }

    /// The program with a command. Nothing of the caller's environment reaches it, so that every
    /// run is configured alike.
    fn command(&self, command: &str, place: &Place) -> Command {
        let mut child = Command::new(&self.program);
        child
            .arg(command)
            .env_clear()
            // Not as an argument, which everybody on the machine can read: it may have a password.
            .env("SWITCHYARD_DATABASE_URL", place.url())
            .env("SWITCHYARD_SECRET_KEY", SECRET_KEY.map(|byte| format!("{byte:02x}")).concat())
            .env("SWITCHYARD_CLIENT_ID", CLIENT_ID)
            .env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET);
        child
    }

    /// Fills an empty database with customers and payments, whose events wait for these endpoints.
    pub fn generate(
        &self,
        place: &Place,
        payers: u64,
        payments: u64,
        endpoints: &[&str],
    ) -> Result<()> {
        let mut command = self.command("generate", place);
        command.args(["--payers", &payers.to_string(), "--payments", &payments.to_string()]);
        if !endpoints.is_empty() {
            command.arg("--endpoints").args(endpoints);
        }
        let status = command.status()?;
        ensure!(status.success(), "the data was not generated: {status}");
        Ok(())
    }

    /// Starts those to whom events are delivered.
    pub fn receive(&self) -> Result<Receivers> {
        let mut command = Command::new(&self.program);
        command.arg("receivers").env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
        Receivers::of(command.spawn().context("starting the receivers")?)
    }

    /// Starts a server on a database and waits until it is ready.
    pub fn serve(&self, place: &Place) -> Result<Server> {
        let address = free_address()?;
        let log = self.logs.join(format!("server-{}.log", address.port()));
        let mut command = self.command("server", place);
        command.args(["--listen", &address.to_string()]);
        // The server ends when this program does, even if that is killed: see `end_with_parent`.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let began = now();
        let process = command.spawn().context("starting a server")?;
        let mut server = Server { process, address, log, ready_after: Duration::ZERO };
        let mut client = server.client();
        loop {
            let ready = client.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
            if ready.is_ok_and(|(status, _)| status == 200) {
                break;
            }
            if let Some(status) = server.process.try_wait()? {
                bail!("the server ended before it was ready, {status}:\n{}", server.log_end()?);
            }
            ensure!(began.elapsed() < READY_WITHIN, "not ready in {READY_WITHIN:?}");
            pause(READY_POLL);
        }
        server.ready_after = began.elapsed();
        Ok(server)
    }
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From the start of its process to its first answer that it is ready.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        Client::new(self.address, heads())
    }

    /// Its memory, as the system counts it.
    pub fn memory(&self) -> Result<Memory> {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            kibibytes.map(|count: u64| count * 1024).with_context(|| format!("{path} lacks {name}"))
        };
        Ok(Memory { resident: bytes("VmRSS")?, own: bytes("RssAnon")?, peak: bytes("VmHWM")? })
    }

    /// Its counters now.
    pub fn counters(&self) -> Result<Counters> {
        let mut client = self.client();
        let scrape = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let (status, metrics) = client.ask(scrape)?;
        ensure!(status == 200, "/metrics: {status}");
        let mut counters = Counters::of_server(self.process.id())?;
        for text in [metrics, client.fetch(yardsticks::ALLOCATED)?] {
            counters.merge(Counters::scraped(str::from_utf8(&text)?));
        }
        Ok(counters)
    }

    /// Has the events of the platform of the first token go to an endpoint, or to none.
    pub fn notify(&self, endpoint: Option<&str>) -> Result<()> {
        let body = json!({ "webhookEndpoint": endpoint });
        self.client().patch("/config", &Keys::new().next(), &body).map(drop)
    }

    /// Waits until no event is delivered any more.
    pub fn deliver(&self) -> Result<()> {
        let attempts = || anyhow::Ok(self.counters()?.total(ATTEMPTS));
        let (mut last, mut since) = (attempts()?, now());
        let began = now();
        while since.elapsed() < DELIVERED {
            pause(BACKLOG_POLL);
            let count = attempts()?;
            if count > last {
                (last, since) = (count, now());
            }
            ensure!(began.elapsed() < SETTLED_WITHIN, "events are still delivered");
        }
        Ok(())
    }

    /// How many events the platform of the first token has.
    pub fn events(&self) -> Result<u64> {
        let (mut client, mut count, mut from) = (self.client(), 0, "start=oldest".to_owned());
        loop {
            let page = client.get(&format!("/events?limit=100&{from}"))?;
            count += page["data"].as_array().context("a page has data")?.len() as u64;
            if page["hasMore"] != true {
                return Ok(count);
            }
            let cursor = page["nextCursor"].as_str().context("a page has a cursor")?;
            from = format!("cursor={cursor}");
        }
    }

    /// Waits until no payment is under way, and tells how long that took.
    pub fn settle(&self) -> Result<Duration> {
        let began = now();
        let mut client = self.client();
        loop {
            let mut open = 0;
            for status in ["PENDING", "PROCESSING"] {
                let page = client.get(&format!("/transactions?status={status}&limit=1"))?;
                // More than are counted have no total.
                open += page["totalCount"].as_u64().unwrap_or(1);
            }
            if open == 0 {
                return Ok(began.elapsed());
            }
            ensure!(
                began.elapsed() < SETTLED_WITHIN,
                "{open} payments are still under way after {SETTLED_WITHIN:?}"
            );
            pause(BACKLOG_POLL);
        }
    }

    /// Asks it to stop and waits for its orderly end, after which its database is closed.
    pub fn stop(mut self) -> Result<()> {
        let id = i32::try_from(self.process.id()).context("ids of processes are positive")?;
        kill(Pid::from_raw(id), Signal::SIGTERM).context("asking the server to stop")?;
        let began = now();
        let status: ExitStatus = loop {
            if let Some(status) = self.process.try_wait()? {
                break status;
            }
            ensure!(began.elapsed() < STOPPED_WITHIN, "the server does not stop");
            pause(POLL);
        };
        ensure!(status.success(), "the server ended with {status}:\n{}", self.log_end()?);
        std::fs::remove_file(&self.log).context("removing the log of a server")
    }

    fn log_end(&self) -> Result<String> {
        let mut log = File::open(&self.log)?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LOG_SHOWN_BYTES)))?;
        let mut end = Vec::new();
        log.read_to_end(&mut end)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has stopped already cannot be killed, and need not be.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address without a listener now.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Ends this process once its standard input does, which its parent holds open.
pub fn end_with_parent() -> Result<()> {
    std::thread::Builder::new().name("parent".to_owned()).spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    })?;
    Ok(())
}
