//! The seals of rows: what a server reads from a table is as a server wrote it.
//!
//! The last column of a table, `sealed`, has the part of a record that must not stand in a plain
//! column. All other columns of the row are its associated data, so that an edit by SQL is refused
//! as damage, and `verify` names it (S2). A record without such a part has an empty one.
//!
//! A column that tells of a person, such as a name or a UMA address, has a keyed hash by which the
//! row is found ([`Record::HIDDEN`](crate::record::Record::HIDDEN)), and its value is in the sealed
//! part.
//!
//! Limits: a row that was removed, or put back as it was earlier, has a good seal or none;
//! `verify --replay` names it. Tables without seals: events and answers are compared with the
//! journal where they are read, each unit checks its timer again, and a lease seals the address of
//! its holder.

use uuid::{Uuid, Version};

use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::sql::{Shape, Value};

/// How rows of a table are sealed and opened.
#[derive(Debug, Clone, Copy)]
pub struct Seal {
    /// Makes the values of a row, nothing sealed, the columns of its table.
    pub(crate) seal: fn(&Shape, &mut Vec<Value>, &Keyring),
    /// The other way.
    pub(crate) open: fn(&Shape, &mut Vec<Value>, &Keyring) -> Result<(), StoreError>,
    /// Whether an edit of any column is found.
    pub(crate) covers_row: bool,
}

impl Seal {
    /// Nothing is sealed.
    pub const NONE: Self = Self { seal: |_, _, _| {}, open: |_, _, _| Ok(()), covers_row: false };

    /// The last column seals the row.
    pub const ROW: Self = Self { seal, open, covers_row: true };
}

/// The associated data: all columns but the last. Columns that are newer than the row are null at
/// the end, and do not count.
fn place(columns: &[Value]) -> Vec<u8> {
    let is_there = |value: &Value| *value != Value::Null;
    let end = columns.iter().rposition(is_there).map_or(0, |last| last + 1);
    minicbor::to_vec(&columns[..end]).expect("memory takes every byte")
}

fn has_part(shape: &Shape) -> bool {
    shape.width == shape.columns.len()
}

fn seal(shape: &Shape, row: &mut Vec<Value>, keyring: &Keyring) {
    let mut part = match row.pop_if(|_| has_part(shape)) {
        Some(Value::Bytes(part)) => part,
        _ => Vec::new(),
    };
    if !shape.hidden.is_empty() {
        let hidden = hide(shape, row, keyring);
        part = minicbor::to_vec((hidden, Value::Bytes(part))).expect("memory takes every byte");
    }
    let sealed = keyring.seal(shape.table, &place(row), &part);
    row.push(sealed.into());
}

fn open(shape: &Shape, row: &mut Vec<Value>, keyring: &Keyring) -> Result<(), StoreError> {
    let part = match row.pop() {
        Some(Value::Bytes(sealed)) => keyring.open(shape.table, &place(row), &sealed).ok(),
        _ => None,
    };
    let part = match part {
        Some(part) if !shape.hidden.is_empty() => show(shape, row, &part),
        part => part.map(Value::from),
    };
    let Some(part) = part else {
        let key = row.first().map_or_else(String::new, Value::shown);
        return Err(StoreError::Sealed { place: format!("{} {key}", shape.table) });
    };
    if has_part(shape) {
        row.push(part);
    }
    Ok(())
}

/// The keyed hash that stands in a column for a text or for the key of a UMA address; nothing for
/// other values. Equal values have equal hashes.
pub(crate) fn hidden(keyring: &Keyring, value: &Value) -> Option<Value> {
    match value {
        Value::Text(text) => {
            let hash = keyring.hash(Purpose::Hidden, &[text.as_bytes()]);
            Some(Uuid::from_bytes(first(hash)).simple().to_string().into())
        }
        Value::Bytes(bytes) => {
            let key = Uuid::from_slice(bytes).ok()?;
            // Keys of addresses are hashes without a key; no other uuid is of this version.
            (key.get_version() == Some(Version::Sha1)).then(|| hidden_address(keyring, key).into())
        }
        Value::Null | Value::Int(_) => None,
    }
}

/// The same for the key of a UMA address.
pub(crate) fn hidden_address(keyring: &Keyring, key: Uuid) -> Uuid {
    Uuid::from_bytes(first(keyring.hash(Purpose::Hidden, &[key.as_bytes()])))
}

fn first(hash: [u8; 32]) -> [u8; 16] {
    *hash.first_chunk().expect("a hash is longer than a uuid")
}

/// Puts a keyed hash in the place of each value that tells of a person, and gives these: null
/// where a column keeps its value.
fn hide(shape: &Shape, row: &mut [Value], keyring: &Keyring) -> Vec<Value> {
    let hide = |column: &usize| match row.get_mut(*column) {
        Some(value) => match hidden(keyring, value) {
            Some(hidden) => std::mem::replace(value, hidden),
            None => Value::Null,
        },
        None => Value::Null,
    };
    shape.hidden.iter().map(hide).collect()
}

/// Puts them back, and gives the sealed part.
fn show(shape: &Shape, row: &mut [Value], part: &[u8]) -> Option<Value> {
    let (hidden, part): (Vec<Value>, Value) = minicbor::decode(part).ok()?;
    for (column, value) in shape.hidden.iter().zip(hidden) {
        if value != Value::Null {
            *row.get_mut(*column)? = value;
        }
    }
    Some(part)
}
