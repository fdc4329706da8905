//! Copies of the embedded database, also while a server writes to it.
//!
//! A copy is of one instant: its pages are read inside one transaction, so what is written
//! meanwhile neither shows in it nor makes it start again, and no commit waits for it
//! (docs/decisions/0014).

use std::fs::OpenOptions;
use std::path::Path;

use domain::time::Timestamp;
use rusqlite::backup::{Backup, StepResult};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::migrate;
use crate::projector;
use crate::sql::{Connection as _, Row};
use crate::sqlite::{Access, Sqlite, failure};

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

/// Copies the database in the file `from`, with what its log holds, into the empty file `to`, which
/// is then on the disk and complete by itself. `on_step` is called after some megabytes each, and
/// may take its time.
pub fn copy_file(
    from: &Path,
    to: &Path,
    on_step: &mut dyn FnMut(Copied),
) -> Result<(), StoreError> {
    let mut source = Sqlite::open(from, Access::Read)?;
    source.begin_read()?;
    source.query(FIRST_READ, &[], 1, &mut |values| {
        Row::new("sqlite_master", &["count"], values).int().map(drop)
    })?;
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
    loop {
        let step = backup.step(STEP_PAGES).map_err(failure)?;
        file.sync_data().map_err(unwritable)?;
        let progress = backup.progress();
        let bytes = |pages: i32| u64::try_from(pages).unwrap_or(0) * page_bytes;
        let of_bytes = bytes(progress.pagecount);
        on_step(Copied { bytes: of_bytes - bytes(progress.remaining), of_bytes });
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
    source.rollback()?;
    finish(to)
}

/// The schema version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The number of its newest migration; 0 if it has none.
    pub is: i64,
    /// The number of the newest migration that this program knows.
    pub known: i64,
}

/// Which schema the database in a file has.
pub fn schema(path: &Path) -> Result<Schema, StoreError> {
    let is = migrate::sqlite_schema(&mut Sqlite::open(path, Access::Read)?)?;
    Ok(Schema { is, known: migrate::newest_known() })
}

/// Brings a copy that an older program made to this program's schema.
pub fn bring_up_to_date(path: &Path) -> Result<(), StoreError> {
    let mut copy = Sqlite::open(path, Access::Write)?;
    migrate::sqlite(&mut copy)?;
    copy.settle()?;
    drop(copy);
    finish(path)
}

/// Lets the tables of a copy follow its journal to the end.
pub fn project(path: &Path, keyring: &Keyring) -> Result<(), StoreError> {
    let mut copy = Sqlite::open(path, Access::Write)?;
    if tail::database(&mut copy)?.is_none() {
        // There is nothing in it, which `verify` says.
        return Ok(());
    }
    projector::project(&mut copy, keyring)?;
    copy.settle()?;
    drop(copy);
    finish(path)
}

/// Leaves a copy as one file that is on the disk.
fn finish(path: &Path) -> Result<(), StoreError> {
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
