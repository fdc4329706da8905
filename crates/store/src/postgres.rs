//! PostgreSQL: the same units of work on a database that several servers share.
//!
//! - All that a batch reads or writes of a table is one statement over arrays, and statements that
//!   do not depend on an answer are pipelined (`client`).
//! - Servers write one after the other: a batch locks one row first, so none sees half of
//!   another's (`write_lock`, `docs/decisions/0010`). The last row of the journal shows whether
//!   another wrote.
//! - When the answer to a commit is lost, the next transaction looks for the row that it appended
//!   (`journal::lost_commit`).
//!
//! It uses no triggers, functions, notifications or advisory locks.

mod address;
mod client;
pub(crate) mod connection;
mod failure;
mod rebuilt;
mod refusals;
mod soundness;
mod texts;
mod tls;
mod values;

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use self::address::Address;
use self::client::Purpose;
use self::connection::Postgres;
use self::rebuilt::Rebuilt;
use crate::engine::{self, COPY_MARK_NAME, Engine, NewTables};
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::migrate;
use crate::pause::pause;
use crate::sql::{Connection, Value};

/// Reader connections. Each waits for a network most of the time, and each is a process of the
/// database, which has a hundred by default for all servers of ours. A server has ten: these, one
/// that writes and one for probes.
const READERS: usize = 8;

/// A server that runs renews its lease more often than this (`service::leadership`).
const LEASE_RENEWED_WITHIN: Duration = Duration::from_secs(4);

/// A database on a PostgreSQL server.
#[derive(Clone)]
pub struct PostgresServer {
    address: Arc<Address>,
    /// The use of connections that read.
    reads: Purpose,
}

impl PostgresServer {
    /// The database that a `postgres://` URL names, with the parameters that libpq knows. An error
    /// says what is wrong with the URL and never repeats it.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Ok(Self { address: Arc::new(Address::from_str(url)?), reads: Purpose::REQUESTS })
    }

    /// The same for a command, whose reads take as long as there is data: no client waits for them.
    #[must_use]
    pub fn for_a_command(self) -> Self {
        Self { reads: Purpose::COMMANDS, ..self }
    }

    /// A connection that connects when it is used first: a start needs few of the readers.
    fn connection(&self, purpose: Purpose) -> Postgres {
        Postgres::new(Address::clone(&self.address), purpose)
    }
}

impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// The leadership lease, as a server would have stored it.
type StoredLease = Option<Vec<Value>>;

/// The leadership lease, once a server that is there must have renewed it.
fn at_rest(connection: &mut Postgres) -> Result<StoredLease, StoreError> {
    let lease = connection.lease()?;
    // One that was given up says so. Any other is looked at for so long that a server that is
    // there must have renewed it, whatever its clock says.
    if lease.as_ref().is_some_and(|lease| lease.last() != Some(&Value::Int(0))) {
        pause(LEASE_RENEWED_WITHIN);
    }
    Ok(lease)
}

/// Refuses a database whose lease is another one by now.
fn refuse_served(connection: &mut Postgres, at_rest: &StoredLease) -> Result<(), StoreError> {
    if connection.lease()? == *at_rest {
        return Ok(());
    }
    Err(StoreError::Conflict("a server runs jobs in it".to_owned()))
}

impl Engine for PostgresServer {
    fn prepare(&self, _: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        let mut migrator = self.connection(Purpose::SCHEMA);
        migrator.connect()?;
        migrate::postgres(&mut migrator)?;
        let mut connection = self.connection(Purpose::REQUESTS);
        connection.connect()?;
        connection.write_with_lock();
        Ok(Box::new(connection))
    }

    fn projector(&self) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = self.connection(Purpose::REQUESTS);
        connection.write_beside();
        Ok(Box::new(connection))
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(self.connection(self.reads)))
    }

    fn prober(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(self.connection(Purpose::PROBES)))
    }

    fn auditor(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(self.connection(Purpose::WHOLE)))
    }

    fn readers(&self) -> usize {
        READERS
    }

    fn holds_data(&self) -> Result<bool, StoreError> {
        let mut connection = self.connection(Purpose::REQUESTS);
        connection.connect()?;
        // A copy that is not finished has no key yet.
        Ok(migrate::has_schema(&mut connection)?
            && (engine::knows_key(&mut connection)?
                || engine::meta(&mut connection, COPY_MARK_NAME)?.is_some()))
    }

    fn alone(&self) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = self.connection(Purpose::WHOLE);
        connection.connect()?;
        let lease = at_rest(&mut connection)?;
        connection.lock_snapshots();
        connection.begin_read()?;
        refuse_served(&mut connection, &lease)?;
        Ok(Box::new(connection))
    }

    fn new_tables(&self, keyring: &Keyring) -> Result<Box<dyn NewTables>, StoreError> {
        let mut connection = self.connection(Purpose::SCHEMA);
        connection.write_with_lock();
        let migrator = self.connection(Purpose::SCHEMA);
        Ok(Box::new(Rebuilt::open(connection, migrator, keyring)?))
    }
}
