//! The tables once more, from the journal alone, and the comparison with those that there are.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::{Check, Predicate, shown};
use crate::catalogue;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::leases::Lease;
use crate::memtable::shared::{RecordKey, Values, keyed};
use crate::projector;
use crate::record::Record as _;
use crate::reseal::reseal_row;
use crate::sql::{Connection, Shape, Value, is_sealed};

/// Changes that are written together: some megabytes in this process.
const CHANGES_AT_ONCE: usize = 20_000;

/// Builds the tables in `scratch`, which is empty, from the journal, and compares them row by row
/// with those of the database.
pub fn replay(
    engine: &dyn Engine,
    keyring: &Keyring,
    scratch: &dyn Engine,
) -> Result<Check, StoreError> {
    let mut source = engine.auditor()?;
    source.begin_read()?;
    let mut check = Check::new(Predicate::J3);
    let mut target = scratch.whole(keyring)?;
    rebuild(&mut *source, &mut *target, keyring)?;
    target.begin_read()?;
    for shape in catalogue::tables().iter().filter(|shape| is_replayed(shape)) {
        let mut found = Rows::new(&mut *source, shape);
        let mut replayed = Rows::new(&mut *target, shape);
        while let Some(difference) =
            next_difference((&mut found, &mut replayed), keyring, &mut check.rows)?
        {
            check.keep(difference);
        }
    }
    target.rollback()?;
    source.rollback()?;
    Ok(check)
}

/// Whether the journal has the changes of a table. Leases come and go beside it.
fn is_replayed(shape: &Shape) -> bool {
    shape.number != tail::NONE && shape.table != Lease::TABLE
}

/// Writes what the journal says into empty tables.
fn rebuild(
    source: &mut dyn Connection,
    target: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    let mut records = Vec::new();
    let applied = tail::applied(source)?;
    tail::each(source, keyring, tail::Rows::behind(0), &mut |row, sets| {
        // The tables follow a moment later.
        if row.seq > applied.seq {
            return Ok(());
        }
        for change in sets.into_iter().flat_map(|set| set.rows).map(|row| row.change) {
            records.push(keyed(row.seq, change)?);
        }
        if records.len() >= CHANGES_AT_ONCE {
            project(target, std::mem::take(&mut records), keyring)?;
        }
        Ok(())
    })?;
    project(target, records, keyring)
}

fn project(
    target: &mut dyn Connection,
    records: Vec<(RecordKey, Option<Values>)>,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    target.begin()?;
    target.write(projector::writes_of(records, keyring)?)?;
    target.commit()
}

/// The rows of a table in the order of their keys.
struct Rows<'a> {
    connection: &'a mut dyn Connection,
    shape: &'static Shape,
    read: VecDeque<Vec<Value>>,
    after: Option<Vec<Value>>,
    is_whole: bool,
}

impl<'a> Rows<'a> {
    fn new(connection: &'a mut dyn Connection, shape: &'static Shape) -> Self {
        Self { connection, shape, read: VecDeque::new(), after: None, is_whole: false }
    }

    /// The next row, which stays.
    fn peek(&mut self) -> Result<Option<&Vec<Value>>, StoreError> {
        if self.read.is_empty() && !self.is_whole {
            let limit = catalogue::rows_at_once(self.shape);
            let after = self.after.as_deref();
            let chunk = catalogue::chunk(self.connection, self.shape, after, limit)?;
            self.is_whole = chunk.last.is_none();
            self.after = chunk.last;
            self.read = chunk.rows.into();
        }
        Ok(self.read.front())
    }

    fn next(&mut self) -> Option<Vec<Value>> {
        self.read.pop_front()
    }
}

/// Whether two rows differ only by the secret that sealed them, as during `--reencrypt`.
fn is_resealed(
    keyring: &Keyring,
    shape: &Shape,
    found: &Option<Vec<Value>>,
    replayed: &Option<Vec<Value>>,
) -> bool {
    let newest = |row: &Option<Vec<Value>>| {
        let mut row = row.clone()?;
        reseal_row(keyring, shape, &mut row).ok()?;
        Some(row)
    };
    is_sealed(shape.columns) && newest(found).is_some_and(|row| Some(row) == newest(replayed))
}

/// The next row that is not the same on both sides, in words. `rows` counts those that were looked
/// at.
fn next_difference(
    (found, replayed): (&mut Rows<'_>, &mut Rows<'_>),
    keyring: &Keyring,
    rows: &mut u64,
) -> Result<Option<String>, StoreError> {
    let (table, key) = (found.shape.table, found.shape.key);
    let name = |row: &[Value]| {
        let rest = row[1..key].iter().map(|value| match value {
            Value::Int(number) => format!(" {number}"),
            Value::Text(text) => format!(" {text}"),
            Value::Null | Value::Bytes(_) => String::new(),
        });
        format!("{table}: {}{}", shown(row.first()), rest.collect::<String>())
    };
    loop {
        let order = match (found.peek()?, replayed.peek()?) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(found), Some(replayed)) => found[..key].cmp(&replayed[..key]),
        };
        *rows += 1;
        match order {
            Ordering::Less => {
                let row = found.next().unwrap_or_default();
                return Ok(Some(format!("{} is there and not in the journal", name(&row))));
            }
            Ordering::Greater => {
                let row = replayed.next().unwrap_or_default();
                return Ok(Some(format!("{} is in the journal and not there", name(&row))));
            }
            Ordering::Equal => {
                let shape = found.shape;
                let (found, replayed) = (found.next(), replayed.next());
                if found != replayed && !is_resealed(keyring, shape, &found, &replayed) {
                    let row = found.unwrap_or_default();
                    return Ok(Some(format!("{} is not what the journal says", name(&row))));
                }
            }
        }
    }
}
