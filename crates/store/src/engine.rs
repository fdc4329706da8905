//! Engines: where a database is and how to connect to it.

use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::migrate;
use crate::sql::{Connection, Row, Value};
use crate::sqlite::{Access, Sqlite};

/// A kind of database.
pub trait Engine: Send + Sync {
    /// Brings the schema up to date and gives the connection that writes.
    fn prepare(&self, keyring: &Keyring) -> Result<Box<dyn Connection>, StoreError>;

    /// A connection that only reads.
    fn reader(&self) -> Result<Box<dyn Connection>, StoreError>;
}

/// The embedded engine: a SQLite database in one file.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    path: PathBuf,
}

impl SqliteFile {
    /// The database in the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Engine for SqliteFile {
    fn prepare(&self, _: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = Sqlite::open(&self.path, Access::Write)?;
        migrate::sqlite(&mut connection)?;
        Ok(Box::new(connection))
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(Sqlite::open(&self.path, Access::Read)?))
    }
}

pub(crate) const KEY_CHECK: &str = "select value from meta where name = $1";
pub(crate) const KEEP_KEY_CHECK: &str = "insert into meta (name, value) values ($1, $2)";

/// The row of `meta` that tells whether a key is the right one.
const KEY_CHECK_NAME: Value = Value::name("key_check");

/// Refuses a key that is not the one that the database was made with. Whether the database knows
/// its key yet: a new one does not.
pub(crate) fn compare_key(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<bool, StoreError> {
    let mut found = None;
    connection.query(KEY_CHECK, &[KEY_CHECK_NAME], 1, &mut |values| {
        found = Some(Row::new("meta", &["value"], values).bytes()?);
        Ok(())
    })?;
    match found {
        Some(found) if found == keyring.hash(Purpose::KeyCheck, &[]) => Ok(true),
        Some(_) => Err(StoreError::Engine(
            "the key is not the one that this database was made with; \
             give the right key file or SWITCHYARD_SECRET_KEY"
                .to_owned(),
        )),
        None => Ok(false),
    }
}

/// Makes sure that the key is the one that the database was made with.
pub(crate) fn check_key(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    if compare_key(connection, keyring)? {
        return Ok(());
    }
    let expected = keyring.hash(Purpose::KeyCheck, &[]);
    connection.begin()?;
    connection.execute(KEEP_KEY_CHECK, &[KEY_CHECK_NAME, Value::from(&expected[..])])?;
    connection.commit()
}
