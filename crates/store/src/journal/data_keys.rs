//! The data keys with which the journal seals what it has of a person. They lie beside it, outside
//! the chain, so that one can be erased (docs/decisions/0023).

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use super::Row;
use super::change_set::{ChangeSet, RowChange};
use super::frames::{self, DataKey, JournalKeys};
use super::tail::{NONE, drawn};
use crate::error::StoreError;
use crate::keyring::{KEY_LENGTH, Keyring};
use crate::sql::{self, Change, Connection, Shape, Value, Write};

/// The data keys of owners, sealed with the server's. One that was erased is null.
pub(crate) static DATA_KEYS: Shape = Shape::new(NONE, "data_keys", &["owner", "sealed"]);

pub(crate) const ALL: &str = "select owner, sealed from data_keys";

/// Keys by owner; nothing for one that was erased.
pub(crate) type DataKeys = HashMap<Uuid, Option<DataKey>>;

/// Keys that are remembered, of some hundred bytes each. They are read again when more owners
/// than that have had changes.
const REMEMBERED_MAX: usize = 40_000;

/// An owner and its key.
type Found = (Uuid, Option<[u8; KEY_LENGTH]>);

fn read(row: &mut sql::Row, keyring: &Keyring) -> Result<Found, StoreError> {
    let owner = row.uuid()?;
    let Some(sealed) = row.bytes_or_null()? else { return Ok((owner, None)) };
    let key = keyring.open(DATA_KEYS.table, owner.as_bytes(), &sealed)?;
    let key = key.first_chunk().ok_or_else(|| row.corrupt("not a key"))?;
    Ok((owner, Some(*key)))
}

/// The keys of owners, as far as they are there.
fn fetch(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    owners: &BTreeSet<Uuid>,
) -> Result<Vec<Result<Found, StoreError>>, StoreError> {
    let (owners, mut found) = (owners.iter().map(|it| (*it).into()).collect::<Vec<_>>(), vec![]);
    connection.fetch(&DATA_KEYS, &owners, &mut |values| {
        found.push(read(&mut sql::Row::new(DATA_KEYS.table, DATA_KEYS.columns, values), keyring));
        Ok(())
    })?;
    Ok(found)
}

/// How many keys there are, and why some of them cannot be read.
pub(crate) fn check(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(usize, Vec<String>), StoreError> {
    let (mut count, mut broken) = (0, Vec::new());
    connection.query(ALL, &[], DATA_KEYS.columns.len(), &mut |values| {
        count += 1;
        let row = &mut sql::Row::new(DATA_KEYS.table, DATA_KEYS.columns, values);
        broken.extend(read(row, keyring).err().map(|error| error.to_string()));
        Ok(())
    })?;
    Ok((count, broken))
}

/// The keys that these rows are read with. Those that do not open are missing.
pub(crate) fn of_rows<'a>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    journal: &JournalKeys,
    rows: impl Iterator<Item = &'a Row>,
) -> Result<DataKeys, StoreError> {
    let owners = rows.flat_map(|row| frames::owners(&row.body)).collect();
    let found = fetch(connection, keyring, &owners)?.into_iter().filter_map(Result::ok);
    Ok(found.map(|(owner, key)| (owner, key.map(|key| DataKey::new(key, journal)))).collect())
}

/// Makes the keys known with which change sets are sealed, and gives the write that keeps those of
/// new owners, which are drawn. Rows of an owner who was erased tell of no person any more, and
/// have no owner from here on.
pub(crate) fn of_change_sets(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    (journal, known): (&JournalKeys, &mut DataKeys),
    sets: &mut [ChangeSet],
) -> Result<Option<Write>, StoreError> {
    if known.len() > REMEMBERED_MAX {
        known.clear();
    }
    let owners = sets.iter().flat_map(|set| &set.rows).filter_map(RowChange::owner);
    let mut unknown: BTreeSet<_> = owners.filter(|owner| !known.contains_key(owner)).collect();
    if !unknown.is_empty() {
        for found in fetch(connection, keyring, &unknown)? {
            let (owner, key) = found?;
            unknown.remove(&owner);
            known.insert(owner, key.map(|key| DataKey::new(key, journal)));
        }
    }
    let mut rows = Vec::new();
    for owner in unknown {
        let key = drawn::<KEY_LENGTH>()?;
        let sealed = keyring.seal(DATA_KEYS.table, owner.as_bytes(), &key);
        rows.push(vec![owner.into(), sealed.into()]);
        known.insert(owner, Some(DataKey::new(key, journal)));
    }
    for row in sets.iter_mut().flat_map(|set| &mut set.rows) {
        row.of_person.take_if(|of| !matches!(known.get(&of.owner), Some(Some(_))));
    }
    let is_new = !rows.is_empty();
    Ok(is_new.then_some(Write { shape: &DATA_KEYS, change: Change::Insert, rows }))
}

/// Erases the keys of owners, inside a transaction.
pub(crate) fn erase(known: &mut DataKeys, owners: &BTreeSet<Uuid>) -> Write {
    known.extend(owners.iter().map(|owner| (*owner, None)));
    let rows = owners.iter().map(|owner| vec![(*owner).into(), Value::Null]).collect();
    Write { shape: &DATA_KEYS, change: Change::Upsert, rows }
}
