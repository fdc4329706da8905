//! Processes of the server itself, as people run it.

use std::fs::{File, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use crate::{ports, signals};

/// The first token of every database, which clients of tests present.
pub const CLIENT_ID: &str = "testbed";

/// Known to everybody, and good for nothing but databases of tests.
pub const CLIENT_SECRET: &str = "testbed-secret-0123456789abcdef";

/// The variable that says which database to open.
const DATABASE_VARIABLE: &str = "SWITCHYARD_DATABASE_URL";

/// Writes a script that stands before a binary, for [`Installation::new`] to run.
///
/// # Errors
///
/// If it cannot be written.
pub fn write_script(path: &Path, script: &str) -> Result<()> {
    let write = || {
        std::fs::write(path, script)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o700))
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Keeps from a process what the environment of the tests says to the server, and to themselves: a
/// server refuses variables that it does not know.
pub fn without_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SWITCHYARD_") {
            command.env_remove(name);
        }
    }
}

/// The common part of all processes of one installation.
#[derive(Clone, Debug)]
pub struct Installation {
    binary: PathBuf,
    environment: Vec<(String, String)>,
    /// Where servers write their log, if anybody reads it.
    log: Option<PathBuf>,
}

impl Installation {
    /// `binary` on the database at `database_url`.
    pub fn new(binary: impl AsRef<Path>, database_url: &str) -> Self {
        let environment = [
            (DATABASE_VARIABLE, database_url),
            ("SWITCHYARD_CLIENT_ID", CLIENT_ID),
            ("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { binary: binary.as_ref().to_owned(), environment: environment.into(), log: None }
    }

    /// The same with servers whose log is added to a file.
    #[must_use]
    pub fn logging_to(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    /// The same with one more variable in the environment of its processes.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts a server on a free port. It is not [ready](crate::recorder::Api::ready) yet.
    ///
    /// # Errors
    ///
    /// If the binary cannot be started.
    pub fn start(&self) -> Result<Instance> {
        self.start_at(ports::free()?)
    }

    /// The same on a port that its settings name too, such as in its domain.
    ///
    /// # Errors
    ///
    /// If the binary cannot be started.
    pub fn start_at(&self, port: u16) -> Result<Instance> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let process = self.spawn(address)?;
        Ok(Instance { installation: self.clone(), address, process })
    }

    /// Runs `verify` on the database, with a replay of its journal.
    ///
    /// # Errors
    ///
    /// If it finds a break or cannot look; the error has its report.
    pub fn verify(&self) -> Result<()> {
        self.run(&["verify", "--replay"]).map(drop)
    }

    /// Runs another command on the database, and gives what it prints.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or fails; the error has its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let name = arguments.join(" ");
        let mut command = self.command(arguments);
        let output = command.output().with_context(|| format!("starting {name}"))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&said));
        }
        String::from_utf8(output.stdout).with_context(|| format!("{name} printed no text"))
    }

    fn spawn(&self, address: SocketAddr) -> Result<Child> {
        let mut command = self.command(&["serve"]);
        command.args(["--listen", &address.to_string()]);
        let log = match &self.log {
            None => Stdio::null(),
            Some(path) => {
                let log = File::options().create(true).append(true).open(path);
                log.with_context(|| format!("opening {}", path.display()))?.into()
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().with_context(|| format!("starting {}", self.binary.display()))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments);
        without_variables(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running server. It is killed when it is dropped.
#[derive(Debug)]
pub struct Instance {
    installation: Installation,
    address: SocketAddr,
    process: Child,
}

impl Instance {
    /// Where it answers: `http://host:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it with SIGKILL, which no program can prepare for, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill().context("killing the server")?;
        self.process.wait().context("waiting for the server to be gone")?;
        Ok(())
    }

    /// Asks it to end in order, with SIGTERM.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn terminate(&self) -> Result<()> {
        signals::send(self.process.id(), Signal::SIGTERM)
    }

    /// Stops it where it is, with SIGSTOP: it keeps all that it has open and does nothing.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn freeze(&self) -> Result<()> {
        signals::send(self.process.id(), Signal::SIGSTOP)
    }

    /// Lets a [frozen](Self::freeze) server go on where it was.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn thaw(&self) -> Result<()> {
        signals::send(self.process.id(), Signal::SIGCONT)
    }

    /// The exit code of a server that has ended by itself; none while it runs.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled, or was killed.
    pub fn ended(&mut self) -> Result<Option<i32>> {
        let Some(status) = self.process.try_wait().context("looking after the server")? else {
            return Ok(None);
        };
        status.code().with_context(|| format!("the server was ended: {status}")).map(Some)
    }

    /// Starts it again, after it was killed or ended by itself, at the same address.
    ///
    /// # Errors
    ///
    /// If it is still running or cannot be started.
    pub fn resume(&mut self) -> Result<()> {
        if self.process.try_wait().context("looking after the server")?.is_none() {
            bail!("the server still runs, as process {}", self.process.id());
        }
        self.process = self.installation.spawn(self.address)?;
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
