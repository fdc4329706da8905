//! The embedded engine: a SQLite database in two files, the tables and the journal beside them.
//!
//! In one file, a database can be moved: a backup is one, and so is the target of a copy. The
//! first who opens it to write moves the journal out.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::engine::{self, Engine, NewTables};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::leases::Lease;
use crate::migrate::{self, JOURNAL, TABLES, TRACKS};
use crate::outcome::settle;
use crate::record::Record as _;
use crate::sql::{Connection, Row, transaction};
use crate::sqlite::rebuilt::Rebuilt;
use crate::sqlite::reserve::Reserve;
use crate::sqlite::{Access, Part, Sqlite};

/// Reader connections. Reads of the API are short; two cores are the
/// smallest machine we plan for, and a list that takes long must not hold up a read of one row.
const READERS: usize = 4;

/// The ending of the journal's name behind that of the database. SQLite would remove one that ends
/// in `-journal`.
const JOURNAL_ENDING: &str = ".journal";

/// The ending behind the name of a journal that is not whole yet.
const UNFINISHED_ENDING: &str = ".unfinished";

/// The endings of the files of SQLite beside one that is in use.
pub(super) const LOG_ENDINGS: [&str; 2] = ["-wal", "-shm"];

const HAS_JOURNAL: &str = "select count(*) from main.sqlite_schema where name = 'journal'";

/// A SQLite database.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    path: PathBuf,
    has_reserve: bool,
}

/// The path with something behind its name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    PathBuf::from(path)
}

/// The file of the journal of the database in the file at `path`: beside that file itself, also
/// where the path is a link to it.
pub fn journal_of(path: &Path) -> PathBuf {
    beside(&path.canonicalize().unwrap_or_else(|_| path.to_owned()), JOURNAL_ENDING)
}

/// Whether a file has the journal and the tables.
pub(crate) fn is_whole(file: &mut Sqlite) -> Result<bool, StoreError> {
    let file: &mut dyn Connection = file;
    let count = file.first(HAS_JOURNAL, &[], ("sqlite_schema", &["count"]), Row::int)?;
    Ok(count == Some(1))
}

/// Opens a database to read it, whether it is in one file or in two.
pub(crate) fn open_to_read(path: &Path) -> Result<Sqlite, StoreError> {
    open(path, Access::Read)
}

fn open(path: &Path, access: Access) -> Result<Sqlite, StoreError> {
    let mut opened = Sqlite::open(path, access)?;
    if is_whole(&mut opened)? {
        return Ok(opened);
    }
    let journal = journal_of(path);
    if journal.exists() {
        opened.attach(Part::Journal, &journal, access)?;
    } else if migrate::sqlite_has(&mut opened, &TABLES)? {
        return Err(lacks_journal(path));
    }
    Ok(opened)
}

fn lacks_journal(path: &Path) -> StoreError {
    StoreError::Engine(format!(
        "the database has no journal: {} is not there. A database is both files, and a copy of one \
         that is in use is made by switchyard backup",
        journal_of(path).display()
    ))
}

impl SqliteFile {
    /// The database in the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), has_reserve: false }
    }

    /// The same for a server, which keeps room beside it for when the disk is full.
    #[must_use]
    pub fn with_reserve(self) -> Self {
        Self { has_reserve: true, ..self }
    }

    /// Whether nothing is in the file yet, not even a schema.
    fn is_new(&self) -> Result<bool, StoreError> {
        if !self.holds_data()? {
            return Ok(true);
        }
        let has = migrate::sqlite_has(&mut Sqlite::open(&self.path, Access::Read)?, &TABLES)?;
        Ok(!has)
    }

    /// Brings the schema of the tables up to date, and moves the journal out of their file.
    fn prepare_tables(&self) -> Result<Sqlite, StoreError> {
        let mut tables = Sqlite::open(&self.path, Access::Write)?;
        if is_whole(&mut tables)? {
            migrate::sqlite(&mut tables, &TRACKS)?;
        } else {
            migrate::sqlite(&mut tables, &[&TABLES])?;
        }
        // Another process may be at it, or have been.
        let was_whole = transaction(&mut tables, |tables| -> Result<_, StoreError> {
            tail::begin_tables(tables)?;
            let is_whole = is_whole(tables)?;
            if is_whole {
                engine::refuse_unfinished(tables)?;
                self.move_journal_out(tables)?;
            }
            Ok(is_whole)
        })?;
        if was_whole {
            settle(&mut tables);
        }
        Ok(tables)
    }

    /// Moves the journal to a file of its own, while no other process writes. A crash leaves it
    /// where it was, or in both.
    fn move_journal_out(&self, tables: &mut Sqlite) -> Result<(), StoreError> {
        let path = journal_of(&self.path);
        if path.exists() {
            refuse_other(tables, &path)?;
        } else {
            self.copy_journal(&path)?;
        }
        for table in tables_of_journal() {
            tables.execute(&format!("drop table {table}"), &[])?;
        }
        Ok(())
    }

    /// Copies the journal that is among the tables to a file of its own, which appears whole.
    fn copy_journal(&self, path: &Path) -> Result<(), StoreError> {
        let unfinished = beside(path, UNFINISHED_ENDING);
        let remove = |ending| remove(&beside(&unfinished, ending));
        [""].into_iter().chain(LOG_ENDINGS).try_for_each(remove)?;
        let mut journal = Sqlite::open(&unfinished, Access::Write)?;
        migrate::sqlite(&mut journal, &[&JOURNAL])?;
        journal.attach(Part::Tables, &self.path, Access::Read)?;
        transaction(&mut journal, |journal| -> Result<_, StoreError> {
            for table in tables_of_journal() {
                let copy = format!(
                    "insert or replace into main.{table} select * from {}.{table}",
                    Part::Tables.name()
                );
                journal.execute(&copy, &[])?;
            }
            Ok(())
        })?;
        journal.settle()?;
        drop(journal);
        // The last connection has removed them, unless another one looked at them.
        LOG_ENDINGS.into_iter().try_for_each(remove)?;
        rename(&unfinished, path)
    }
}

/// The tables of the journal's file, with the history of its schema.
fn tables_of_journal() -> impl Iterator<Item = &'static str> {
    let shapes = tail::SHAPES_OF_JOURNAL.iter().map(|shape| shape.table);
    let own = ["meta", "write_lock", JOURNAL.history()];
    shapes.chain([Lease::TABLE]).chain(own)
}

/// Refuses a journal that does not go on from the one among the tables: the file is a backup that
/// was put in the place of another database's tables.
fn refuse_other(tables: &mut Sqlite, path: &Path) -> Result<(), StoreError> {
    // Nothing is in that of a database that is being made.
    let Some(database) = tail::database(tables)? else { return Ok(()) };
    let (mut journal, end) = (Sqlite::open(path, Access::Read)?, tail::end(tables)?);
    let is_same = tail::database(&mut journal)? == Some(database) && tail::has(&mut journal, end)?;
    if is_same {
        return Ok(());
    }
    Err(StoreError::Engine(format!(
        "the file has a journal, and {} is that of another database: move that one away",
        path.display()
    )))
}

/// Gives a file another name, on the disk.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::rename(from, to).and_then(|()| sync_folder(to)).map_err(|error| unwritable(to, &error))
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(path, &error)),
        _ => Ok(()),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Engine(format!("{}: {error}", path.display())),
    }
}

/// Puts the names in the folder of a file on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Elsewhere a folder cannot be opened.
    if cfg!(unix) { File::open(folder.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

impl Engine for SqliteFile {
    fn prepare(&self, _: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        let path = journal_of(&self.path);
        let _tables;
        let mut journal;
        if path.exists() || self.is_new()? {
            // Where the tables are found, their journal is too.
            journal = Sqlite::open_to_serve(&path)?;
            migrate::sqlite(&mut journal, &[&JOURNAL])?;
            _tables = self.prepare_tables()?;
        } else {
            _tables = self.prepare_tables()?;
            if !path.exists() {
                return Err(lacks_journal(&self.path));
            }
            journal = Sqlite::open_to_serve(&path)?;
        }
        journal.attach(Part::Tables, &self.path, Access::Read)?;
        Ok(Box::new(journal))
    }

    fn whole(&self, keyring: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        if journal_of(&self.path).exists() {
            return self.prepare(keyring);
        }
        let mut opened = Sqlite::open_to_serve(&self.path)?;
        migrate::sqlite(&mut opened, &TRACKS)?;
        Ok(Box::new(opened))
    }

    fn projector(&self) -> Result<Box<dyn Connection>, StoreError> {
        let reserve = self.has_reserve.then(|| Reserve::beside(&self.path));
        Ok(Box::new(Sqlite::open_to_project(&self.path, reserve)?))
    }

    fn flush(&self) -> Result<(), StoreError> {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        // A checkpoint flushes the pages that it moves. The last connection removes the log.
        for file in [beside(&path, LOG_ENDINGS[0]), path] {
            match File::options().write(true).open(&file).and_then(|file| file.sync_all()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let what = format!("{} cannot be flushed: {error}", file.display());
                    return Err(StoreError::Engine(what));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(open_to_read(&self.path)?))
    }

    fn files(&self) -> Vec<PathBuf> {
        let journal = journal_of(&self.path);
        // SQLite names the log of a link after the file that it leads to.
        let tables = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let log = |path: &Path| beside(path, LOG_ENDINGS[0]);
        vec![log(&journal), journal, log(&tables), self.path.clone()]
    }

    fn readers(&self) -> usize {
        READERS
    }

    fn holds_data(&self) -> Result<bool, StoreError> {
        Ok(std::fs::metadata(&self.path).is_ok_and(|file| file.len() > 0))
    }

    fn alone(&self) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = open(&self.path, Access::Alone)?;
        connection.begin_read()?;
        // The journal is locked when it is read first.
        tail::ends(&mut connection)?;
        Ok(Box::new(connection))
    }

    fn new_tables(&self, keyring: &Keyring) -> Result<Box<dyn NewTables>, StoreError> {
        Ok(Box::new(Rebuilt::open(&self.path, keyring)?))
    }
}
