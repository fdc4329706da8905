//! Copies of the embedded database, also while a server writes to it.
//!
//! A copy is one file, of one instant of the tables: their pages are read inside one transaction,
//! so what is written meanwhile neither shows in it nor makes it start again, and no commit waits
//! for it (docs/decisions/0014). The journal is copied after that, so that it has every row that
//! the tables follow; then they follow it to its end.

use std::fs::OpenOptions;
use std::path::Path;

use domain::time::Timestamp;
use rusqlite::backup::{Backup, StepResult};

use crate::audit;
use crate::catalogue::{self, Chunk};
use crate::engine::{self, Engine};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::leases::Lease;
use crate::migrate::{self, TRACKS, Track};
use crate::origin::Origin;
use crate::projector;
use crate::record::Record as _;
use crate::server_key::{self, Key};
use crate::sql::{Change, Connection as _, Row, Shape, Value, Write};
use crate::sqlite::{Access, Sqlite, failure, file};

/// Pages that are copied before they are put on the disk: 4 MiB. More at once would make the flush
/// of a running server wait behind it.
const STEP_PAGES: i32 = 1_024;

/// Starts the snapshot that every page is read from.
const FIRST_READ: &str = "select count(*) from sqlite_master";

/// How recent a database is, by its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// How many transactions it has.
    pub transactions: u64,
    /// When the last of them changed.
    pub last_change: Option<Timestamp>,
}

pub(crate) const SUMMARY: &str = "select count(*), max(updated_at) from transactions";

/// Reads the figures that show which of two databases is newer.
pub fn summary(engine: &dyn Engine) -> Result<Summary, StoreError> {
    let mut summary = Summary { transactions: 0, last_change: None };
    engine.reader()?.query(SUMMARY, &[], 2, &mut |values| {
        let row = &mut Row::new("transactions", &["count", "updated_at"], values);
        summary.transactions = u64::try_from(row.int()?).unwrap_or(0);
        summary.last_change = row.int_or_null()?.map(Timestamp::from_millis);
        Ok(())
    })?;
    Ok(summary)
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that are in the copy.
    pub bytes: u64,
    /// Bytes of the database.
    pub of_bytes: u64,
}

/// Copies the database in the file `from`, with what its log and its journal hold, into the empty
/// file `to`, which is then on the disk and complete by itself. `on_step` is called after some
/// megabytes each, and may take its time.
pub fn copy_file(
    from: &Path,
    to: &Path,
    on_step: &mut dyn FnMut(Copied),
) -> Result<(), StoreError> {
    let mut source = file::open_to_read(from)?;
    source.begin_read()?;
    source.query(FIRST_READ, &[], 1, &mut |values| {
        Row::new("sqlite_master", &["count"], values).int().map(drop)
    })?;
    let is_whole = file::is_whole(&mut source)?;
    let journal = file::journal_of(from).metadata().map_or(0, |file| file.len());
    let of_journal = if is_whole { 0 } else { journal };
    let page_bytes: u64 = source
        .driver()
        .pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))
        .map_err(failure)?
        .into();
    let file = OpenOptions::new().write(true).open(to).map_err(unwritable)?;
    let mut target = rusqlite::Connection::open(to).map_err(failure)?;
    // The file is nothing until all of it is there: what a journal would protect is thrown away.
    target.pragma_update(None, "journal_mode", "off").map_err(failure)?;
    target.pragma_update(None, "synchronous", "off").map_err(failure)?;
    let backup = Backup::new(source.driver(), &mut target).map_err(failure)?;
    let mut copied;
    loop {
        let step = backup.step(STEP_PAGES).map_err(failure)?;
        file.sync_data().map_err(unwritable)?;
        let progress = backup.progress();
        let bytes = |pages: i32| u64::try_from(pages).unwrap_or(0) * page_bytes;
        let of_bytes = bytes(progress.pagecount) + of_journal;
        copied = Copied { bytes: bytes(progress.pagecount - progress.remaining), of_bytes };
        on_step(copied);
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            StepResult::Busy | StepResult::Locked => {
                return Err(StoreError::Conflict("another process locks the file".to_owned()));
            }
            other => return Err(StoreError::Engine(format!("an unknown step: {other:?}"))),
        }
    }
    drop(backup);
    drop(target);
    if !is_whole {
        copy_journal(&mut source, to, &mut |rows| {
            copied.bytes = copied.of_bytes.min(copied.bytes + size(rows));
            on_step(copied);
        })?;
    }
    source.rollback()?;
    finish(to)
}

/// Copies the journal into a copy of the tables, a part with each commit.
fn copy_journal(
    source: &mut Sqlite,
    to: &Path,
    on_rows: &mut dyn FnMut(&[Vec<Value>]),
) -> Result<(), StoreError> {
    static META: Shape = Shape::new(tail::NONE, "meta", &["name", "value"]);
    let mut target = Sqlite::open(to, Access::Write)?;
    migrate::sqlite(&mut target, &[&migrate::JOURNAL])?;
    for shape in [&META, Lease::shape()].into_iter().chain(tail::SHAPES_OF_JOURNAL) {
        let mut after = None;
        loop {
            let limit = catalogue::rows_at_once(shape);
            let Chunk { rows, last } = catalogue::chunk(source, shape, after.as_deref(), limit)?;
            on_rows(&rows);
            target.begin()?;
            target.write(vec![Write { shape, change: Change::Insert, rows }])?;
            target.commit()?;
            if last.is_none() {
                break;
            }
            after = last;
        }
    }
    target.settle()
}

/// How many bytes rows of the journal take, about.
fn size(rows: &[Vec<Value>]) -> u64 {
    let bytes = |value: &Value| match value {
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::Null | Value::Int(_) | Value::Text(_) => size_of::<i64>() as u64,
    };
    rows.iter().flatten().map(bytes).sum()
}

/// The schema version of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// How many migrations made it; 0 if there are no tables.
    pub is: i64,
    /// How many migrations this program knows.
    pub known: i64,
}

/// Which schema the database in a file has, with the journal in it or beside it.
pub fn schema(path: &Path) -> Result<Schema, StoreError> {
    let known = TRACKS.iter().map(|track| track.newest_known()).sum();
    let mut tables = Sqlite::open(path, Access::Read)?;
    let is = migrate::sqlite_schema(&mut tables, &migrate::TABLES)?;
    let journal = file::journal_of(path);
    let of_journal = if is == 0 {
        0
    } else if file::is_whole(&mut tables)? || !journal.exists() {
        migrate::sqlite_schema(&mut tables, &migrate::JOURNAL)?
    } else {
        migrate::sqlite_schema(&mut Sqlite::open(&journal, Access::Read)?, &migrate::JOURNAL)?
    };
    Ok(Schema { is: is + of_journal, known })
}

/// Makes the files of a database with a schema and nothing else, the journal's first: where the
/// tables are found, their journal is too.
pub fn make_journal(path: &Path) -> Result<(), StoreError> {
    migrated(path, &[&migrate::JOURNAL])
}

/// The same for the file of the tables.
pub fn make_tables(path: &Path) -> Result<(), StoreError> {
    migrated(path, &[&migrate::TABLES])
}

/// Brings a file that has these tracks to this program's schema.
fn migrated(path: &Path, tracks: &[&Track]) -> Result<(), StoreError> {
    let mut file = Sqlite::open(path, Access::Write)?;
    migrate::sqlite(&mut file, tracks)?;
    file.settle()?;
    drop(file);
    finish(path)
}

/// Whether a journal is that of a database.
pub fn is_begun(journal: &Path) -> Result<bool, StoreError> {
    engine::knows_key(&mut Sqlite::open(journal, Access::Read)?)
}

/// Brings a copy that an older program made to this program's schema.
pub fn bring_up_to_date(path: &Path) -> Result<(), StoreError> {
    migrated(path, &TRACKS)
}

/// Keeps in the journal of a copy who makes a database of it.
pub fn keep_origin(path: &Path, keyring: &Keyring, origin: Origin) -> Result<(), StoreError> {
    let mut copy = Sqlite::open(path, Access::Write)?;
    if tail::database(&mut copy)?.is_none() {
        // There is nothing in it, which `verify` says.
        return Ok(());
    }
    audit::keep_in(&mut copy, keyring, origin, |_| Ok(()))
}

/// Whether a database was made of a copy by a command, and nothing was changed in it since.
pub fn is_made_of(
    database: &Path,
    copy: &Path,
    keyring: &Keyring,
    command: &str,
) -> Result<bool, StoreError> {
    let end = tail::end(&mut file::open_to_read(copy)?)?;
    audit::ends_with(&mut file::open_to_read(database)?, keyring, end, command)
}

/// Lets the tables of a copy follow its journal to the end.
pub fn project(path: &Path, keyring: &Keyring) -> Result<(), StoreError> {
    let mut copy = Sqlite::open(path, Access::Write)?;
    if tail::database(&mut copy)?.is_none() {
        // There is nothing in it, which `verify` says.
        return Ok(());
    }
    projector::project(&mut copy, keyring, &mut |_| ())?;
    copy.settle()?;
    drop(copy);
    finish(path)
}

/// Seals the secret of a copy with another key than that which opens it.
pub fn reseal(path: &Path, old: &Key, new: &Key) -> Result<(), StoreError> {
    let mut copy = Sqlite::open(path, Access::Write)?;
    server_key::reseal(&mut copy, old, new)?;
    copy.settle()?;
    drop(copy);
    finish(path)
}

/// Leaves a copy as one file that is on the disk.
pub(crate) fn finish(path: &Path) -> Result<(), StoreError> {
    without_log(path)?;
    let file = OpenOptions::new().write(true).open(path).map_err(unwritable)?;
    file.sync_all().map_err(unwritable)
}

/// Leaves WAL mode: a copy is one file, but its header still names the log of the original.
fn without_log(path: &Path) -> Result<(), StoreError> {
    let target = rusqlite::Connection::open(path).map_err(failure)?;
    let mode: String =
        target.query_row("pragma journal_mode = delete", [], |row| row.get(0)).map_err(failure)?;
    if mode != "delete" {
        return Err(StoreError::Engine(format!("the copy stays in journal mode {mode}")));
    }
    target.close().map_err(|(_, error)| failure(error))
}

fn unwritable(error: std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Engine(format!("the copy cannot be written: {error}")),
    }
}
