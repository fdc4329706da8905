//! Where the database is: a file of our own, or a PostgreSQL server.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use store::engine::{Engine, PostgresServer, SqliteFile};
use store::error::StoreError;

use crate::command::Failure;
use crate::config::ConfigError;

/// The file of the key that servers with a PostgreSQL database have, in the folder that they are
/// started in.
const KEY_FILE: &str = "switchyard.key";

/// A database. Shows no password.
#[derive(Debug, Clone)]
pub enum Database {
    /// SQLite, in this file.
    Sqlite(PathBuf),
    /// A database on a PostgreSQL server.
    Postgres(PostgresServer),
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(server) => server.fmt(f),
        }
    }
}

/// Keeps other servers away from a database that one server has for itself, until it is dropped or
/// the process ends, however it ends.
#[derive(Debug)]
pub struct Held {
    _lock: Option<File>,
}

impl Database {
    /// Makes sure that no other server has this database, unless servers may share it. Commands
    /// beside the server are not kept away.
    pub fn hold(&self) -> Result<Held, Failure> {
        let Self::Sqlite(path) = self else { return Ok(Held { _lock: None }) };
        if path.is_dir() {
            return Err(Failure::new(format!(
                "{self} is a folder: name a file with --database-url"
            )));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Failure::new(format!(
                "there is no folder {} for the database: make it, or name another file with \
                 --database-url",
                folder.display()
            )));
        }
        // A file that has another name too has one log, and is one database. One that is not there
        // yet has one name.
        let mut lock_path = path.canonicalize().unwrap_or_else(|_| path.clone()).into_os_string();
        lock_path.push(".lock");
        let refused = |error: &dyn fmt::Display| {
            Failure::new(format!("{}: {error}", Path::new(&lock_path).display()))
        };
        let file = File::options().create(true).append(true).open(&lock_path);
        let file = file.map_err(|error| refused(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(Held { _lock: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
                "another server has {self}: stop it first, or use PostgreSQL, which several servers \
                 can share"
            ))),
            Err(TryLockError::Error(error)) => Err(refused(&error)),
        }
    }

    /// The database that a URL names.
    ///
    /// Whatever is wrong with it, the error does not repeat it: it may hold a password.
    pub fn parse(url: &str) -> Result<Self, ConfigError> {
        let refused = |what: &str| Err(ConfigError::new(format!("the database URL {what}")));
        let Some((scheme, path)) = url.split_once("://") else {
            return refused("must be sqlite://FILE or postgres://USER:PASSWORD@HOST/DATABASE");
        };
        match scheme {
            "sqlite" => {}
            "postgres" | "postgresql" => {
                let server = PostgresServer::new(url);
                let server = server.map_err(|error| ConfigError::new(error.to_string()))?;
                return Ok(Self::Postgres(server));
            }
            _ => return refused("has an unknown scheme: use sqlite:// or postgres://"),
        }
        if path.is_empty() || path.ends_with('/') {
            return refused("names no file: use sqlite://FILE, or sqlite:///FILE from the root");
        }
        if path.contains(":memory:") {
            return refused("must name a file, as memory forgets: use sqlite://FILE");
        }
        // SQLite would take these for options or escapes; here they would silently become file
        // names.
        if path.contains(['?', '#', '%', '\0']) {
            return refused("must be a plain path after sqlite://, without ? # or %");
        }
        Ok(Self::Sqlite(PathBuf::from(path)))
    }

    /// The way to it.
    pub fn engine(&self) -> Box<dyn Engine> {
        match self {
            Self::Sqlite(path) => Box::new(SqliteFile::new(path)),
            Self::Postgres(server) => Box::new(server.clone()),
        }
    }

    /// Whether other servers may use it at the same time.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(_) => true,
        }
    }

    /// Whether there is something in it. The key is made before the database, so data without a key
    /// means that the key was lost.
    pub fn holds_data(&self) -> Result<bool, StoreError> {
        self.engine().holds_data()
    }

    /// The file of its key, unless another is named.
    pub fn key_file(&self) -> PathBuf {
        match self {
            Self::Sqlite(path) => {
                let mut path = path.as_os_str().to_owned();
                path.push(".key");
                PathBuf::from(path)
            }
            Self::Postgres(_) => Path::new(KEY_FILE).to_owned(),
        }
    }
}
