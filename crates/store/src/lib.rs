//! Where everything is kept: units of work, the group commit, one set of SQL.
//!
//! - Everything is written by [`Store::write`]: a synchronous, repeatable closure that reads
//!   through its [`Unit`], decides in memory and leaves changes in it. The changes of many units
//!   are appended to the journal with one flush (`commit`), and tables follow it (`projector`). An
//!   `Ok` is durable; an `Err` has left nothing.
//! - Reading happens on connections of its own and never waits for writing. It sees everything that
//!   was committed before: one record by its key ([`Store::get`]) at once, lists and everything
//!   else ([`Store::read`]) once the tables have followed.
//! - Money moves only through [`Unit::post`], [`Unit::pend`] and [`Unit::resolve`]; states change
//!   only by a `domain::transition::Moved`.
//! - Personal data, memos and stored answers are sealed (`keyring`).
//!
//! This crate never makes a network call other than to its database, never reads the clock for a
//! decision and never draws a random number: those come in as values.

pub mod error;
pub mod keyring;
pub mod server_key;
pub mod reseal;
pub mod sql;
pub mod unit;
pub mod reader;
pub mod record;
pub mod list;
pub mod audit;
mod accounts;
pub mod platforms;
pub mod tokens;
pub mod customers;
pub mod external_accounts;
pub mod lookups;
pub mod uma_domains;
pub mod uma_peers;
pub mod attention;
pub mod quotes;
pub mod transactions;
pub mod approvals;
pub mod invitations;
pub mod identity_checks;
pub mod bulk_imports;
pub mod books;
mod entries;
pub mod open_payments;
pub mod payment_hashes;
pub mod events;
pub mod deliveries;
pub mod outbox;
pub mod timers;
pub mod leases;
pub mod idempotency;
pub mod erasure;
pub mod origin;
pub mod verify;
pub mod engine;
pub mod catalogue;
pub mod copy;
pub mod backup;
pub mod rebuild;
pub mod cache;
pub mod callers;
pub mod approval_requests;
pub mod committed_deliveries;
mod circuit_breaker;
mod commit;
mod migrate;
mod outcome;
mod in_place;
mod compressed;
mod journal;
mod memtable;
mod point_reads;
mod projector;
mod pause;
mod postgres;
mod sealed;
mod seal;
mod sealing;
mod sqlite;
mod threads;

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::customer::Customer;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::approval_requests::ApprovalRequests;
use crate::callers::Callers;
use crate::circuit_breaker::CircuitBreaker;
use crate::commit::{GroupCommit, Priority, Subscribers};
use crate::committed_deliveries::CommittedDeliveries;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::idempotency::Scope;
use crate::in_place::InPlace;
use crate::journal::tail::{self, Tail};
use crate::journal::{data_keys, lost_commit};
use crate::keyring::Keyring;
use crate::leases::{Lease, LeaseName};
pub use crate::memtable::shared::Lag;
use crate::origin::Origin;
pub use crate::outcome::EXIT_IO_ERROR;
pub use crate::postgres::PostgresServer;
use crate::projector::Projector;
use crate::reader::{Readers, View};
use crate::record::Record;
use crate::sql::Connection;
pub use crate::sqlite::{SqliteFile, journal_of};
pub use crate::threads::Threads;
use crate::timers::due::DueTimers;
use crate::unit::Unit;

/// How often a start says how far the tables are behind the journal.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Every statement whose text is fixed, and examples of the others, for the tests that hold each
/// engine to all of its own.
pub fn statements() -> Vec<String> {
    let fixed = [
        engine::META,
        engine::KEEP_META,
        engine::SET_META,
        engine::DROP_META,
        tail::ROWS,
        tail::LAST,
        tail::ALL_KEYS,
        data_keys::ALL,
        tail::FOLLOW,
        tail::ENDS,
        tail::ROW,
        lost_commit::CONFIRM,
        projector::MARK,
        projector::BACK_TO_MARK,
        reseal::LOCK,
        tokens::BY_CLIENT_ID,
        idempotency::OUTDATED,
        idempotency::NONCES,
        idempotency::DAYS,
        lookups::OUTDATED,
        erasure::LOOKUPS,
        erasure::INVITATIONS,
        erasure::IDENTITY_CHECKS,
        erasure::ANSWERS,
        erasure::EVENT_RESOURCES,
        timers::DUE_ENDS,
        timers::LATER,
        timers::DUE_OF_PLATFORM,
        events::AT_PLACE,
        events::FEED,
        events::FEED_OF_KIND,
        events::WHEN,
        outbox::OUTBOXES,
        outbox::DUE,
        outbox::PENDING,
        outbox::FROM_AHEAD,
        outbox::HAS_LATER,
        outbox::BACKLOG,
        outbox::BACKLOG_OF,
        backup::SUMMARY,
    ];
    let mut all: Vec<_> = fixed.into_iter().map(str::to_owned).collect();
    for shape in shapes() {
        let texts = shape.texts();
        let sql::Texts { select, insert, upsert, delete } = texts;
        all.extend([select, insert, upsert, delete].map(String::clone));
    }
    all.push(record::selection::<Customer>(accounts::OWNERS_NAMED));
    all.push(record::selection::<books::LedgerAccount>(books::ACCOUNTS));
    all.sort_unstable();
    let whole = catalogue::statements().chain(copy::statements());
    all.push(catalogue::all_columns());
    all.into_iter().chain(list::statements()).chain(whole).chain(verify::statements()).collect()
}

/// Every table that holds data, referenced tables before those that refer to them.
pub(crate) fn shapes() -> Vec<&'static sql::Shape> {
    let appended = [&events::EVENTS, &timers::TIMERS];
    record::Tables::shapes().into_iter().chain(appended).chain(tail::SHAPES).collect()
}

/// Refuses a database that lacks a table or a column, as a restore leaves it that was not whole:
/// the history of the schema says nothing of that.
fn refuse_incomplete(connection: &mut dyn Connection) -> Result<(), StoreError> {
    for shape in shapes() {
        connection.prepare(&shape.texts().select).map_err(|error| match error {
            StoreError::Engine(what) => StoreError::Engine(format!(
                "table {} is not there as this program needs it ({what}): the database was not \
                 restored whole; {}",
                shape.table,
                match rebuild::is_derived(shape) {
                    true => "switchyard rebuild makes its tables anew from its journal",
                    false => "restore it again",
                }
            )),
            error => error,
        })?;
    }
    Ok(())
}

/// A store that is open.
#[derive(Clone)]
pub struct Store {
    commits: GroupCommit,
    readers: Readers,
    breaker: Arc<CircuitBreaker>,
    keyring: Arc<Keyring>,
    subscribers: Subscribers,
    opened_at: u64,
    /// The timers that are due soon.
    timers: Arc<Mutex<DueTimers>>,
    /// Held by the one read of timers at a time.
    reading_timers: Arc<AsyncMutex<()>>,
}

impl Store {
    /// Opens a database, brings its schema up to date and makes sure that the key is the one that
    /// its contents were sealed with.
    pub fn open(engine: &dyn Engine, keyring: Keyring) -> Result<(Self, Threads), StoreError> {
        let mut writer = engine.prepare(&keyring)?;
        engine::check_key(&mut *writer, &keyring, |new| tail::begin(new, &keyring))?;
        refuse_incomplete(&mut *writer)?;
        let tail = Tail::open(&mut *writer, &keyring)?;
        let mut projector = engine.projector()?;
        let mut said = None::<Instant>;
        let mut say = |projector::Progress { row, of_rows }| {
            if said.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY) {
                said = Some(memtable::now());
                tracing::info!(row, of_rows, "tables follow the journal before the start");
            }
        };
        let memtable = projector::catch_up(&mut *writer, &mut *projector, &keyring, &mut say)?;
        let (memtable, timers) = (Arc::new(memtable), Arc::<Mutex<DueTimers>>::default());
        memtable.followed_by(Arc::clone(&timers) as _);
        let (keyring, opened_at) = (Arc::new(keyring), memtable.end().seq);
        let files = InPlace::of(engine.files())?;
        let connections = (1..engine.readers()).map(|_| engine.reader());
        let connections = connections.collect::<Result<Vec<_>, _>>()?;
        let (breaker, breaker_thread) = CircuitBreaker::start(engine.prober()?)?;
        let subscribers = Subscribers::default();
        let projector = Projector::start(projector, Arc::clone(&keyring), Arc::clone(&memtable))?;
        let (commits, writer_thread) = GroupCommit::start(
            writer,
            Arc::clone(&keyring),
            (tail, Arc::clone(&memtable), projector),
            files,
            subscribers.clone(),
            Arc::clone(&breaker),
        )?;
        let (readers, mut threads) = Readers::start(
            engine.reader()?,
            connections,
            &keyring,
            memtable,
            Arc::clone(&breaker),
        )?;
        threads.extend([writer_thread, breaker_thread]);
        let reading_timers = Arc::default();
        let opened = Self {
            commits,
            readers,
            breaker,
            keyring,
            subscribers,
            opened_at,
            timers,
            reading_timers,
        };
        Ok((opened, Threads(threads)))
    }

    /// Changes something. `work` may be run more than once, so it must not touch anything but its
    /// unit. The answer is durable when it is `Ok`.
    pub async fn write<T, E, F>(&self, origin: Origin, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        self.commits.write(Priority::Request, None, origin, work).await
    }

    /// Like [`Store::write`], for a unit that will first look for the answer to this request.
    pub async fn write_once<T, E, F>(
        &self,
        scope: Option<Scope>,
        origin: Origin,
        work: F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        self.commits.write(Priority::Request, scope, origin, work).await
    }

    /// Like [`Store::write`], for work that no client waits for: requests that come later may go
    /// first.
    pub async fn write_behind<T, E, F>(&self, origin: Origin, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        self.commits.write(Priority::Job, None, origin, work).await
    }

    /// The row with this key, as it is now.
    pub async fn get<R: Record>(&self, key: R::Key) -> Result<Option<Arc<R>>, StoreError> {
        self.readers.get(key).await
    }

    /// Takes what other processes have committed. A process learns of it with each read and write,
    /// and must ask where it does neither.
    pub async fn meet_others(&self) -> Result<(), StoreError> {
        self.get::<Lease>(LeaseName::Jobs).await.map(drop)
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

    /// Reads something from one snapshot whose tables may lag behind the journal. It is for work of
    /// the server's own that checks what it finds again in its unit: no such work waits for tables.
    pub async fn read_lagging<T, E, F>(&self, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.readers.run(read).await
    }

    /// The number of the journal's last row when this store was opened.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Keyed hashes and sealing.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Refuses while the circuit breaker is open, as every read and write does; for a caller that
    /// is about to wait for the read of another one.
    pub fn check_circuit(&self) -> Result<(), StoreError> {
        self.breaker.check()
    }

    /// Whether the database lacks a table or a column by now, as far as it was looked at: a
    /// heartbeat looks where the database is a server.
    pub fn is_incomplete(&self) -> bool {
        self.breaker.is_incomplete()
    }

    /// How far the tables are behind the journal, which lists wait for.
    pub fn lag(&self) -> Lag {
        self.commits.memtable().lag()
    }

    /// Waits until the files of the database were moved away under this process: nothing is written
    /// from then on, and the process must end.
    pub async fn files_moved(&self) {
        self.commits.files_moved().await;
    }

    /// Whether the files of the database were moved away under this process.
    pub fn are_files_moved(&self) -> bool {
        self.commits.are_files_moved()
    }

    /// Counts changes of tokens and platforms.
    pub fn callers(&self) -> &Callers {
        &self.subscribers.callers
    }

    /// Approval requests that were committed here and are still to be sent.
    pub fn approval_requests(&self) -> &ApprovalRequests {
        &self.subscribers.approval_requests
    }

    /// Deliveries that were committed here, for the webhook worker.
    pub fn committed_deliveries(&self) -> &CommittedDeliveries {
        &self.subscribers.deliveries
    }

    /// Notified after a commit that set a timer.
    pub fn timers_set(&self) -> &Notify {
        &self.subscribers.timers
    }
}
