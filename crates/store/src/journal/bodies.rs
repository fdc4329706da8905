//! Bodies that stand in the journal alone. A table has the number of their row in its place
//! (decision 11 of the journal: the event feed is read from it).

use std::collections::{BTreeMap, BTreeSet};

use super::change_set::TableChange;
use super::frames::{Keys, Opened};
use super::tail::{self, JOURNAL};
use super::{Row, data_keys, number};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::sql::{self, Connection, Shape, Value};

/// Rows of the journal that are open at a time. One can have a quarter of a megabyte.
const ROWS_AT_ONCE: usize = 16;

/// A row of a table as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// All columns, the body last.
    There(Vec<Value>),
    /// The person whom it was about was erased.
    Erased,
    /// It cannot be read, or the journal does not have it.
    Missing(String),
}

/// The key of a row of a table, and the number of its row in the journal.
pub(crate) type Wanted = (u64, Vec<Value>);

/// The changes of a row of the journal to a table, the last one of each key.
struct Changes {
    rows: BTreeMap<Vec<Value>, Vec<Value>>,
    /// Whether there were some of persons who were erased.
    has_erased: bool,
}

/// Finds rows of a table in the journal, in the order in which they are wanted.
pub(crate) fn find(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    shape: &Shape,
    wanted: &[Wanted],
) -> Result<Vec<Found>, StoreError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let database = tail::database_of(connection)?;
    let mut keys = tail::keys(connection, keyring)?;
    let mut opened: BTreeMap<u64, Result<Changes, String>> = BTreeMap::new();
    let seqs: BTreeSet<u64> = wanted.iter().map(|(seq, _)| *seq).collect();
    for seqs in seqs.into_iter().collect::<Vec<_>>().chunks(ROWS_AT_ONCE) {
        let numbers = seqs.iter().map(|seq| number(*seq).map(Value::from));
        let (numbers, mut rows) = (numbers.collect::<Result<Vec<_>, _>>()?, Vec::new());
        connection.fetch(&JOURNAL, &numbers, &mut |values| {
            rows.extend(tail::read(&mut sql::Row::new(JOURNAL.table, JOURNAL.columns, values)));
            Ok(())
        })?;
        keys.data = data_keys::of_rows(connection, keyring, &keys.journal, rows.iter())?;
        for row in rows {
            opened.insert(row.seq, open(&keys, database, shape, &row));
        }
    }
    Ok(wanted.iter().map(|wanted| found(&opened, wanted)).collect())
}

/// The changes of a row to a table.
fn open(keys: &Keys, database: Uuid, shape: &Shape, row: &Row) -> Result<Changes, String> {
    let frames = tail::frames_of(keys, database, row)?;
    let has_erased = frames.iter().any(|frame| matches!(frame, Opened::Erased(_)));
    let changes =
        tail::change_sets(frames)?.into_iter().flat_map(|set| set.rows).map(|row| row.change);
    let changes = changes.filter(|change| change.table == shape.number);
    let keyed = |TableChange { values, .. }: TableChange| {
        (values.iter().take(shape.key).cloned().collect(), values)
    };
    Ok(Changes { rows: changes.map(keyed).collect(), has_erased })
}

fn found(opened: &BTreeMap<u64, Result<Changes, String>>, (seq, key): &Wanted) -> Found {
    match opened.get(seq) {
        None => Found::Missing(format!("the journal has no row {seq}")),
        Some(Err(what)) => Found::Missing(format!("row {seq} of the journal: {what}")),
        Some(Ok(Changes { rows, has_erased })) => match rows.get(key) {
            Some(values) => Found::There(values.clone()),
            None if *has_erased => Found::Erased,
            None => Found::Missing(format!("row {seq} of the journal has no such body")),
        },
    }
}
