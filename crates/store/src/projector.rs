//! The projector: brings the tables up to date with the journal, a moment after each commit.
//!
//! It moves rows and knows no record: a change has the number of its table and the values of its
//! columns. A record that was changed more than once is written once, as it is at last.
//!
//! A step writes exactly the changes of the rows up to some row, and says so in `applied`, in one
//! transaction. It begins with `applied` as this process knows it: if that stands elsewhere,
//! another process has projected meanwhile, and the step writes what is left to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::Level;

use crate::catalogue;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::journal::{End, RowHash, tail};
use crate::keyring::Keyring;
use crate::memtable::shared::{Lag, RecordKey, SharedMemtable, Values, size};
use crate::memtable::{Generation, Memtable};
use crate::outcome::{settle, stop};
use crate::pause::pause;
use crate::sql::{Change, Connection, Value, Write};
use crate::threads;

/// The pause after a step that failed: some steps long. A database that is away or full comes back
/// in seconds.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The pause between two tries to keep room for when the disk is full, which take some of the room
/// that there is.
const RESERVE_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Lets what is written behind it be taken back, while the transaction goes on.
pub(crate) const MARK: &str = "savepoint accepted";

pub(crate) const BACK_TO_MARK: &str = "rollback to savepoint accepted";

/// The rows of a table that are to be written, and the keys of those that go.
#[derive(Default)]
struct Rows {
    put: Vec<Vec<Value>>,
    removed: Vec<Vec<Value>>,
}

/// The writes that leave records as they are at last, each once: rows come before those that refer
/// to them, and go after them.
fn writes<'a>(
    records: impl Iterator<Item = (&'a RecordKey, Option<&'a Values>)>,
    keyring: &Keyring,
) -> Result<Vec<Write>, StoreError> {
    // Rows in the order of their keys are on few pages.
    let mut records: Vec<_> = records.collect();
    records.sort_unstable_by_key(|(key, _)| *key);
    let mut tables: BTreeMap<u16, Rows> = BTreeMap::new();
    for (key, values) in records {
        let (shape, rows) = (catalogue::table(key.table)?, tables.entry(key.table).or_default());
        match values {
            Some(values) => rows.put.extend(shape.rows(values.to_vec(), keyring)),
            None => rows.removed.push(key.columns.clone()),
        }
    }
    let (mut writes, mut removals) = (Vec::new(), Vec::new());
    for shape in catalogue::tables() {
        let Some(Rows { put, removed }) = tables.remove(&shape.number) else { continue };
        writes.push(Write { shape, change: Change::Upsert, rows: put });
        removals.push(Write { shape, change: Change::Delete, rows: removed });
    }
    writes.extend(removals.into_iter().rev());
    writes.retain(|write| !write.rows.is_empty());
    Ok(writes)
}

/// The writes that leave records as they are said to be, the last time that they are.
pub fn writes_of(
    records: impl IntoIterator<Item = (RecordKey, Option<Values>)>,
    keyring: &Keyring,
) -> Result<Vec<Write>, StoreError> {
    let mut memtable = Memtable::new(End::START, size);
    let end = End { seq: 1, hash: RowHash::NONE };
    memtable.publish(end, records);
    memtable.next().map_or(Ok(Vec::new()), |sealed| writes(sealed.records(), keyring))
}

/// The projector of a process.
pub struct Projector {
    connection: Box<dyn Connection>,
    keyring: Arc<Keyring>,
    memtable: Arc<SharedMemtable>,
}

impl Projector {
    /// Starts its thread, which ends when the memtable is closed and everything is projected.
    pub fn start(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        memtable: Arc<SharedMemtable>,
    ) -> Result<JoinHandle<()>, StoreError> {
        let projector = Self { connection, keyring, memtable };
        threads::start("projector", move || projector.run())
    }

    fn run(mut self) {
        let memtable = Arc::clone(&self.memtable);
        let (mut said, mut is_full) = (None, false);
        loop {
            // Without room for when the disk is full, the tables may not be able to follow. It is
            // not taken again from the step that it was given back for.
            let lacks_reserve = is_full || self.connection.keep_reserve().is_err();
            memtable.refuse_changes(lacks_reserve);
            if !memtable.wait(lacks_reserve.then_some(RESERVE_AGAIN_AFTER)) {
                return settle(&mut *self.connection);
            }
            let Some((base, generation)) = memtable.next() else { continue };
            let connection = &mut *self.connection;
            #[expect(clippy::disallowed_methods, reason = "it is only measured")]
            let start = Instant::now();
            match project_generation(connection, &self.keyring, &memtable, (base, &generation)) {
                Ok(()) => {
                    is_full = false;
                    metrics::histogram!("switchyard_projection_seconds").record(start.elapsed());
                    count(&generation);
                    memtable.projected(generation.end());
                    if said.take() == Some(Level::ERROR) {
                        tracing::info!("tables follow the journal again");
                    }
                }
                Err(StoreError::OutcomeUnknown(what)) => stop(&what),
                Err(error) => {
                    memtable.failed(&error);
                    say(&error, &memtable.lag(), &mut said);
                    if error == StoreError::DiskFull {
                        is_full = true;
                        self.connection.free_reserve();
                    }
                    pause(AGAIN_AFTER);
                }
            }
        }
    }
}

/// Counts the records that were written, by table.
fn count(generation: &Generation<RecordKey, Values>) {
    let mut tables = BTreeMap::<u16, u64>::new();
    for (key, _) in generation.records() {
        *tables.entry(key.table).or_default() += 1;
    }
    for (number, count) in tables {
        let table = catalogue::table(number).map_or("unknown", |shape| shape.table);
        metrics::counter!("switchyard_projected_records_total", "table" => table).increment(count);
    }
}

/// Logs that a step failed, once, and once more when it is an error: at once if no further try can
/// help, else when the tables are late.
fn say(error: &StoreError, lag: &Lag, said: &mut Option<Level>) {
    let may_pass = matches!(
        error,
        StoreError::Conflict(_) | StoreError::Unavailable(_) | StoreError::DiskFull
    );
    let level = if may_pass && !lag.is_late() { Level::WARN } else { Level::ERROR };
    if said.is_some_and(|said| said <= level) {
        return;
    }
    *said = Some(level);
    let behind_seconds = lag.time.as_secs();
    if level == Level::WARN {
        tracing::warn!(%error, behind_seconds, "tables do not follow the journal; trying again");
    } else {
        tracing::error!(
            %error,
            behind_seconds,
            "tables do not follow the journal: lists cannot be read, payments are kept in the \
             journal; trying again"
        );
    }
}

/// How far the tables have come, after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The row of the journal that they follow.
    pub row: u64,
    /// The last row of the journal.
    pub of_rows: u64,
}

/// Lets the tables follow the journal to its end, where no server does, in steps that are each
/// committed.
pub fn project(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    on_step: &mut dyn FnMut(Progress),
) -> Result<(), StoreError> {
    loop {
        let (memtable, is_whole) = SharedMemtable::open(connection, keyring)?;
        project_all(connection, keyring, &memtable)?;
        on_step(progress(connection, &memtable)?);
        if is_whole {
            return Ok(());
        }
    }
}

/// Lets the tables follow the journal until the rest fits the memtable, which is returned with it.
/// Other servers may do the same, or go on to append.
pub fn catch_up(
    reader: &mut dyn Connection,
    connection: &mut dyn Connection,
    keyring: &Keyring,
    on_step: &mut dyn FnMut(Progress),
) -> Result<SharedMemtable, StoreError> {
    loop {
        let (memtable, is_whole) = SharedMemtable::open(reader, keyring)?;
        if is_whole {
            return Ok(memtable);
        }
        project_all(connection, keyring, &memtable)?;
        on_step(progress(reader, &memtable)?);
    }
}

fn progress(
    connection: &mut dyn Connection,
    memtable: &SharedMemtable,
) -> Result<Progress, StoreError> {
    Ok(Progress { row: memtable.base(), of_rows: tail::end(connection)?.seq })
}

fn project_all(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    memtable: &SharedMemtable,
) -> Result<(), StoreError> {
    while let Some((base, generation)) = memtable.next() {
        project_generation(connection, keyring, memtable, (base, &generation))?;
        memtable.projected(generation.end());
    }
    Ok(())
}

/// The same beside servers, whose projectors may be faster.
pub fn project_beside(engine: &dyn Engine, keyring: &Keyring) -> Result<(), StoreError> {
    let (mut reader, mut connection) = (engine.auditor()?, engine.projector()?);
    loop {
        reader.begin_read()?;
        let opened = SharedMemtable::open(&mut *reader, keyring);
        reader.rollback()?;
        let (memtable, is_whole) = opened?;
        project_all(&mut *connection, keyring, &memtable)?;
        if is_whole {
            return Ok(());
        }
    }
}

/// Writes a generation, but for records that the database refuses because of a bug: they must not
/// keep all others away. `verify --replay` names them.
fn project_generation(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    memtable: &SharedMemtable,
    (base, generation): (End, &Generation<RecordKey, Values>),
) -> Result<(), StoreError> {
    let (ends, records) = ((base, generation.end()), generation.records().collect::<Vec<_>>());
    match step(connection, memtable, ends, |connection| write(connection, keyring, &records)) {
        Err(StoreError::Refused(_)) => step(connection, memtable, ends, |connection| {
            write_accepted(connection, keyring, &records)
        }),
        written => written,
    }
}

/// Writes something to tables that follow the journal as far as a base, or further.
fn step(
    connection: &mut dyn Connection,
    memtable: &SharedMemtable,
    (base, end): (End, End),
    write: impl FnOnce(&mut dyn Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    connection.begin()?;
    let written = follow(connection, memtable, base, end).and_then(|is_new| {
        if is_new {
            write(connection)?;
        }
        connection.commit()
    });
    match written {
        Ok(()) | Err(StoreError::OutcomeUnknown(_)) => {}
        Err(_) => connection.rollback()?,
    }
    written
}

/// Records of a generation, each as it is at its end.
type Records<'a> = [(&'a RecordKey, Option<&'a Values>)];

fn write(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    records: &Records<'_>,
) -> Result<(), StoreError> {
    connection.write(writes(records.iter().copied(), keyring)?)
}

/// Writes the records that the database accepts. It is asked for all, for halves of those that it
/// refuses, and for halves of these.
fn write_accepted(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    records: &Records<'_>,
) -> Result<(), StoreError> {
    connection.execute(MARK, &[])?;
    let what = match write(connection, keyring, records) {
        Err(StoreError::Refused(what)) => what,
        written => return written,
    };
    connection.execute(BACK_TO_MARK, &[])?;
    if let [(key, _)] = records {
        let table = catalogue::table(key.table)?.table;
        tracing::error!(table, what, "table refused a record, and lacks it");
        metrics::counter!("switchyard_refused_records_total").increment(1);
        return Ok(());
    }
    let (first, second) = records.split_at(records.len() / 2);
    write_accepted(connection, keyring, first)?;
    write_accepted(connection, keyring, second)
}

/// Says that the tables follow a row; false if they do already.
fn follow(
    connection: &mut dyn Connection,
    memtable: &SharedMemtable,
    base: End,
    end: End,
) -> Result<bool, StoreError> {
    if tail::follow(connection, base, end)? {
        return Ok(true);
    }
    let applied = tail::applied(connection)?;
    if applied.seq >= end.seq {
        return Ok(false);
    }
    if applied.seq < base.seq || !tail::follow(connection, applied, end)? {
        return Err(memtable.went_back());
    }
    Ok(true)
}
