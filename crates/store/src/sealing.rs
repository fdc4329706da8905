//! The announcement of a new sealing secret to running servers.
//!
//! Running servers know the secrets of the database, but not its new key. So `meta` has the new
//! secret sealed with the one before, until no value of that one is left.
//!
//! The announcement is one transaction with a row of the journal and a new key of the journal,
//! which the new secret seals. A process that reads the journal up to this row must open that key.
//! So it learns of the secret before it can read a value under it.

use crate::engine::{self, SET_META};
use crate::error::StoreError;
use crate::keyring::{FIRST_NUMBER, Keyring, SealingSecret};
use crate::sql::{Connection, Value};

/// The row of `meta` with the number of the newest sealing secret. While values of the secret
/// before are left, the newest follows, sealed with that one. A database without the row has
/// number 1.
const NAME: Value = Value::name("sealing");

/// The place of the announced secret.
const PLACE: &str = "sealing";

/// The announcement is gone: this process has not read the database while it stood there.
const UNKNOWN: &str = "the database was sealed with another secret while this process was away: \
    give it the key of today and start it again";

/// The row, as the database has it.
pub(crate) fn kept(connection: &mut dyn Connection) -> Result<Option<Vec<u8>>, StoreError> {
    engine::meta(connection, NAME)
}

/// Keeps the row, inside a transaction.
pub(crate) fn keep(connection: &mut dyn Connection, row: Vec<u8>) -> Result<(), StoreError> {
    connection.execute(SET_META, &[NAME, row.into()]).map(drop)
}

/// The number of the newest secret, and that secret, sealed.
fn read(row: &[u8]) -> Result<(u32, &[u8]), StoreError> {
    let (number, handed_over) = row.split_first_chunk().ok_or_else(|| StoreError::Corrupt {
        place: "meta.sealing".to_owned(),
        what: "not a number".to_owned(),
    })?;
    Ok((u32::from_be_bytes(*number), handed_over))
}

/// Announces a new secret to servers and to this keyring, inside a transaction.
pub(crate) fn announce(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    drawn: &SealingSecret,
) -> Result<(), StoreError> {
    let number = drawn.number.to_be_bytes();
    let handed_over = keyring.seal(PLACE, &number, &drawn.secret);
    keep(connection, [&number[..], &handed_over].concat())?;
    learn(connection, keyring)
}

/// Ends the announcement, inside a transaction.
pub(crate) fn end(connection: &mut dyn Connection, number: u32) -> Result<(), StoreError> {
    keep(connection, number.to_be_bytes().to_vec())
}

/// Adds an announced secret to the keyring.
pub(crate) fn learn(connection: &mut dyn Connection, keyring: &Keyring) -> Result<(), StoreError> {
    let Some(row) = kept(connection)? else { return Ok(()) };
    let (number, handed_over) = read(&row)?;
    match keyring.add(number, PLACE, handed_over) {
        true => Ok(()),
        false => Err(StoreError::Engine(UNKNOWN.to_owned())),
    }
}

/// Forgets secrets whose announcement was lost with the end of the journal. The caller has the
/// write lock.
pub(crate) fn go_back(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    let row = kept(connection)?;
    let number = row.map_or(Ok(FIRST_NUMBER), |row| read(&row).map(|(number, _)| number))?;
    keyring.forget_newer(number);
    Ok(())
}
