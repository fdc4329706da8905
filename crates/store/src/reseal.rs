//! Seals everything anew with the newest secret of a database, beside servers.
//!
//! Each step is a transaction over some rows. Rows of tables are written under the lock of
//! `applied`, as the projector's are, and keys of the journal and of persons under the write lock.
//! Nothing is kept of how far it came: rows that the newest secret has sealed are passed over, so
//! it can be stopped anywhere and begun again.
//!
//! It begins once the tables follow the journal beyond the announcement (`sealing`). A projector
//! that writes behind that row has read it, so no row is sealed with an older secret behind the
//! back of this. It ends once it has gone through everything and found nothing to do.

use std::time::Duration;

use crate::catalogue::{self, Chunk};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::journal::{data_keys::DATA_KEYS, tail};
use crate::keyring::Keyring;
use crate::pause::pause;
use crate::projector;
use crate::sql::{Change, Connection, Shape, Value, Write, is_sealed, transaction};

/// Rows of a step: some milliseconds, for which commits or tables wait.
const ROWS_AT_ONCE: usize = 500;

/// The pause behind each step, in which commits and the projector get the locks: they look for one
/// every quarter of a millisecond.
const PAUSE: Duration = Duration::from_millis(2);

/// How often everything is gone through. The first time seals it anew, and the second finds
/// nothing to do, unless a row was put in between by a transaction that had begun before.
const PASSES_MAX: u32 = 5;

/// Takes the lock under which tables are written.
pub(crate) const LOCK: &str = "update applied set seq = seq where one = 1";

/// A step that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The table.
    pub table: &'static str,
    /// Rows that were looked at since the beginning.
    pub rows: u64,
    /// Those of them that were sealed anew.
    pub resealed: u64,
}

/// Seals everything anew that an older secret has sealed, and puts it on the disk. `on_step` gets
/// each step; an error of it ends the work there.
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
                let some = transaction(connection, |connection| {
                    some(connection, keyring, shape, after.as_deref(), !is_of_journal)
                })?;
                step.table = shape.table;
                step.rows += some.rows;
                step.resealed += some.resealed;
                on_step(step)?;
                pause(PAUSE);
                after = some.last;
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
struct Some {
    rows: u64,
    resealed: u64,
    last: Option<Vec<Value>>,
}

/// Seals some rows behind a place anew, inside a transaction.
fn some(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    shape: &'static Shape,
    after: Option<&[Value]>,
    locks: bool,
) -> Result<Some, StoreError> {
    if locks {
        connection.execute(LOCK, &[])?;
    }
    let Chunk { mut rows, last } = catalogue::chunk(connection, shape, after, ROWS_AT_ONCE)?;
    let (looked_at, mut failed) = (rows.len() as u64, None);
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
    Ok(Some { rows: looked_at, resealed, last })
}

/// Seals the last column of a row anew for the row of its first. Whether it is another one now.
pub(crate) fn reseal_row(
    keyring: &Keyring,
    shape: &Shape,
    row: &mut [Value],
) -> Result<bool, StoreError> {
    let [key, .., Value::Bytes(sealed)] = row else {
        // A data key that was erased.
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
