//! The server's key, and the secrets of a database that it opens.
//!
//! Keyed hashes and sealed values of a database follow from its secrets. The hashing secret is
//! drawn with the database and never changes. It is also the first sealing secret, until
//! `key rotate --reencrypt` draws another one (`sealing`, `reseal`).
//!
//! The database keeps its secrets sealed with the server's key. So one row replaces the server's
//! key, while servers go on: they know the secrets. The old key alone opens no later copy.

use crate::audit;
use crate::engine::{self, Engine, SET_META};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::{FIRST_NUMBER, KEY_LENGTH, Keyring, SealingSecret};
use crate::origin::Origin;
use crate::sealing;
use crate::sql::{Connection, Value, transaction};

/// A key of 256 bits.
pub type Key = [u8; KEY_LENGTH];

/// The row of `meta` with the secrets, sealed for each key that opens the database: one, or two
/// while the server's key is replaced. A database without it has a secret that was given to it.
const SECRET_NAME: Value = Value::name("secret");

/// The place of the sealed secrets.
const PLACE: &str = "meta";

/// Length of the number of a sealing secret.
const NUMBER_LENGTH: usize = 4;

/// The secrets of a database.
#[derive(Clone)]
struct Secrets {
    hashing: Key,
    /// The newest first. Older ones only open.
    sealing: Vec<SealingSecret>,
}

impl Secrets {
    /// One secret that hashes and seals.
    fn one(secret: Key) -> Self {
        let first = SealingSecret { number: FIRST_NUMBER, secret };
        Self { hashing: secret, sealing: vec![first] }
    }

    fn keyring(&self) -> Keyring {
        Keyring::of(&self.hashing, &self.sealing)
    }

    /// Whether values of an older secret may be left.
    fn has_older(&self) -> bool {
        self.sealing.len() > 1
    }

    fn newest(&self) -> u32 {
        self.sealing.first().map_or(FIRST_NUMBER, |it| it.number)
    }

    /// The bytes to seal: the hashing secret, and the sealing secrets unless they are the same.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.hashing.to_vec();
        if self.has_older() || self.newest() != FIRST_NUMBER {
            for SealingSecret { number, secret } in &self.sealing {
                bytes.extend(number.to_be_bytes());
                bytes.extend(secret);
            }
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (hashing, rest) = bytes.split_first_chunk()?;
        if rest.is_empty() {
            return Some(Self::one(*hashing));
        }
        let sealing = rest.chunks(NUMBER_LENGTH + KEY_LENGTH).map(|chunk| {
            let (number, secret) = chunk.split_first_chunk()?;
            let number = u32::from_be_bytes(*number);
            Some(SealingSecret { number, secret: secret.try_into().ok()? })
        });
        Some(Self { hashing: *hashing, sealing: sealing.collect::<Option<_>>()? })
    }

    fn seal(&self, key: &Key) -> Vec<u8> {
        Keyring::new(key).seal(PLACE, b"secret", &self.to_bytes())
    }

    /// Opens the secrets, which are sealed for one key or for two.
    fn open(key: &Key, sealed: &[u8]) -> Result<Self, StoreError> {
        let (first, second) = sealed.split_at(sealed.len() / 2);
        let (keyring, all) = (Keyring::new(key), [sealed, first, second]);
        let opened = all.into_iter().find_map(|it| keyring.open(PLACE, b"secret", it).ok());
        let secrets = opened.and_then(|bytes| Self::read(&bytes));
        secrets.ok_or_else(|| StoreError::Engine(engine::WRONG_KEY.to_owned()))
    }

    /// The secrets of a database.
    fn of(connection: &mut dyn Connection, key: &Key) -> Result<Self, StoreError> {
        kept(connection)?.map_or(Ok(Self::one(*key)), |sealed| Self::open(key, &sealed))
    }
}

/// The sealed secrets of a database.
pub(crate) fn kept(connection: &mut dyn Connection) -> Result<Option<Vec<u8>>, StoreError> {
    engine::meta(connection, SECRET_NAME)
}

/// Keeps sealed secrets, inside a transaction.
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

/// The secrets of a database that is there.
fn secrets(engine: &dyn Engine, key: &Key) -> Result<Secrets, StoreError> {
    read(engine, |connection| Secrets::of(connection, key))
}

/// The keyring of a database that is there, with that of the keys which opens it.
pub fn unlock_with_any(engine: &dyn Engine, keys: &[Key]) -> Result<(Key, Keyring), StoreError> {
    let sealed = read(engine, kept)?;
    let mut refused = StoreError::Engine(engine::WRONG_KEY.to_owned());
    for key in keys {
        match sealed.as_ref().map_or(Ok(Secrets::one(*key)), |it| Secrets::open(key, it)) {
            Ok(secrets) => return Ok((*key, secrets.keyring())),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Seals the secrets of a database that nothing else has open with another key.
pub(crate) fn reseal(
    connection: &mut dyn Connection,
    old: &Key,
    new: &Key,
) -> Result<(), StoreError> {
    let secrets = Secrets::of(connection, old)?;
    transaction(connection, |connection| keep(connection, secrets.seal(new)))
}

/// The keyring of a database that is there.
pub fn unlock(engine: &dyn Engine, key: &Key) -> Result<Keyring, StoreError> {
    Ok(secrets(engine, key)?.keyring())
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
            keep(new, Secrets::one(secret).seal(key))?;
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

/// A rotation must not begin before the one with `--reencrypt` has ended.
const HAS_OLDER: &str = "the database is not sealed anew yet: switchyard key rotate --reencrypt \
    goes on with that, and another rotation can follow it";

/// Refuses secrets with an older sealing secret, which must be dropped first.
fn refuse_older(secrets: &Secrets) -> Result<(), StoreError> {
    match secrets.has_older() {
        true => Err(StoreError::Engine(HAS_OLDER.to_owned())),
        false => Ok(()),
    }
}

/// Replaces the server's key of a database that `known` opens.
pub fn replace(
    engine: &dyn Engine,
    (known, old, new): (&Key, &Key, &Key),
    step: Step,
) -> Result<(), StoreError> {
    let connection = &mut *engine.prepare(&unlock(engine, known)?)?;
    // Read and written in one transaction: another command may replace the secrets too.
    transaction(connection, |connection| {
        let secrets = Secrets::of(connection, known)?;
        refuse_older(&secrets)?;
        let sealed = match step {
            Step::Both => [secrets.seal(new), secrets.seal(old)].concat(),
            Step::NewOnly => secrets.seal(new),
        };
        keep(connection, sealed)
    })?;
    connection.settle()
}

/// Whether an older sealing secret is still there, because a `--reencrypt` has not ended.
pub fn has_older_secret(engine: &dyn Engine, key: &Key) -> Result<bool, StoreError> {
    Ok(secrets(engine, key)?.has_older())
}

/// Refuses a database with an older sealing secret: its key is not replaced before that is dropped.
pub fn refuse_older_secret(engine: &dyn Engine, key: &Key) -> Result<(), StoreError> {
    refuse_older(&secrets(engine, key)?)
}

/// Draws another sealing secret. From then on `new` alone opens the database. The older secret
/// still opens its values, until [`drop_older_secret`].
pub fn draw_secret(
    engine: &dyn Engine,
    (known, new): (&Key, &Key),
    origin: Origin,
) -> Result<(), StoreError> {
    let keyring = unlock(engine, known)?;
    audit::keep_with(engine, &keyring, origin, |connection| {
        let mut secrets = Secrets::of(connection, known)?;
        refuse_older(&secrets)?;
        refuse_other(&secrets, &keyring)?;
        let drawn = SealingSecret { number: secrets.newest() + 1, secret: tail::drawn()? };
        sealing::announce(connection, &keyring, &drawn)?;
        secrets.sealing.insert(0, drawn);
        keep(connection, secrets.seal(new))?;
        tail::add_next_key(connection, &keyring)
    })
}

/// Drops the older sealing secret. [`crate::reseal::reseal`] with this keyring must have ended.
pub fn drop_older_secret(
    engine: &dyn Engine,
    key: &Key,
    keyring: &Keyring,
    origin: Origin,
) -> Result<(), StoreError> {
    audit::keep_with(engine, keyring, origin, |connection| {
        let mut secrets = Secrets::of(connection, key)?;
        refuse_other(&secrets, keyring)?;
        secrets.sealing.truncate(1);
        keep(connection, secrets.seal(key))?;
        sealing::end(connection, secrets.newest())
    })
}

/// Refuses secrets that another command has drawn since the keyring was read.
fn refuse_other(secrets: &Secrets, keyring: &Keyring) -> Result<(), StoreError> {
    match secrets.newest() == keyring.newest() {
        true => Ok(()),
        false => {
            Err(StoreError::Engine("another command has drawn a secret: try again".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_open_with_each_of_their_keys() {
        let first = Secrets::one([9; KEY_LENGTH]);
        assert_eq!(first.to_bytes(), [9; KEY_LENGTH], "as releases before have it");
        let mut both = first.clone();
        both.sealing.insert(0, SealingSecret { number: 2, secret: [8; KEY_LENGTH] });
        let mut second = both.clone();
        second.sealing.truncate(1);
        let (old, new) = ([1; KEY_LENGTH], [2; KEY_LENGTH]);
        for secrets in [first, both, second] {
            let same = |found: Secrets| {
                found.hashing == secrets.hashing && found.sealing == secrets.sealing
            };
            let one = secrets.seal(&new);
            assert!(Secrets::open(&new, &one).is_ok_and(same));
            assert!(Secrets::open(&old, &one).is_err());
            let two = [secrets.seal(&new), secrets.seal(&old)].concat();
            assert!([old, new].iter().all(|key| Secrets::open(key, &two).is_ok_and(same)));
            assert!(Secrets::open(&[3; KEY_LENGTH], &two).is_err());
        }
        assert!(Secrets::read(&[0; 40]).is_none() && Secrets::read(&[0; 7]).is_none());
    }
}
