//! The port of engines: how to connect to a database, and whether a key is its own.

use std::path::PathBuf;

use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::sql::{Connection, Row, Value, transaction};

/// A kind of database.
pub trait Engine: Send + Sync {
    /// Brings the schema up to date and gives the connection that writes.
    fn prepare(&self, keyring: &Keyring) -> Result<Box<dyn Connection>, StoreError>;

    /// A connection that writes everything, to a database that nothing else has open: the target of
    /// a copy.
    fn whole(&self, keyring: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        self.prepare(keyring)
    }

    /// A connection that writes the tables that follow the journal, beside the one that writes the
    /// journal. Its commits need not be on the disk at once: what is lost of them follows again.
    fn projector(&self) -> Result<Box<dyn Connection>, StoreError>;

    /// Flushes the commits of such connections to the disk. A database on a server of its own does
    /// it with the next commit that waits for the disk.
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// A connection that only reads.
    fn reader(&self) -> Result<Box<dyn Connection>, StoreError>;

    /// A connection that only probes the database, and gives up soon.
    fn prober(&self) -> Result<Box<dyn Connection>, StoreError> {
        self.reader()
    }

    /// A connection that only reads, and may take as long as there is data.
    fn auditor(&self) -> Result<Box<dyn Connection>, StoreError> {
        self.reader()
    }

    /// The names of the files that the connections of a server have open, which must keep them;
    /// none where the database is on a server of its own.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// How many connections answer reads side by side.
    fn readers(&self) -> usize;

    /// Whether there is a database with something in it.
    fn holds_data(&self) -> Result<bool, StoreError>;

    /// A connection to a database that is there and that no server uses, nor can write to until
    /// this connection is closed; the answer is a [`StoreError::Conflict`] if one does. It is in a
    /// transaction that only reads, from one snapshot, and so is the next one.
    fn alone(&self) -> Result<Box<dyn Connection>, StoreError>;

    /// Tables that are to be made anew from the journal of a database that no server uses: empty
    /// ones, or as far as an earlier rebuild came. The answer is a [`StoreError::Conflict`] if a
    /// server uses it.
    fn new_tables(&self, keyring: &Keyring) -> Result<Box<dyn NewTables>, StoreError>;
}

/// Tables that are being made anew.
pub trait NewTables {
    /// The connection that reads the journal and writes these tables.
    fn connection(&mut self) -> &mut dyn Connection;

    /// Makes them the tables of the database. Where the former ones are kept, if there are any.
    fn keep(self: Box<Self>) -> Result<Option<PathBuf>, StoreError>;
}

pub(crate) const META: &str = "select value from meta where name = $1";
pub(crate) const KEEP_META: &str = "insert into meta (name, value) values ($1, $2)";
pub(crate) const SET_META: &str = "insert into meta (name, value) values ($1, $2) \
    on conflict (name) do update set value = excluded.value";

/// The row of `meta` that shows whether a key is the right one. A database without it holds
/// nothing yet that counts.
const KEY_CHECK_NAME: Value = Value::name("key_check");

/// The row of `meta` with the progress of a copy into the database, until it is whole.
pub(crate) const COPY_MARK_NAME: Value = Value::name("copy");

/// The row of `meta` that stands there while tables are made anew in the place of those that there
/// were.
pub(crate) const REBUILD_MARK_NAME: Value = Value::name("rebuild");

/// Removes a row of `meta`.
pub(crate) const DROP_META: &str = "delete from meta where name = $1";

/// A key does not open the database.
pub(crate) const WRONG_KEY: &str = "the key is not the one of this database; \
    give the right key file or SWITCHYARD_SECRET_KEY";

/// The value of a name in `meta`.
pub(crate) fn meta(
    connection: &mut dyn Connection,
    name: Value,
) -> Result<Option<Vec<u8>>, StoreError> {
    connection.first(META, &[name], ("meta", &["value"]), Row::bytes)
}

/// Writes the check of this database's key, inside a transaction.
pub(crate) fn keep_key_check(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    let expected = keyring.hash(Purpose::KeyCheck, &[]);
    connection.execute(KEEP_META, &[KEY_CHECK_NAME, Value::from(&expected[..])]).map(drop)
}

/// Whether the database is one: it knows its key from the first start on.
pub(crate) fn knows_key(connection: &mut dyn Connection) -> Result<bool, StoreError> {
    Ok(meta(connection, KEY_CHECK_NAME)?.is_some())
}

/// Refuses a database whose tables are being made anew.
fn refuse_half_rebuilt(connection: &mut dyn Connection) -> Result<(), StoreError> {
    if meta(connection, REBUILD_MARK_NAME)?.is_none() {
        return Ok(());
    }
    Err(StoreError::Engine(
        "its tables are being made anew; if no switchyard rebuild runs, run it again to go on with \
         it"
        .to_owned(),
    ))
}

/// Refuses a database that a copy has not filled yet.
pub(crate) fn refuse_unfinished(connection: &mut dyn Connection) -> Result<(), StoreError> {
    if meta(connection, COPY_MARK_NAME)?.is_none() {
        return Ok(());
    }
    Err(StoreError::Engine(
        "a copy into this database is not finished; run switchyard migrate again to go on with it"
            .to_owned(),
    ))
}

/// Refuses a key that is not the one of the database, and a database that a copy or a rebuild has
/// not filled yet. Whether the database knows its key: a new one does not.
pub(crate) fn compare_key(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<bool, StoreError> {
    refuse_half_rebuilt(connection)?;
    compare_key_of_journal(connection, keyring)
}

/// The same, also where the tables are being made anew.
pub(crate) fn compare_key_of_journal(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<bool, StoreError> {
    refuse_unfinished(connection)?;
    match meta(connection, KEY_CHECK_NAME)? {
        Some(found) if found == keyring.hash(Purpose::KeyCheck, &[]) => Ok(true),
        Some(_) => Err(StoreError::Engine(WRONG_KEY.to_owned())),
        None => Ok(false),
    }
}

/// Makes sure that the key is the one of the database. In a new one, the check of
/// the key is written together with what it `begins` with.
pub(crate) fn check_key(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    begins: impl FnOnce(&mut dyn Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if compare_key(connection, keyring)? {
        return Ok(());
    }
    transaction(connection, |connection| {
        // Another server may have been first.
        if compare_key(connection, keyring)? {
            return Ok(());
        }
        keep_key_check(connection, keyring)?;
        begins(connection)
    })
}
