//! The server's key, and the secret of a database that it opens.
//!
//! Everything that is sealed or hashed in a database follows from its secret, which is drawn with
//! the database and never changes. The database keeps it sealed with the server's key. So another
//! key takes the place of the server's by one row, while servers go on: they know the secret. The
//! old key opens nothing that is copied from then on.

use crate::audit;
use crate::engine::{self, Engine, SET_META};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::{KEY_LENGTH, Keyring};
use crate::origin::Origin;
use crate::sql::{Connection, Value, transaction};

/// A key of 256 bits.
pub type Key = [u8; KEY_LENGTH];

/// The row of `meta` with the secret, sealed for each key that opens the database: one, or two
/// while the server's key is replaced. A database without it has a secret that was given to it.
const SECRET_NAME: Value = Value::name("secret");

/// The place of the sealed secret.
const PLACE: &str = "meta";

/// Length of the sealed secret: nonce, secret and tag.
const SEALED_LENGTH: usize = 24 + KEY_LENGTH + 16;

fn seal(key: &Key, secret: &Key) -> Vec<u8> {
    Keyring::new(key).seal(PLACE, b"secret", secret)
}

/// The secret, if one of the sealed ones opens with this key.
fn open(key: &Key, sealed: &[u8]) -> Result<Key, StoreError> {
    let keyring = Keyring::new(key);
    let opened =
        sealed.chunks(SEALED_LENGTH).find_map(|it| keyring.open(PLACE, b"secret", it).ok());
    let secret = opened.and_then(|secret| secret.try_into().ok());
    secret.ok_or_else(|| StoreError::Engine(engine::WRONG_KEY.to_owned()))
}

/// The sealed secret of a database.
pub(crate) fn kept(connection: &mut dyn Connection) -> Result<Option<Vec<u8>>, StoreError> {
    engine::meta(connection, SECRET_NAME)
}

/// Keeps a sealed secret, inside a transaction.
pub(crate) fn keep(connection: &mut dyn Connection, sealed: Vec<u8>) -> Result<(), StoreError> {
    connection.execute(SET_META, &[SECRET_NAME, sealed.into()]).map(drop)
}

/// Reads something of a database that is there.
fn read<T>(
    engine: &dyn Engine,
    read: impl FnOnce(&mut dyn Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let connection = &mut *engine.auditor()?;
    connection.begin_read()?;
    let found = read(connection)?;
    connection.rollback()?;
    Ok(found)
}

/// The secret of a database that is there.
fn secret(engine: &dyn Engine, key: &Key) -> Result<Key, StoreError> {
    read(engine, kept)?.map_or(Ok(*key), |sealed| open(key, &sealed))
}

/// The keyring of a database that is there, with that of the keys which opens it.
pub fn unlock_with_any(engine: &dyn Engine, keys: &[Key]) -> Result<(Key, Keyring), StoreError> {
    let sealed = read(engine, kept)?;
    let mut refused = StoreError::Engine(engine::WRONG_KEY.to_owned());
    for key in keys {
        match sealed.as_ref().map_or(Ok(*key), |sealed| open(key, sealed)) {
            Ok(secret) => return Ok((*key, Keyring::new(&secret))),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Seals the secret of a database that nothing else has open with another key.
pub(crate) fn reseal(
    connection: &mut dyn Connection,
    old: &Key,
    new: &Key,
) -> Result<(), StoreError> {
    let secret = kept(connection)?.map_or(Ok(*old), |sealed| open(old, &sealed))?;
    transaction(connection, |connection| keep(connection, seal(new, &secret)))
}

/// The keyring of a database that is there.
pub fn unlock(engine: &dyn Engine, key: &Key) -> Result<Keyring, StoreError> {
    Ok(Keyring::new(&secret(engine, key)?))
}

/// Holds a database that was made just now, until a store has opened it: closed by itself, its log
/// would move into a main file that says nothing yet.
pub struct Begun(#[expect(dead_code, reason = "it is held")] Option<Box<dyn Connection>>);

/// Whether a database was begun: it knows its key, or a copy has brought something. Tables without
/// that hold nothing yet.
pub fn is_begun(engine: &dyn Engine) -> Result<bool, StoreError> {
    let is_begun = |connection: &mut dyn Connection| {
        Ok(engine::knows_key(connection)?
            || engine::meta(connection, engine::COPY_MARK_NAME)?.is_some())
    };
    Ok(engine.holds_data()? && read(engine, is_begun)?)
}

/// The keyring of a database, which is made if it is not there, with a secret of its own.
pub fn unlock_or_begin(
    engine: &dyn Engine,
    key: &Key,
    draw: impl FnOnce() -> Key,
) -> Result<(Keyring, Begun), StoreError> {
    let mut held = None;
    if !engine.holds_data()? || !read(engine, engine::knows_key)? {
        let secret = draw();
        let keyring = Keyring::new(&secret);
        let mut new = engine.prepare(&keyring)?;
        let begun = engine::check_key(&mut *new, &keyring, |new| {
            keep(new, seal(key, &secret))?;
            tail::begin(new, &keyring)
        });
        match begun {
            Ok(()) => held = Some(new),
            // Another server may have been first, with another secret.
            Err(StoreError::Engine(what)) if what == engine::WRONG_KEY => {}
            Err(error) => return Err(error),
        }
    }
    Ok((unlock(engine, key)?, Begun(held)))
}

/// Gives the journal another key, with which rows are sealed from then on. Earlier rows keep the
/// key that they have.
pub fn replace_journal_key(
    engine: &dyn Engine,
    keyring: &Keyring,
    origin: Origin,
) -> Result<(), StoreError> {
    audit::keep_with(engine, keyring, origin, |connection| tail::add_next_key(connection, keyring))
}

/// The step of a replacement of the server's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Both keys open the database: wherever the new one is put, a crash on the way does no harm.
    Both,
    /// The new one alone does.
    NewOnly,
}

/// Replaces the server's key of a database that `known` opens.
pub fn replace(
    engine: &dyn Engine,
    (known, old, new): (&Key, &Key, &Key),
    step: Step,
) -> Result<(), StoreError> {
    let secret = secret(engine, known)?;
    let sealed = match step {
        Step::Both => [seal(new, &secret), seal(old, &secret)].concat(),
        Step::NewOnly => seal(new, &secret),
    };
    let connection = &mut *engine.prepare(&Keyring::new(&secret))?;
    transaction(connection, |connection| keep(connection, sealed))?;
    connection.settle()
}
