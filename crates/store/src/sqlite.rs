//! The embedded engine: SQLite in WAL mode with `synchronous=FULL`, so that a commit is on the
//! disk before its answer leaves.
//!
//! The journal and the tables that follow it are in files of their own, as SQLite has one writer
//! for each file: an append would wait for a step of the projector. Each of them writes its file
//! and only reads the other's, which is attached: the tables of both are found by their plain
//! names.

mod checkpoints;
pub(crate) mod file;
mod rebuilt;
pub(crate) mod reserve;

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::error::StoreError;
use crate::migrate::{self, TRACKS, Track};
use crate::pause::pause;
use crate::sql::{Change, Connection, Shape, Value, Write, collect_values};
use crate::sqlite::checkpoints::Checkpoints;
pub use crate::sqlite::file::{SqliteFile, journal_of};
use crate::sqlite::reserve::Reserve;

/// How long a connection waits for another process's write, such as an operator's command beside
/// the running server.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two looks at a lock.
const BUSY_PAUSE: Duration = Duration::from_micros(250);

/// Prepared statements kept per connection: more than the store has, so that none is made twice.
const STATEMENTS_KEPT: usize = 256;

/// Pages of WAL after which SQLite moves them into the database file. Four times the default: fewer
/// and larger moves under load, still only 16 MiB beside the file.
const CHECKPOINT_PAGES: i64 = 4_000;

/// Memory for pages of the projector's connection, in KiB. With SQLite's own 2 MB it would read
/// most pages of balances and indexes again in each step, and write some before their time. SQLite
/// goes through all pages that are there after most commits (docs/performance.md), so that more
/// than those of some thousand accounts cost more than they save.
const PROJECTOR_CACHE_KIB: i64 = 8 << 10;

/// The size that the log is cut to once its pages are in the database file. It grows beyond this
/// during a long read, such as a backup, and would stay that large.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// How often a closing connection tries to empty the log while another one reads, and the pause
/// between two tries. It is less in all than a server waits for its threads when it ends.
const SETTLE_TRIES: u32 = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(15);

/// A connection to a database file.
pub struct Sqlite {
    connection: rusqlite::Connection,
    /// The thread that moves the log into the database file, if this connection does not.
    checkpoints: Option<Checkpoints>,
    /// The room that is kept for when the disk is full.
    reserve: Option<Reserve>,
    /// The file beside the one that was opened.
    attached: Option<Part>,
}

/// A part of a database with a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The journal, and what its writer keeps beside it.
    Journal,
    /// The tables that follow it.
    Tables,
}

impl Part {
    /// The name of its file among those of a connection to which it is attached.
    const fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Tables => "tables",
        }
    }

    /// The migrations of its file.
    const fn track(self) -> &'static Track {
        match self {
            Self::Journal => &migrate::JOURNAL,
            Self::Tables => &migrate::TABLES,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Journal => Self::Tables,
            Self::Tables => Self::Journal,
        }
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and write; the file is made if it is missing.
    Write,
    /// Only read; the file must exist.
    Read,
    /// Read and write, with no other connection; the file must exist.
    Alone,
}

impl Sqlite {
    /// Opens a file and makes sure that its durability settings hold.
    pub fn open(path: &Path, access: Access) -> Result<Self, StoreError> {
        use rusqlite::OpenFlags;
        // The file that is attached is named by a URI.
        let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI
            | match access {
                Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
                Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
                Access::Alone => OpenFlags::SQLITE_OPEN_READ_WRITE,
            };
        if access == Access::Read {
            roll_back(path)?;
        }
        let mut connection = rusqlite::Connection::open_with_flags(path, flags).map_err(failure)?;
        // A process that has the database open will not close it soon.
        let wait: Option<fn(i32) -> bool> = (access != Access::Alone).then_some(wait_for_lock);
        connection.busy_handler(wait).map_err(failure)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        // A statement keeps its plan whatever is bound to it. Otherwise SQLite makes some of them
        // anew each time that they run, to see whether a value meets the condition of an index.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failure)?;
        if access == Access::Alone {
            // Every connection to a database with a log holds a lock on its file. Taken before the
            // first look at the log, this one tolerates no other until it is closed.
            set(&connection, "locking_mode", "exclusive", "exclusive")?;
        }
        if access != Access::Read {
            set(&connection, "journal_mode", "wal", "wal")?;
            set(&connection, "synchronous", "full", "2")?;
            // A row that is changed or removed leaves no copy in its page: a customer who is erased
            // is not to be found in the file.
            set(&connection, "secure_delete", "fast", "2")?;
            // macOS only flushes the drive's own cache when asked; elsewhere this does nothing.
            set(&connection, "fullfsync", "on", "1")?;
            let pages = CHECKPOINT_PAGES.to_string();
            set(&connection, "wal_autocheckpoint", &pages, &pages)?;
            let bytes = LOG_BYTES_KEPT.to_string();
            set(&connection, "journal_size_limit", &bytes, &bytes)?;
        }
        Ok(Self { connection, checkpoints: None, reserve: None, attached: None })
    }

    /// Attaches the file at `path` with a part of the database, only to read, or to lock it too.
    pub(crate) fn attach(
        &mut self,
        part: Part,
        path: &Path,
        access: Access,
    ) -> Result<(), StoreError> {
        if access == Access::Read {
            roll_back(path)?;
        }
        let mode = if access == Access::Read { "ro" } else { "rw" };
        let (uri, name) = (uri(path, mode), part.name());
        self.connection.execute("attach $1 as $2", (uri, name)).map_err(failure)?;
        self.attached = Some(part);
        Ok(())
    }

    /// Takes the file of an attached part away again, which is complete without a log then.
    fn detach(&mut self, part: Part) -> Result<(), StoreError> {
        let name = part.name();
        let checkpoint = format!("pragma {name}.wal_checkpoint(truncate)");
        let blocked: i64 =
            self.connection.query_row(&checkpoint, [], |row| row.get(0)).map_err(failure)?;
        if blocked != 0 {
            return Err(StoreError::Conflict("another connection reads from the log".to_owned()));
        }
        // A statement that was kept would keep the file.
        self.connection.flush_prepared_statement_cache();
        self.connection.execute("detach $1", [name]).map_err(failure)?;
        self.attached = None;
        Ok(())
    }

    /// Opens a file for the thread that writes it. A thread of its own moves the log into the file,
    /// so that a commit does not wait for that.
    pub fn open_to_serve(path: &Path) -> Result<Self, StoreError> {
        let mut opened = Self::open(path, Access::Write)?;
        set(&opened.connection, "wal_autocheckpoint", "0", "0")?;
        opened.checkpoints = Some(Checkpoints::start(Self::open(path, Access::Write)?, path)?);
        Ok(opened)
    }

    /// Opens the file of the tables for the projector, with memory for the pages that it changes.
    /// Its commits are on the disk when they are moved into the file: what a power cut takes of
    /// them follows again.
    pub fn open_to_project(path: &Path, reserve: Option<Reserve>) -> Result<Self, StoreError> {
        let mut opened = Self::open_to_serve(path)?;
        opened.reserve = reserve;
        set(&opened.connection, "synchronous", "normal", "1")?;
        let kib = (-PROJECTOR_CACHE_KIB).to_string();
        set(&opened.connection, "cache_size", &kib, &kib)?;
        Ok(opened)
    }

    /// The driver's connection, for migrations.
    pub fn driver(&mut self) -> &mut rusqlite::Connection {
        &mut self.connection
    }
}

/// Rolls back what a process had begun to change without a log when it was killed: for that a file
/// must be opened to write, and a reader is refused until it is done. A file is changed so when it
/// gets its log, such as in a first start.
fn roll_back(path: &Path) -> Result<(), StoreError> {
    use rusqlite::OpenFlags;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if !file::beside(&real, ROLLBACK_ENDING).exists() {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = rusqlite::Connection::open_with_flags(path, flags).map_err(failure)?;
    connection.busy_handler(Some(wait_for_lock)).map_err(failure)?;
    connection.query_row(FIRST_ROLLBACK, [], |_| Ok(())).map_err(failure)
}

/// Waits a little for a lock that another connection has; false when that took too long. SQLite's
/// own waiting begins with milliseconds, which is as long as a step of the projector takes.
fn wait_for_lock(waited: i32) -> bool {
    pause(BUSY_PAUSE);
    BUSY_PAUSE.saturating_mul(waited.unsigned_abs()) < BUSY_TIMEOUT
}

/// Sets a pragma and reads it back: a setting that did not take is a refusal to start.
fn set(
    connection: &rusqlite::Connection,
    pragma: &str,
    value: &str,
    expected: &str,
) -> Result<(), StoreError> {
    connection.pragma_update(None, pragma, value).map_err(failure)?;
    let effective: rusqlite::types::Value =
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(failure)?;
    let effective = match effective {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        rusqlite::types::Value::Null
        | rusqlite::types::Value::Real(_)
        | rusqlite::types::Value::Blob(_) => String::new(),
    };
    if effective == expected {
        Ok(())
    } else {
        Err(StoreError::Engine(format!(
            "pragma {pragma} is {effective} and cannot be set to {value}; \
             put the database on a local file system that supports it"
        )))
    }
}

impl Connection for Sqlite {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.run("begin immediate")
    }

    fn begin_read(&mut self) -> Result<(), StoreError> {
        self.run("begin deferred")?;
        if self.attached == Some(Part::Journal) {
            // The snapshot of the tables is the older one: they follow no row that the journal
            // does not have.
            self.query(FIRST_READ, &[], 1, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    fn begin_point_read(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.run("commit").map_err(|error| match error {
            // The frames could not be written, so the commit mark was not either.
            StoreError::DiskFull | StoreError::Conflict(_) => error,
            StoreError::OutcomeUnknown(_) => error,
            // After a failed write or flush only a fresh start can find out what is on the disk
            // (docs/decisions/0002).
            other => StoreError::OutcomeUnknown(other.to_string()),
        })?;
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.committed(&mut self.connection);
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.run("rollback")
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError> {
        self.in_transaction()?;
        self.run_with(sql, parameters)
    }

    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for key in keys {
            let key = std::slice::from_ref(key);
            self.query(&shape.texts().select, key, shape.columns.len(), each)?;
        }
        Ok(())
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        for Write { shape, change, rows } in writes {
            let texts = shape.texts();
            let text = match change {
                Change::Insert => &texts.insert,
                Change::Upsert => &texts.upsert,
                Change::Delete => &texts.delete,
            };
            self.in_transaction()?;
            let mut statement = self.connection.prepare_cached(text).map_err(failure)?;
            for row in rows {
                statement.execute(rusqlite::params_from_iter(&row)).map_err(failure)?;
                // SQLite leaves the transaction by itself when it cannot read the disk. Outside
                // it, each statement of a batch would be a commit of its own.
                if self.connection.is_autocommit() {
                    return Err(lost());
                }
            }
        }
        Ok(())
    }

    fn free_reserve(&mut self) {
        if let Some(reserve) = &self.reserve {
            reserve.free();
        }
    }

    fn keep_reserve(&mut self) -> Result<(), StoreError> {
        self.reserve.as_ref().map_or(Ok(()), Reserve::keep)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failure)?;
        let mut rows = statement.query(rusqlite::params_from_iter(parameters)).map_err(failure)?;
        while let Some(row) = rows.next().map_err(failure)? {
            each(collect_values(columns, |column| {
                row.get_ref(column).map_err(failure).and_then(read)
            })?)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        self.checkpoints = None;
        // SQLite keeps others from writing while it waits for readers, and a server may write to
        // the same file while a command ends. So it does not wait, and is tried again.
        self.connection.busy_timeout(Duration::ZERO).map_err(failure)?;
        let checkpoint = "pragma main.wal_checkpoint(truncate)";
        for _ in 0..SETTLE_TRIES {
            let blocked: i64 =
                self.connection.query_row(checkpoint, [], |row| row.get(0)).map_err(failure)?;
            if blocked == 0 {
                return Ok(());
            }
            pause(SETTLE_PAUSE);
        }
        Err(StoreError::Conflict("another connection reads from the log".to_owned()))
    }

    fn prepare(&mut self, sql: &str) -> Result<(), StoreError> {
        self.connection.prepare(sql).map(drop).map_err(failure)
    }

    fn integrity(&mut self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for (file, tracks) in self.files() {
            let check = |found: &mut Vec<String>| {
                let mut statement =
                    self.connection.prepare(&format!("pragma {file}.integrity_check"))?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    let line: String = row.get(0)?;
                    if line != "ok" {
                        found.push(line);
                    }
                }
                Ok(())
            };
            check(&mut found).map_err(failure)?;
            found.extend(migrate::sqlite_differences(&self.connection, file, &tracks)?);
        }
        Ok(found)
    }
}

fn lost() -> StoreError {
    StoreError::OutcomeUnknown("the transaction was lost".to_owned())
}

/// The ending of the file that SQLite keeps old pages in while it changes a file without a log.
const ROLLBACK_ENDING: &str = "-journal";

/// Has SQLite look for such a file.
const FIRST_ROLLBACK: &str = "select count(*) from sqlite_schema";

/// Gives a snapshot of the tables.
const FIRST_READ: &str = "select count(*) from applied";

/// The URI of a file.
fn uri(path: &Path, mode: &str) -> String {
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f");
    format!("file:{}?mode={mode}", escaped.replace('#', "%23"))
}

impl Sqlite {
    /// The names of the files, each with the tracks of its tables. A file to which none is attached
    /// has everything.
    fn files(&self) -> Vec<(&'static str, Vec<&'static Track>)> {
        let Some(part) = self.attached else { return vec![("main", TRACKS.to_vec())] };
        vec![("main", vec![part.other().track()]), (part.name(), vec![part.track()])]
    }

    /// Refuses to write outside a transaction.
    fn in_transaction(&self) -> Result<(), StoreError> {
        if self.connection.is_autocommit() { Err(lost()) } else { Ok(()) }
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        self.run_with(sql, &[]).map(drop)
    }

    fn run_with(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failure)?;
        statement.execute(rusqlite::params_from_iter(parameters)).map_err(failure)
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

fn read(value: ValueRef<'_>) -> Result<Value, StoreError> {
    match value {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(value) => Ok(Value::Int(value)),
        // Text that is not UTF-8 is no text: the reader of the column reports where it stands.
        ValueRef::Text(value) => Ok(match str::from_utf8(value) {
            Ok(text) => Value::from(text),
            Err(_) => Value::from(value),
        }),
        ValueRef::Blob(value) => Ok(Value::Bytes(value.to_vec())),
        ValueRef::Real(_) => Err(StoreError::Engine("stored number is not whole".to_owned())),
    }
}

/// Follows what SQLite says about a file that it cannot read.
const DAMAGED: &str = "a file is damaged: if it is that of the tables, switchyard rebuild makes them \
    anew from the journal";

pub(crate) fn failure(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskFull,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Conflict(error.to_string())
        }
        // The system may take pages for clean that it could not write: only a fresh start, which
        // moves the whole log again, makes the file whole.
        _ if error.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_IOERR_FSYNC) => {
            StoreError::OutcomeUnknown(error.to_string())
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Engine(format!("{error}; {DAMAGED}"))
        }
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            StoreError::Refused(error.to_string())
        }
        _ => StoreError::Engine(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_failed_leaves_nothing_known() {
        let refused = |code| {
            let error = rusqlite::ffi::Error::new(code);
            failure(rusqlite::Error::SqliteFailure(error, None))
        };
        let flush = refused(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        assert!(matches!(flush, StoreError::OutcomeUnknown(_)), "{flush:?}");
        let write = refused(rusqlite::ffi::SQLITE_IOERR_WRITE);
        assert!(matches!(write, StoreError::Engine(_)), "{write:?}");
    }

    #[test]
    fn nothing_is_written_outside_a_transaction() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = Sqlite::open(&path, Access::Write).expect("a database");
        connection.begin().expect("a transaction");
        connection.execute("create table t (a integer)", &[]).expect("a table");
        connection.commit().expect("a commit");
        let lost = connection.execute("insert into t values ($1)", &[Value::Int(1)]);
        assert!(matches!(lost, Err(StoreError::OutcomeUnknown(_))), "{lost:?}");
        let mut rows = 0;
        let mut count = |_| {
            rows += 1;
            Ok(())
        };
        connection.query("select a from t", &[], 1, &mut count).expect("a read");
        assert_eq!(rows, 0);
    }

    #[test]
    fn no_value_makes_a_statement_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = Sqlite::open(&path, Access::Write).expect("a database");
        connection
            .driver()
            .execute_batch("create table t (a, b); create index some on t (b) where a = 1")
            .expect("a table");
        let sql = "select b from t where a = $1 and b = $2";
        let mut statement = connection.driver().prepare(sql).expect("a statement");
        for a in [1, 2, 1] {
            statement.query_row([a, 7], |_| Ok(())).expect_err("there is no row");
        }
        assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
    }
}
