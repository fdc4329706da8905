//! The embedded engine: a SQLite database in one file.

use std::path::{Path, PathBuf};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::migrate;
use crate::sql::Connection;
use crate::sqlite::reserve::Reserve;
use crate::sqlite::{Access, Sqlite};

/// Reader connections. Reads of the API are short; two cores are the
/// smallest machine we plan for, and a list that takes long must not hold up a read of one row.
const READERS: usize = 4;

/// A SQLite database in one file.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    path: PathBuf,
    has_reserve: bool,
}

impl SqliteFile {
    /// The database in the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), has_reserve: false }
    }

    /// The same for a server, which keeps room beside it for when the disk is full.
    #[must_use]
    pub fn with_reserve(self) -> Self {
        Self { has_reserve: true, ..self }
    }
}

impl Engine for SqliteFile {
    fn prepare(&self, _: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = Sqlite::open_to_serve(&self.path)?;
        migrate::sqlite(&mut connection)?;
        Ok(Box::new(connection))
    }

    fn projector(&self) -> Result<Box<dyn Connection>, StoreError> {
        let reserve = self.has_reserve.then(|| Reserve::beside(&self.path));
        Ok(Box::new(Sqlite::open_to_project(&self.path, reserve)?))
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(Sqlite::open(&self.path, Access::Read)?))
    }

    fn readers(&self) -> usize {
        READERS
    }

    fn holds_data(&self) -> Result<bool, StoreError> {
        Ok(std::fs::metadata(&self.path).is_ok_and(|file| file.len() > 0))
    }

    fn alone(&self) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = Sqlite::open(&self.path, Access::Alone)?;
        connection.begin_read()?;
        Ok(Box::new(connection))
    }
}
