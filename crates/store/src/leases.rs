//! Leases: one server does something for all that share a database.
//!
//! A lease names who has it and until when, and counts how often it changed hands. The count is
//! the fence: work for a lease checks it in the unit that keeps the result, so a server that
//! was late, frozen or wrong about the time changes nothing.

use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::seal::Seal;
use crate::sql::{LEADERSHIP, Row, Shape, Value};

/// The name of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseName {
    /// Leadership: running due jobs.
    Jobs,
    /// Filling an empty database. Its holder keeps it.
    FirstStart,
}

impl LeaseName {
    /// Every name.
    pub const ALL: [Self; 2] = [Self::Jobs, Self::FirstStart];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => LEADERSHIP,
            Self::FirstStart => "FIRST_START",
        }
    }

    /// The lease name in storage.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub name: LeaseName,
    /// The server, by an id that it drew when it started.
    pub holder: Uuid,
    /// How often the lease has changed hands, from 1.
    pub epoch: i64,
    /// From when on another server may take it.
    pub until: Timestamp,
    /// Where the other servers reach the holder, if it has said: `http://HOST:PORT`.
    pub address: Option<String>,
}

impl From<LeaseName> for Value {
    fn from(name: LeaseName) -> Self {
        Self::name(name.name())
    }
}

impl Record for Lease {
    type Key = LeaseName;
    const TABLE: &'static str = "leases";
    const COLUMNS: &'static [&'static str] = &["name", "holder", "epoch", "until", "address"];
    record_table!(leases);

    fn key(&self) -> LeaseName {
        self.name
    }

    fn values(&self) -> Vec<Value> {
        let address = self.address.as_ref().map(|address| address.as_bytes());
        vec![
            Value::name(self.name.name()),
            self.holder.into(),
            self.epoch.into(),
            self.until.into(),
            Value::or_null(address),
        ]
    }

    /// The address belongs to the holder, not to the name. It is sealed because other servers send
    /// the credentials of clients there: an intruder who can write to the database must not choose
    /// it.
    const SEAL: Seal = Seal { seal, open, covers_row: false };

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (name, holder) = (row.named(LeaseName::from_name)?, row.uuid()?);
        let (epoch, until) = (row.int()?, row.time()?);
        let address = row.bytes_or_null()?.and_then(|address| String::from_utf8(address).ok());
        Ok(Self { name, holder, epoch, until, address })
    }
}

#[expect(clippy::ptr_arg, reason = "a seal may be another column")]
fn seal(shape: &Shape, row: &mut Vec<Value>, keyring: &Keyring) {
    if let [_, Value::Bytes(holder), .., Value::Bytes(address)] = &mut row[..] {
        *address = keyring.seal(shape.table, holder, address);
    }
}

/// An address that was sealed for another server counts as missing; due jobs run anyway.
#[expect(clippy::ptr_arg, reason = "a seal may be another column")]
fn open(shape: &Shape, row: &mut Vec<Value>, keyring: &Keyring) -> Result<(), StoreError> {
    if let [_, Value::Bytes(holder), .., address] = &mut row[..] {
        let Value::Bytes(sealed) = &*address else { return Ok(()) };
        *address = Value::or_null(keyring.open(shape.table, holder, sealed).ok());
    }
    Ok(())
}
