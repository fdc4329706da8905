//! The projector: brings the tables up to date with the changes of the journal.
//!
//! It moves rows and knows no record: a change has the number of its table and the values of its
//! columns. A record that was changed more than once is written once, as it is at last.

use std::collections::BTreeMap;

use crate::catalogue;
use crate::error::StoreError;
use crate::journal::change_set::{Kind, TableChange};
use crate::journal::{End, RowHash, tail};
use crate::keyring::Keyring;
use crate::memtable::{self, Memtable};
use crate::sql::{Change, Shape, Value, Write};

/// The name of a record among those of all tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RecordKey {
    /// The number of its table.
    table: u16,
    /// The first columns of its rows.
    columns: Vec<Value>,
}

/// The table with a number.
pub fn table(number: u16) -> Result<&'static Shape, StoreError> {
    let shape = catalogue::tables().iter().find(|it| it.number == number && number != tail::NONE);
    let unknown = || StoreError::Engine(format!("this release knows no table number {number}"));
    shape.copied().ok_or_else(unknown)
}

/// The record that a change is about, and what becomes of it.
fn keyed(change: TableChange) -> Result<(RecordKey, memtable::Change<Vec<Value>>), StoreError> {
    let TableChange { table: number, kind, values } = change;
    let columns = values.iter().take(table(number)?.record_key).cloned().collect();
    let change = match kind {
        Kind::Insert => memtable::Change::Insert(values),
        Kind::Update => memtable::Change::Update(values),
        Kind::Remove => memtable::Change::Remove,
    };
    Ok((RecordKey { table: number, columns }, change))
}

/// The rows of a table that are to be written.
#[derive(Default)]
struct Rows {
    inserted: Vec<Vec<Value>>,
    updated: Vec<Vec<Value>>,
    removed: Vec<Vec<Value>>,
}

/// The writes that make changes, each record once: rows come before those that refer to them, and
/// go after them.
pub fn writes(
    changes: impl Iterator<Item = TableChange>,
    keyring: &Keyring,
) -> Result<Vec<Write>, StoreError> {
    let mut memtable = Memtable::new(End::START, |_, _| 0);
    let end = End { seq: 1, hash: RowHash::NONE };
    memtable.publish(end, changes.map(keyed).collect::<Result<Vec<_>, _>>()?);
    memtable.seal();
    // Rows in the order of their keys are on few pages.
    let mut changes: Vec<_> = memtable.sealed().collect();
    changes.sort_unstable_by_key(|(key, _)| *key);
    let mut tables: BTreeMap<u16, Rows> = BTreeMap::new();
    for (key, change) in changes {
        let (shape, rows) = (table(key.table)?, tables.entry(key.table).or_default());
        match change {
            memtable::Change::Insert(values) => {
                rows.inserted.extend(shape.rows(values.clone(), keyring));
            }
            memtable::Change::Update(values) => {
                rows.updated.extend(shape.rows(values.clone(), keyring));
            }
            memtable::Change::Remove => rows.removed.push(key.columns.clone()),
        }
    }
    let (mut writes, mut removals) = (Vec::new(), Vec::new());
    for shape in catalogue::tables() {
        let Some(Rows { inserted, updated, removed }) = tables.remove(&shape.number) else {
            continue;
        };
        writes.push(Write { shape, change: Change::Insert, rows: inserted });
        writes.push(Write { shape, change: Change::Upsert, rows: updated });
        removals.push(Write { shape, change: Change::Delete, rows: removed });
    }
    writes.extend(removals.into_iter().rev());
    writes.retain(|write| !write.rows.is_empty());
    Ok(writes)
}
