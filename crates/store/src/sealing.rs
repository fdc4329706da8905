//! The announcement of a new secret that seals, by which running servers learn of it.
//!
//! Servers that run have the secrets of the database, and not its new key. So a new secret stands
//! in `meta`, sealed with the one before, until nothing is sealed with that any more. It comes with
//! a new key of the journal, which it seals, in one transaction with a row of the journal. Whoever
//! reads the journal up to there has to open that key, and so learns of the secret before it meets
//! a value that is sealed with it.

use crate::engine::{self, SET_META};
use crate::error::StoreError;
use crate::keyring::{FIRST_NUMBER, Keyring, SealingSecret};
use crate::sql::{Connection, Value};

/// The row of `meta` with the number of the secret that seals, and that secret as the one before
/// sealed it, if values of that one are left. A database without it has its first.
const NAME: Value = Value::name("sealing");

/// The place for which a secret is sealed with the one before it.
const PLACE: &str = "sealing";

/// A secret that was drawn while this process did not look cannot be learned any more.
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

/// The number of the secret that seals, and that secret as it is handed over.
fn read(row: &[u8]) -> Result<(u32, &[u8]), StoreError> {
    let (number, handed_over) = row.split_first_chunk().ok_or_else(|| StoreError::Corrupt {
        place: "meta.sealing".to_owned(),
        what: "not a number".to_owned(),
    })?;
    Ok((u32::from_be_bytes(*number), handed_over))
}

/// Announces a new secret to servers with the one before it, and to this process, inside a
/// transaction.
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

/// Takes an announcement back once nothing is sealed with the secret before, inside a transaction.
pub(crate) fn end(connection: &mut dyn Connection, number: u32) -> Result<(), StoreError> {
    keep(connection, number.to_be_bytes().to_vec())
}

/// Learns of the secret with which the database is sealed.
pub(crate) fn learn(connection: &mut dyn Connection, keyring: &Keyring) -> Result<(), StoreError> {
    let Some(row) = kept(connection)? else { return Ok(()) };
    let (number, handed_over) = read(&row)?;
    match keyring.add(number, PLACE, handed_over) {
        true => Ok(()),
        false => Err(StoreError::Engine(UNKNOWN.to_owned())),
    }
}

/// Forgets secrets that the database does not have: it went back to before they were announced.
/// Nothing may append meanwhile.
pub(crate) fn go_back(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    let row = kept(connection)?;
    let number = row.map_or(Ok(FIRST_NUMBER), |row| read(&row).map(|(number, _)| number))?;
    keyring.forget_newer(number);
    Ok(())
}
