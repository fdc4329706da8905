//! Engines whose connections do something of a test's own.

use std::result::Result;
use std::sync::Arc;

use store::engine::{Engine, NewTables};
use store::error::StoreError;
use store::keyring::Keyring;
use store::sql::{Connection, Shape, Value, Write};
use store::{Store, Threads};

use crate::Provider;
use crate::support::keyring;

/// A replacement for reading, writing and committing.
pub trait Tamper: Send + Sync + 'static {
    /// Takes the write lock.
    fn begin(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        inner.begin()
    }

    /// Makes changes.
    fn write(&self, inner: &mut dyn Connection, writes: Vec<Write>) -> Result<(), StoreError> {
        inner.write(writes)
    }

    /// Makes them durable.
    fn commit(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        inner.commit()
    }
}

/// Opens a store on a database whose journal is tampered with.
pub fn open<P: Provider>(provider: &P, tamper: Arc<dyn Tamper>) -> (Store, Threads) {
    let (inner, projector) = (provider.engine(), Arc::new(Untouched));
    Store::open(&Tampered { inner, tamper, projector }, keyring()).unwrap()
}

/// Opens a store on a database whose projector is tampered with.
pub fn open_projector<P: Provider>(provider: &P, projector: Arc<dyn Tamper>) -> (Store, Threads) {
    let (inner, tamper) = (provider.engine(), Arc::new(Untouched));
    Store::open(&Tampered { inner, tamper, projector }, keyring()).unwrap()
}

/// The database with a tampered journal and a tampered projector.
pub fn engine<P: Provider>(provider: &P, tamper: &Arc<impl Tamper>) -> impl Engine {
    let (inner, projector) = (provider.engine(), Arc::clone(tamper) as _);
    Tampered { inner, tamper: Arc::clone(tamper) as _, projector }
}

struct Untouched;

impl Tamper for Untouched {}

struct Tampered {
    inner: Box<dyn Engine>,
    tamper: Arc<dyn Tamper>,
    projector: Arc<dyn Tamper>,
}

struct TamperedConnection {
    inner: Box<dyn Connection>,
    tamper: Arc<dyn Tamper>,
}

impl Tampered {
    fn tampered(&self, inner: Box<dyn Connection>) -> Box<dyn Connection> {
        Box::new(TamperedConnection { inner, tamper: Arc::clone(&self.tamper) })
    }
}

impl Engine for Tampered {
    fn prepare(&self, keyring: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        Ok(self.tampered(self.inner.prepare(keyring)?))
    }

    fn projector(&self) -> Result<Box<dyn Connection>, StoreError> {
        let (inner, tamper) = (self.inner.projector()?, Arc::clone(&self.projector));
        Ok(Box::new(TamperedConnection { inner, tamper }))
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(self.tampered(self.inner.reader()?))
    }

    fn readers(&self) -> usize {
        self.inner.readers()
    }

    fn holds_data(&self) -> Result<bool, StoreError> {
        self.inner.holds_data()
    }

    fn alone(&self) -> Result<Box<dyn Connection>, StoreError> {
        self.inner.alone()
    }

    fn new_tables(&self, keyring: &Keyring) -> Result<Box<dyn NewTables>, StoreError> {
        self.inner.new_tables(keyring)
    }
}

impl Connection for TamperedConnection {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.tamper.begin(&mut *self.inner)
    }

    fn begin_read(&mut self) -> Result<(), StoreError> {
        self.inner.begin_read()
    }

    fn begin_point_read(&mut self) -> Result<(), StoreError> {
        self.inner.begin_point_read()
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.tamper.commit(&mut *self.inner)
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        self.inner.rollback()
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError> {
        self.inner.execute(sql, parameters)
    }

    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.fetch(shape, keys, each)
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.tamper.write(&mut *self.inner, writes)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.query(sql, parameters, columns, each)
    }

    fn prepare(&mut self, sql: &str) -> Result<(), StoreError> {
        self.inner.prepare(sql)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        self.inner.settle()
    }

    fn integrity(&mut self) -> Result<Vec<String>, StoreError> {
        self.inner.integrity()
    }
}
