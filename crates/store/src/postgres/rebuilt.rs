//! New tables of a database on a server, in the place of the former ones.
//!
//! A row of `meta` says that they are being made, from the transaction that drops the former ones
//! until the new ones follow the journal to its end. While it stands there no server opens the
//! database, and a rebuild goes on where an earlier one was stopped.

use std::path::PathBuf;

use super::connection::Postgres;
use super::{at_rest, refuse_served};
use crate::engine::{self, DROP_META, KEEP_META, NewTables, REBUILD_MARK_NAME};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::migrate;
use crate::rebuild;
use crate::sql::{Connection, Value, transaction};

/// The value of the mark, whose presence says everything.
const MARK: &[u8] = b"1";

/// The tables that are being made.
pub(super) struct Rebuilt {
    connection: Postgres,
}

impl Rebuilt {
    /// Goes on with new tables, or drops the former ones and begins. `connection` writes with the
    /// write lock, and `migrator` makes tables.
    pub(super) fn open(
        mut connection: Postgres,
        mut migrator: Postgres,
        keyring: &Keyring,
    ) -> Result<Self, StoreError> {
        connection.connect()?;
        let lease = at_rest(&mut connection)?;
        migrator.connect()?;
        migrate::postgres_track(&mut migrator, &migrate::JOURNAL)?;
        rebuild::refuse_journal(&mut connection, keyring)?;
        transaction(&mut connection, |connection| {
            refuse_served(connection, &lease)?;
            match engine::meta(connection, REBUILD_MARK_NAME)? {
                Some(_) => Ok(()),
                None => drop_tables(connection).map_err(in_use),
            }
        })?;
        migrate::postgres_track(&mut migrator, &migrate::TABLES)?;
        transaction(&mut connection, |connection| tail::begin_tables(connection))?;
        Ok(Self { connection })
    }
}

impl NewTables for Rebuilt {
    fn connection(&mut self) -> &mut dyn Connection {
        &mut self.connection
    }

    fn keep(mut self: Box<Self>) -> Result<Option<PathBuf>, StoreError> {
        transaction(&mut self.connection, |connection| {
            connection.execute(DROP_META, &[REBUILD_MARK_NAME]).map(drop)
        })?;
        Ok(None)
    }
}

/// Drops the tables that follow the journal and their history, and says that new ones are made.
fn drop_tables(connection: &mut Postgres) -> Result<(), StoreError> {
    connection.execute(KEEP_META, &[REBUILD_MARK_NAME, Value::from(MARK)])?;
    for table in rebuild::derived().chain([migrate::TABLES.history()]) {
        connection.execute(&format!("drop table if exists {table}"), &[])?;
    }
    Ok(())
}

/// Says why tables cannot be dropped that another session reads.
fn in_use(error: StoreError) -> StoreError {
    match error {
        StoreError::Busy | StoreError::Conflict(_) => StoreError::Engine(
            "a table is in use, perhaps by pg_dump: run it again once that has ended".to_owned(),
        ),
        error => error,
    }
}
