//! Where the database is: a file of our own, or a PostgreSQL server.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use store::backup::{is_begun, make_journal, make_tables, schema};
use store::engine::Engine;
use store::error::StoreError;
use store::{PostgresServer, SqliteFile, journal_of, server_key};

use crate::command::Failure;
use crate::exit::ConfigError;
use crate::files::{folder_of, sync_folder};
use crate::keyfile;
use crate::scratch::Scratch;

/// The file of the key that servers with a PostgreSQL database have, in the folder that they are
/// started in.
const KEY_FILE: &str = "switchyard.key";

/// The file of a database of which nothing else is said.
const USUAL_FILE: &str = "switchyard.db";

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
#[derive(Debug, Default)]
pub struct Held {
    /// The file whose name says which database is meant. It is there before the database is.
    lock: Option<File>,
    /// The tables and the journal themselves, which may have other names, or may have lost their
    /// lock's.
    files: Vec<(PathBuf, File)>,
}

impl Database {
    /// Makes sure that no other server has this database, unless servers may share it. Commands
    /// beside the server are not kept away.
    pub fn hold(&self) -> Result<Held, Failure> {
        let Self::Sqlite(path) = self else { return Ok(Held::default()) };
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
        let file = File::options().create(true).append(true).open(&lock_path);
        let lock = self.locked(Path::new(&lock_path), file)?;
        Ok(Held { lock: Some(lock), files: Vec::new() })
    }

    /// Locks the database's own two files too, as soon as each is there. A file that has several
    /// names (links of both kinds), or whose lock was removed, is still one file: a copy of the
    /// tables beside a link to the journal is no other database.
    ///
    /// The lock is of the kind of `flock`, of which SQLite's own locks know nothing on Linux.
    /// Elsewhere the two are one, and SQLite would wait for ever.
    pub fn hold_files(&self, held: &mut Held) -> Result<(), Failure> {
        let Self::Sqlite(path) = self else { return Ok(()) };
        if !cfg!(target_os = "linux") || held.lock.is_none() {
            return Ok(());
        }
        for path in [path.clone(), journal_of(path)] {
            let is_held = held.files.iter().any(|(held, _)| *held == path);
            if !is_held && path.exists() {
                let file = self.locked(&path, File::options().read(true).open(&path))?;
                held.files.push((path, file));
            }
        }
        Ok(())
    }

    fn locked(&self, path: &Path, file: io::Result<File>) -> Result<File, Failure> {
        let refused =
            |error: &dyn fmt::Display| Failure::new(format!("{}: {error}", path.display()));
        let file = file.map_err(|error| refused(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
                "another server has {self}: stop it first, or use PostgreSQL, which several servers \
                 can share"
            ))),
            Err(TryLockError::Error(error)) => Err(refused(&error)),
        }
    }

    /// Makes the files of a database that is not there, with a schema and nothing else. They appear
    /// whole, so that a file without a schema is never one that a start was interrupted with.
    pub fn create(&self) -> Result<(), Failure> {
        let Self::Sqlite(path) = self else { return Ok(()) };
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        let journal = journal_of(path);
        self.make(&journal, make_journal)?;
        let is_begun = is_begun(&journal);
        let is_begun = is_begun.map_err(|error| Failure::new(format!("{self}: {error}")))?;
        // Another process that has begun it has made the tables before.
        if is_begun && path.symlink_metadata().is_err() {
            return Err(Failure::new(format!(
                "{self} is not there, and its journal {} is: put the file back, have its tables made \
                 anew by switchyard rebuild, or, to begin anew, move the journal away",
                journal.display()
            )));
        }
        self.make(path, make_tables)
    }

    /// Makes a file of the database, unless it is there or another process is first.
    fn make(&self, path: &Path, make: fn(&Path) -> Result<(), StoreError>) -> Result<(), Failure> {
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        let failed = |error: &dyn fmt::Display| Failure::new(format!("{self}: {error}"));
        let folder = folder_of(path);
        let file = Scratch::brief(folder).map_err(|error| failed(&error))?;
        make(file.path()).map_err(|error| failed(&error))?;
        match file.keep(path) {
            Ok(()) => sync_folder(folder).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Whether the tables are gone, or their file is empty, and the journal was begun.
    pub fn has_lost_tables(&self) -> bool {
        let Self::Sqlite(path) = self else { return false };
        let is_lost = path.metadata().map_or(true, |file| {
            file.len() == 0 || schema(path).is_ok_and(|schema| schema.is == 0)
        });
        let journal = journal_of(path);
        is_lost && journal.exists() && is_begun(&journal).unwrap_or(false)
    }

    /// The part of the database from which lost tables are made anew, and which has its secrets.
    pub fn without_tables(&self) -> Result<Self, Failure> {
        let Self::Sqlite(path) = self else { return Ok(self.clone()) };
        let journal = journal_of(path);
        if journal.exists() {
            return Ok(Self::Sqlite(journal));
        }
        Err(Failure::new(format!(
            "the tables of {self} can be made anew from its journal only, and {} is not there: put \
             it back, or restore a backup with switchyard restore",
            journal.display()
        )))
    }

    /// Refuses a database that is gone, or a file in which nothing is, beside its key: what was in
    /// it was lost, and a new one in its place would hide that.
    pub fn refuse_lost(&self, key: &Path) -> Result<(), Failure> {
        let Self::Sqlite(path) = self else { return Ok(()) };
        let is_gone = path.symlink_metadata().is_err() && !journal_of(path).exists();
        if is_gone && keyfile::was_made(key) {
            return Err(Failure::new(format!(
                "{self} is not there, and its key {} is: put the file back or mount its volume, \
                 restore it with switchyard restore, or, to begin anew, move the key away",
                key.display()
            )));
        }
        let is_empty = match path.metadata() {
            Err(_) => false,
            Ok(file) if file.len() == 0 => true,
            // An unreadable file is not empty: its opening says what is wrong.
            Ok(_) => schema(path).is_ok_and(|schema| schema.is == 0),
        };
        if !is_empty {
            return Ok(());
        }
        if self.has_lost_tables() {
            return Err(Failure::new(format!(
                "{self} is empty, and its key {} is there: its tables were lost, and its journal \
                 has everything: put the file back, or have its tables made anew by switchyard \
                 rebuild",
                key.display()
            )));
        }
        Err(Failure::new(format!(
            "{self} is empty, and its key {} is there: the data was lost. Restore it with \
             switchyard restore, or, to begin anew, move the key and what is left of the database \
             away",
            key.display()
        )))
    }

    /// Why the folder of the database cannot be written to, if that is so. SQLite keeps the log of
    /// a database that is in use there, also for one who only reads.
    pub fn unwritable_folder(&self) -> Option<String> {
        let Self::Sqlite(path) = self else { return None };
        let folder = folder_of(path);
        #[cfg(unix)]
        let refused = nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).err()?.desc();
        #[cfg(not(unix))]
        let refused = folder.metadata().ok()?.permissions().readonly().then_some("read-only")?;
        Some(format!(
            "{self}: its folder {} cannot be written to ({refused}), and a database that was in \
             use can only be read where its log (-wal, -shm) can be: make the folder writable, or \
             copy the database with its -wal to another one",
            folder.display()
        ))
    }

    /// The database that a URL names.
    ///
    /// Whatever is wrong with it, the error does not repeat it: it may hold a password.
    pub fn parse(url: &str) -> Result<Self, ConfigError> {
        let refused = |what: &str| Err(ConfigError::new(format!("the database URL {what}")));
        // A file that a URL was read from ends in a line break.
        let url = url.trim();
        if url.contains(char::is_control) {
            return refused("has a line break or another control character in it");
        }
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

    /// The URL to name it with in a command that is printed; none where nothing needs to be said,
    /// or it may hold a password.
    pub fn url_to_repeat(&self) -> Option<String> {
        match self {
            Self::Sqlite(path) if path != Path::new(USUAL_FILE) => {
                Some(format!("sqlite://{}", path.display()))
            }
            Self::Sqlite(_) | Self::Postgres(_) => None,
        }
    }

    /// The same for a command, for whose reads no client waits.
    pub fn for_a_command(&self) -> Self {
        match self {
            Self::Sqlite(_) => self.clone(),
            Self::Postgres(server) => Self::Postgres(server.clone().for_a_command()),
        }
    }

    /// The way to it.
    pub fn engine(&self) -> Box<dyn Engine> {
        match self {
            Self::Sqlite(path) => Box::new(SqliteFile::new(path)),
            Self::Postgres(server) => Box::new(server.clone()),
        }
    }

    /// The way to it for the server that holds it, which keeps room for when the disk is full.
    pub fn engine_of(&self, held: &Held) -> Box<dyn Engine> {
        match self {
            Self::Sqlite(path) if held.lock.is_some() => {
                Box::new(SqliteFile::new(path).with_reserve())
            }
            Self::Sqlite(_) | Self::Postgres(_) => self.engine(),
        }
    }

    /// Whether other servers may use it at the same time.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(_) => true,
        }
    }

    /// Whether there is something in it.
    pub fn holds_data(&self) -> Result<bool, StoreError> {
        self.engine().holds_data()
    }

    /// Whether it was begun, which takes its key: a key that is missing then was lost.
    pub fn is_begun(&self) -> Result<bool, StoreError> {
        let is_begun = server_key::is_begun(&*self.engine());
        match self {
            // A file that cannot be read is no new database.
            Self::Sqlite(_) => Ok(is_begun.unwrap_or(true)),
            Self::Postgres(_) => is_begun,
        }
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
