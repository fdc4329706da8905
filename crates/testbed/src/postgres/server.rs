//! Where a server is, and databases on it.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Result;

use super::binaries::{self, Binaries};
use super::cluster::Cluster;

/// Names the server that all tests of a run share, as a URL without a database:
/// `postgres://user@host:port`. Its user must be allowed to make databases.
pub const SHARED_VARIABLE: &str = "SWITCHYARD_TEST_POSTGRES";

/// The database that every server has, for commands that are about the server.
const MAINTENANCE: &str = "postgres";

/// A server that can be reached, started here or not.
#[derive(Clone, Debug)]
pub struct Server {
    url: String,
    binaries: Binaries,
}

impl Server {
    /// The server at `url`, which names no database.
    pub(super) fn new(url: String, binaries: Binaries) -> Self {
        Self { url, binaries }
    }

    /// Its URL without a database: `postgres://user@host:port`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port: what stands behind the user in the URL.
    pub fn address(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        rest.rsplit_once('@').map_or(rest, |(_, address)| address)
    }

    /// The same server as it is reached at another address, where something passes everything on.
    pub fn through(&self, address: SocketAddr) -> Self {
        let user = &self.url[..self.url.len() - self.address().len()];
        Self { url: format!("{user}{address}"), binaries: self.binaries.clone() }
    }

    /// The URL of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        format!("{}/{database}", self.url)
    }

    /// Runs one statement outside any transaction, in the database that every server has. Gives
    /// one line for each row, fields separated by `|`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or refuses; the error has its message.
    pub fn query(&self, sql: &str) -> Result<String> {
        self.query_in(MAINTENANCE, sql)
    }

    /// Like [`query`](Self::query), in `database`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or refuses; the error has its message.
    pub fn query_in(&self, database: &str, sql: &str) -> Result<String> {
        let mut command = self.binaries.command("psql", Path::new("/"));
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--no-password"]);
        command.args(["--dbname", &self.url_of(database), "--command", sql]);
        Ok(binaries::output(command)?.trim_end().to_owned())
    }
}

/// A database of its own for one test, empty at first. It is dropped with the value, whatever is
/// still connected.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    /// A database on the server that the run [shares](shared).
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL or it refuses: a test cannot go on without.
    pub fn fresh() -> Self {
        Self::new(shared()).expect("the shared server makes a database")
    }

    /// A database on `server`.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub fn new(server: &Server) -> Result<Self> {
        // The hasher has random keys. A process id alone would not do: it comes again while the
        // database of a test that was killed is still there.
        let random = RandomState::new().hash_one(std::process::id());
        let name = format!("test_{}_{random:016x}", std::process::id());
        // Copied through the log, because copying files makes two checkpoints for which all tests
        // that write have to wait.
        let sql = format!("create database {name} template template0 strategy wal_log");
        server.query(&sql)?;
        Ok(Self { server: server.clone(), name })
    }

    /// The URL that a client connects to.
    pub fn url(&self) -> String {
        self.server.url_of(&self.name)
    }

    /// Its name, unique on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is on.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs one statement in it, as [`Server::query`] does.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or refuses; the error has its message.
    pub fn query(&self, sql: &str) -> Result<String> {
        self.server.query_in(&self.name, sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that is gone has taken its databases along.
        let _ = self.server.query(&format!("drop database {} with (force)", self.name));
    }
}

/// The server that all tests of a run share: the one that [`SHARED_VARIABLE`] names, else one that
/// is started for this process at the first call and lives as long as it does.
///
/// # Panics
///
/// If there is no PostgreSQL or it does not start: a test cannot go on without.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<(Server, Option<Cluster>)> = OnceLock::new();
    let start = || {
        if let Ok(url) = std::env::var(SHARED_VARIABLE) {
            return Ok((Server::new(url, Binaries::find()?), None));
        }
        let cluster = Cluster::start()?;
        Ok::<_, anyhow::Error>((cluster.server().clone(), Some(cluster)))
    };
    let (server, _) = SHARED.get_or_init(|| start().expect("PostgreSQL is installed and starts"));
    server
}
