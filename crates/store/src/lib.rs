//! Where everything is kept: units of work, the commit lane, one set of SQL.
//!
//! - Everything is written by [`Store::write`]: a synchronous, repeatable closure that reads
//!   through its [`Unit`], decides in memory and leaves changes in it. Many units share one
//!   database transaction and one flush (`lane`). An `Ok` is durable; an `Err` has left nothing.
//! - Reading ([`Store::read`]) happens on connections of its own and never waits for writing.
//! - Money moves only through [`Unit::post`], [`Unit::pend`] and [`Unit::resolve`]; states change
//!   only by a `domain::transition::Moved`.
//! - Personal data, memos and stored answers are sealed (`keyring`).
//!
//! This crate never makes a network call other than to its database, never reads the clock for a
//! decision and never draws a random number: those come in as values.

pub mod error;
pub mod keyring;
pub mod sql;
pub mod unit;
pub mod readers;
pub mod record;
pub mod select;
pub mod platforms;
pub mod tokens;
pub mod customers;
pub mod external_accounts;
pub mod quotes;
pub mod transactions;
pub mod books;
pub mod events;
pub mod timers;
pub mod idempotency;
pub mod verify;
pub mod engine;
mod lane;
mod migrate;
mod sealed;
mod sqlite;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::lane::Lane;
use crate::readers::{Readers, View};
use crate::unit::Unit;

/// Reader connections. Reads of the API are short; two cores are the smallest machine we plan for,
/// and a list that takes long must not hold up a look at one row.
const READERS: usize = 4;

/// Every statement whose text is fixed, for the test that holds each engine to all of them.
pub fn statements() -> Vec<String> {
    let fixed = [
        engine::KEY_CHECK,
        engine::KEEP_KEY_CHECK,
        tokens::BY_CLIENT_ID,
        books::POSTINGS_OF_TRANSACTION,
        books::ENTRIES_OF_TRANSACTION,
        books::INSERT_POSTING,
        books::INSERT_ENTRY,
        events::INSERT,
        events::OF_RESOURCE,
        timers::UPSERT,
        timers::DELETE,
        timers::DUE,
        timers::NEXT_DUE,
    ];
    let mut all: Vec<_> = fixed.into_iter().chain(record::Tables::statements()).collect();
    all.sort_unstable();
    all.into_iter().map(str::to_owned).chain(verify::statements()).collect()
}

/// A store that is open.
#[derive(Clone)]
pub struct Store {
    lane: Lane,
    readers: Readers,
    keyring: Arc<Keyring>,
    timers_set: Arc<Notify>,
}

/// What ends when a store is closed: threads that finish once every [`Store`] handle is dropped.
pub struct Threads(Vec<std::thread::JoinHandle<()>>);

impl Threads {
    /// Waits until everything that was queued is done and the connections are closed.
    pub fn join(self) {
        for thread in self.0 {
            // A thread that panicked has nothing left to close.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Opens a database, brings its schema up to date and makes sure that the key is the one that
    /// its contents were sealed with.
    pub fn open(engine: &dyn Engine, keyring: Keyring) -> Result<(Self, Threads), StoreError> {
        let mut writer = engine.prepare(&keyring)?;
        engine::check_key(&mut *writer, &keyring)?;
        let keyring = Arc::new(keyring);
        let timers_set = Arc::new(Notify::new());
        let connections = (0..READERS).map(|_| engine.reader()).collect::<Result<Vec<_>, _>>()?;
        let (lane, lane_thread) =
            Lane::start(writer, Arc::clone(&keyring), Arc::clone(&timers_set))?;
        let (readers, mut threads) = Readers::start(connections, &keyring)?;
        threads.push(lane_thread);
        Ok((Self { lane, readers, keyring, timers_set }, Threads(threads)))
    }

    /// Changes something. `work` may be run more than once, so it must not touch anything but its
    /// unit. The answer is durable when it is `Ok`.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        self.lane.write(work).await
    }

    /// Reads something, from one snapshot.
    pub async fn read<T, E, F>(&self, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.readers.read(read).await
    }

    /// Keyed hashes and sealing.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Wakes whoever runs timers, after a commit that set one.
    pub fn timers_set(&self) -> &Notify {
        &self.timers_set
    }
}
