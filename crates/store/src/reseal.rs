//! Resealing: every sealed value is sealed again with the newest secret, beside servers.
//!
//! Each step is a transaction over some rows. Rows of tables are written under the lock of
//! `applied`, like those of the projector; keys of the journal and data keys under the write lock.
//! No progress is stored. Rows of the newest secret are skipped, so a killed command starts over
//! and loses nothing.
//!
//! The first step waits until the tables follow the journal beyond the announcement (`sealing`).
//! `applied` is the fence: a projector that still can write has read the announcement, so it seals
//! with the newest secret. The last pass finds nothing to reseal.

use std::time::Duration;

use crate::catalogue::{self, Chunk};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::journal::{data_keys::DATA_KEYS, tail};
use crate::keyring::Keyring;
use crate::pause::pause;
use crate::projector;
use crate::sql::{Change, Connection, Shape, Value, Write, is_sealed, transaction};

/// Rows of a step. Commits or the projector wait for it, some milliseconds.
const ROWS_AT_ONCE: usize = 500;

/// The pause after each step, so that commits and the projector get the locks. On SQLite they look
/// for one every quarter of a millisecond.
const PAUSE: Duration = Duration::from_millis(2);

/// Passes over all rows. The first one reseals and the second one proves that nothing is left. More
/// than a few would mean that a process ignores the announcement.
const PASSES_MAX: u32 = 5;

/// Locks `applied`, so that no projector writes meanwhile.
pub(crate) const LOCK: &str = "update applied set seq = seq where one = 1";

/// A step that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The table.
    pub table: &'static str,
    /// Rows that were read since the beginning.
    pub rows: u64,
    /// Rows that were sealed again since the beginning.
    pub resealed: u64,
}

/// Seals every value of an older secret again, and flushes the result to the disk. `on_step` gets
/// each step, and its error ends the command.
pub fn reseal(
    engine: &dyn Engine,
    keyring: &Keyring,
    on_step: &mut dyn FnMut(Step) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    projector::project_beside(engine, keyring)?;
    let (mut journal, mut tables) = (engine.prepare(keyring)?, engine.projector()?);
    let mut step = Step { table: "", rows: 0, resealed: 0 };
    for _ in 0..PASSES_MAX {
        let before = step.resealed;
        for shape in catalogue::tables().iter().filter(|shape| is_sealed(shape.columns)) {
            let is_of_journal = [DATA_KEYS.table, tail::KEYS.table].contains(&shape.table);
            let connection = if is_of_journal { &mut *journal } else { &mut *tables };
            let mut after = None;
            loop {
                let rows = transaction(connection, |connection| {
                    reseal_rows(connection, keyring, shape, after.as_deref(), !is_of_journal)
                })?;
                step.table = shape.table;
                step.rows += rows.read;
                step.resealed += rows.resealed;
                on_step(step)?;
                pause(PAUSE);
                after = rows.last;
                if after.is_none() {
                    break;
                }
            }
        }
        if step.resealed == before {
            drop((journal, tables));
            return engine.flush();
        }
    }
    Err(StoreError::Engine(
        "another process goes on to seal with the secret before: stop it, and try again".to_owned(),
    ))
}

/// The outcome of a step.
struct Resealed {
    read: u64,
    resealed: u64,
    last: Option<Vec<Value>>,
}

/// Reseals the rows behind a key, up to a limit, inside a transaction.
fn reseal_rows(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    shape: &'static Shape,
    after: Option<&[Value]>,
    locks: bool,
) -> Result<Resealed, StoreError> {
    if locks {
        connection.execute(LOCK, &[])?;
    }
    let Chunk { mut rows, last } = catalogue::chunk(connection, shape, after, ROWS_AT_ONCE)?;
    let (read, mut failed) = (rows.len() as u64, None);
    rows.retain_mut(|row| {
        reseal_row(keyring, shape, row).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            false
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let resealed = rows.len() as u64;
    if resealed > 0 {
        connection.write(vec![Write { shape, change: Change::Upsert, rows }])?;
    }
    Ok(Resealed { read, resealed, last })
}

/// Reseals a row. Whether that changed it.
pub(crate) fn reseal_row(
    keyring: &Keyring,
    shape: &Shape,
    row: &mut Vec<Value>,
) -> Result<bool, StoreError> {
    if shape.is_sealed() {
        let before = row.last().cloned();
        (shape.seal.open)(shape, row, keyring)?;
        (shape.seal.seal)(shape, row, keyring);
        return Ok(row.last() != before.as_ref());
    }
    // A key of the journal or of a person is sealed for the key of its row.
    let [key, .., Value::Bytes(sealed)] = &mut row[..] else {
        // An erased data key has nothing sealed.
        return Ok(false);
    };
    let key = match key {
        Value::Bytes(key) => key.clone(),
        Value::Int(number) => u32::try_from(*number).unwrap_or_default().to_be_bytes().to_vec(),
        Value::Null | Value::Text(_) => Vec::new(),
    };
    let again = keyring.reseal(shape.table, &key, sealed)?;
    Ok(again.map(|again| *sealed = again).is_some())
}
