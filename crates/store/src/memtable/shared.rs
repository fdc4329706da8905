//! The memtable of a process: its writer publishes, its projector drops, all of its readers look
//! into it.
//!
//! Rows that another process has appended are read from the journal ([`SharedMemtable::catch_up`]),
//! so that what is here is always the journal up to [`SharedMemtable::end`].

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::{Generation, Memtable, now};
use crate::catalogue;
use crate::error::StoreError;
use crate::journal::change_set::{Kind, TableChange};
use crate::journal::tail::{self, Rows, Scan};
use crate::journal::{Chain, End, number};
use crate::keyring::Keyring;
use crate::sealing;
use crate::sql::{Connection, Value};

/// How long a read waits for the tables to follow: longer than the circuit breaker takes to notice
/// a database that hangs. A step of the projector takes some tenths of a second at most.
const WAIT_MAX: Duration = Duration::from_secs(4);

/// How long after the beginning of a step of the projector the next one begins, if no list waits
/// and no generation is full. A record that changes meanwhile is written once.
const STEP_EVERY: Duration = Duration::from_millis(250);

/// From when on tables that lag are late: lists have waited in vain by then.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// The memory of records from which jobs wait, in bytes: some hundred thousand records, which is
/// some seconds of full load that the projector is behind.
const BYTES_FOR_JOBS: usize = 64 << 20;

/// The memory of records from which requests are refused, in bytes.
const BYTES_FOR_REQUESTS: usize = 96 << 20;

/// The name of a record among those of all tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// The number of its table.
    pub table: u16,
    /// The first columns of its rows.
    pub columns: Vec<Value>,
}

/// The columns of all rows of a record, one behind the other, nothing sealed.
pub type Values = Arc<Vec<Value>>;

/// The record that a change of the row `seq` is about, as its table has it then; nothing of one
/// that goes.
pub fn keyed(seq: u64, change: TableChange) -> Result<(RecordKey, Option<Values>), StoreError> {
    let TableChange { table, kind, mut values, .. } = change;
    let shape = catalogue::table(table)?;
    if shape.is_body_in_journal
        && kind != Kind::Remove
        && let Some(body) = values.last_mut()
    {
        *body = number(seq)?.into();
    }
    let columns = values.iter().take(shape.record_key).cloned().collect();
    let values = (kind != Kind::Remove).then(|| Arc::new(values));
    Ok((RecordKey { table, columns }, values))
}

/// How much memory a record takes, about: most of it is bytes and text.
pub fn size(key: &RecordKey, values: Option<&Values>) -> usize {
    let value = |value: &Value| match value {
        Value::Null | Value::Int(_) => size_of::<Value>(),
        Value::Text(text) => size_of::<Value>() + text.len(),
        Value::Bytes(bytes) => size_of::<Value>() + bytes.len(),
    };
    let all = values.into_iter().flat_map(|values| values.iter()).chain(&key.columns);
    size_of::<RecordKey>() + all.map(value).sum::<usize>()
}

struct State {
    chain: Chain,
    memtable: Memtable<RecordKey, Values>,
    /// The last row that the tables are to follow as soon as they can.
    wanted: u64,
    /// When the projector's last step began.
    stepped_at: Option<Instant>,
    /// Why the last step of the projector failed, if it did.
    fault: Option<String>,
    /// Whether the tables were found to have gone back.
    is_lost: bool,
    /// Whether the disk has no room for what the tables are to have.
    is_full: bool,
    /// Whether the writer reads from a snapshot of the tables, so that nothing is dropped.
    is_pinned: bool,
    is_closed: bool,
}

impl State {
    /// Whether there is something to project.
    fn has_work(&self) -> bool {
        self.memtable.end() != self.memtable.base()
    }

    /// How long the next step of the projector has time; nothing if there is nothing to do.
    fn until_step(&self) -> Option<Duration> {
        if !self.has_work() {
            return None;
        }
        let is_urgent = self.is_closed
            || self.memtable.sealed().is_some()
            || self.wanted > self.memtable.base().seq;
        let since = self.stepped_at.filter(|_| !is_urgent);
        Some(since.map_or(Duration::ZERO, |at| STEP_EVERY.saturating_sub(at.elapsed())))
    }

    /// The record of a key, as [`SharedMemtable::get`] gives it.
    fn get(&self, key: &RecordKey) -> Option<Option<Values>> {
        self.memtable.get(key).map(Option::<&Values>::cloned)
    }
}

/// The records that are committed and that the tables do not have yet.
pub struct SharedMemtable {
    database: Uuid,
    state: Mutex<State>,
    /// Notified when there is something for the projector to do.
    work: Condvar,
    /// Notified when the writer has left its snapshot.
    unpinned: Condvar,
    projected: watch::Sender<Projected>,
    /// Has the writer run a batch, before which it begins anew.
    begin_anew: OnceLock<BeginAnew>,
    follower: OnceLock<Arc<dyn Follower>>,
}

/// The records of a row, as the memtable takes them.
pub type Published = (RecordKey, Option<Values>);

/// A memory of some records that follows the memtable row by row.
pub trait Follower: Send + Sync {
    /// Takes the records of the next row.
    fn publish(&self, records: &[Published]);

    /// Forgets everything: rows were skipped.
    fn forget(&self);
}

/// The finds of a look into the memtable, all of one moment.
pub struct Look {
    /// The records, each at its place, as [`SharedMemtable::get`] gives them.
    pub found: Vec<Option<Option<Values>>>,
    /// The row up to which everything was dropped.
    pub base: u64,
}

/// How far the tables are behind the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lag {
    /// How long ago the oldest change was committed that the tables do not have.
    pub time: Duration,
    /// Why the projector's last step failed, if it did.
    pub fault: Option<String>,
}

impl Lag {
    /// Whether they are so late that lists cannot be read.
    pub fn is_late(&self) -> bool {
        self.time > LATE_AFTER
    }
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tables are {} s behind the journal", self.time.as_secs())?;
        self.fault.as_ref().map_or(Ok(()), |fault| write!(f, ": {fault}"))
    }
}

/// Has the writer run a batch.
pub type BeginAnew = Box<dyn Fn() + Send + Sync>;

/// Rows of the journal that the tables do not follow yet, and the chain behind them.
struct Unprojected {
    chain: Chain,
    memtable: Memtable<RecordKey, Values>,
    /// Whether these are all.
    is_whole: bool,
}

impl Unprojected {
    /// Reads all, or as many as one step of the projector takes.
    fn read(
        connection: &mut dyn Connection,
        keyring: &Keyring,
        database: Uuid,
        all: bool,
    ) -> Result<Self, StoreError> {
        let applied = tail::applied(connection)?;
        let mut chain = tail::chain_behind(connection, database, applied)?;
        let mut memtable = Memtable::new(applied, size);
        let mut scan = Scan::of(connection, keyring, Rows::behind(applied.seq))?;
        loop {
            let rows = scan.next(connection, keyring)?;
            let is_whole = rows.is_empty();
            for (row, sets) in rows {
                chain.take(&row).map_err(|broken| StoreError::Engine(broken.to_string()))?;
                let changes = sets.into_iter().flat_map(|set| set.rows);
                let changes = changes.map(|changed| keyed(row.seq, changed.change));
                memtable.publish(chain.end(), changes.collect::<Result<Vec<_>, _>>()?);
            }
            if is_whole || (!all && memtable.sealed().is_some()) {
                return Ok(Self { chain, memtable, is_whole });
            }
        }
    }
}

/// How far the tables follow.
#[derive(Debug, Clone, Copy, Default)]
struct Projected {
    /// The last row.
    seq: u64,
    /// How often it began anew: rows before that may never come.
    restarts: u64,
}

impl SharedMemtable {
    /// Takes the records that the tables do not have yet, as many as one step of the projector
    /// takes, and says whether these are all.
    pub fn open(
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<(Self, bool), StoreError> {
        let database = tail::database_of(connection)?;
        let unprojected = Unprojected::read(connection, keyring, database, false)?;
        let Unprojected { chain, memtable, is_whole } = unprojected;
        let projected = Projected { seq: memtable.base().seq, restarts: 0 };
        let state = State {
            chain,
            memtable,
            wanted: 0,
            stepped_at: None,
            fault: None,
            is_lost: false,
            is_full: false,
            is_pinned: false,
            is_closed: false,
        };
        let (state, work, unpinned) = (Mutex::new(state), Condvar::new(), Condvar::new());
        let projected = watch::Sender::new(projected);
        let (begin_anew, follower) = (OnceLock::new(), OnceLock::new());
        let opened = Self { database, state, work, unpinned, projected, begin_anew, follower };
        Ok((opened, is_whole))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The chain behind the last row that was published.
    pub fn chain(&self) -> Chain {
        self.state().chain
    }

    /// The last row that was published.
    pub fn end(&self) -> End {
        self.state().chain.end()
    }

    /// Takes the changes of the row behind the one `before`. One that was taken already changes
    /// nothing: a reader may have met it in the journal first.
    pub fn publish(
        &self,
        before: End,
        chain: Chain,
        changes: Vec<TableChange>,
    ) -> Result<(), StoreError> {
        let seq = chain.end().seq;
        let changes = changes.into_iter().map(|change| keyed(seq, change));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut state = self.state();
        if before == state.chain.end() {
            if let Some(follower) = self.follower.get() {
                follower.publish(&changes);
            }
            state.chain = chain;
            state.memtable.publish(chain.end(), changes);
            self.work.notify_one();
        }
        Ok(())
    }

    /// Takes the rows that were appended since, by whatever process.
    pub fn catch_up(
        &self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<(), StoreError> {
        self.pass_over(connection, keyring)?;
        let mut chain = self.chain();
        let rows = Rows::behind(chain.end().seq);
        tail::each(connection, keyring, rows, &mut |row, sets| {
            let before = chain.end();
            // The database went back, and another process has appended since.
            chain.take(&row).map_err(|_| self.went_back())?;
            let changes = sets.into_iter().flat_map(|set| set.rows).map(|row| row.change);
            self.publish(before, chain, changes.collect())
        })
    }

    /// Passes over rows that the tables follow already: a server that did nothing for long may
    /// have missed many.
    fn pass_over(
        &self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<(), StoreError> {
        let applied = tail::applied(connection)?;
        if applied.seq <= self.end().seq {
            return Ok(());
        }
        let chain = tail::chain_behind(connection, self.database, applied)?;
        // The skipped rows may have announced the secret with which tables are sealed now.
        sealing::learn(connection, keyring)?;
        let mut state = self.state();
        // It only ever goes on: the writer may have appended meanwhile. Under a writer with an
        // older snapshot, nothing is passed over.
        if applied.seq > state.chain.end().seq && !state.is_pinned {
            state.memtable.restart(applied);
            self.forget_followed();
            state.chain = chain;
            self.projected.send_modify(|projected| projected.seq = applied.seq);
        }
        Ok(())
    }

    /// Forgets everything, and begins from the tables and the journal as they are now, for the
    /// writer while no other process appends. A journal that lacks the row that the tables follow
    /// is another one.
    pub fn restart(
        &self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<(), StoreError> {
        let unprojected = Unprojected::read(connection, keyring, self.database, true)?;
        let Unprojected { chain, memtable, .. } = unprojected;
        let seq = memtable.base().seq;
        {
            // At once: a reader must not find it half full.
            let mut state = self.state();
            (state.chain, state.memtable, state.is_lost) = (chain, memtable, false);
            self.forget_followed();
            self.work.notify_one();
        }
        self.projected.send_modify(|projected| {
            projected.seq = seq;
            projected.restarts += 1;
        });
        Ok(())
    }

    /// Sets how the writer is had to run a batch when the tables are found to have gone back.
    pub fn on_loss(&self, begin_anew: BeginAnew) {
        // It is set once, by the writer of this process.
        let _ = self.begin_anew.set(begin_anew);
    }

    /// The record of a key; nothing if it is not here, and the tables say. `Some(None)` if it is
    /// gone.
    pub fn get(&self, key: &RecordKey) -> Option<Option<Values>> {
        self.state().get(key)
    }

    /// The records of keys.
    pub fn look<'a>(&self, keys: impl Iterator<Item = &'a RecordKey>) -> Look {
        let state = self.state();
        let found = keys.map(|key| state.get(key)).collect();
        Look { found, base: state.memtable.base().seq }
    }

    /// The row up to which everything was dropped: the tables have it. A record that is not here
    /// afterwards is, in tables that are read after that, as it was committed last.
    pub fn base(&self) -> u64 {
        self.state().memtable.base().seq
    }

    /// Drops nothing from now on: the writer opens a snapshot of the tables, in which it finds all
    /// that is not here. Each of its reads has a snapshot of its own otherwise.
    pub fn pin(&self) {
        self.state().is_pinned = true;
    }

    /// Goes on to drop what the tables have.
    pub fn unpin(&self) {
        self.state().is_pinned = false;
        self.unpinned.notify_all();
    }

    /// Sets the follower, before anything is published.
    pub fn followed_by(&self, follower: Arc<dyn Follower>) {
        // It is set once, by the store of this process.
        let _ = self.follower.set(follower);
    }

    fn forget_followed(&self) {
        if let Some(follower) = self.follower.get() {
            follower.forget();
        }
    }

    /// Has the tables follow the journal up to a row as soon as they can.
    pub fn hasten(&self, seq: u64) {
        let mut state = self.state();
        state.wanted = state.wanted.max(seq);
        self.work.notify_one();
    }

    /// Has the tables follow the journal up to a row, and waits until they do, or it began anew.
    pub async fn follow(&self, seq: u64) -> Result<(), StoreError> {
        let before = self.restarts();
        self.hasten(seq);
        self.wait_for(|now| now.seq >= seq || now.restarts != before).await
    }

    /// How often it began anew.
    pub fn restarts(&self) -> u64 {
        self.projected.borrow().restarts
    }

    /// Whether the tables were found to have gone back since it began anew that often.
    pub fn went_back_since(&self, restarts: u64) -> bool {
        self.is_lost() || self.restarts() != restarts
    }

    /// Waits until it has begun anew more than that often.
    pub async fn restarted(&self, restarts: u64) -> Result<(), StoreError> {
        self.wait_for(|now| now.restarts != restarts).await
    }

    async fn wait_for(&self, is_over: impl FnMut(&Projected) -> bool) -> Result<(), StoreError> {
        let mut projected = self.projected.subscribe();
        let waited = timeout(WAIT_MAX, projected.wait_for(is_over)).await;
        waited.map_or_else(|_| Err(StoreError::Behind(self.lag().to_string())), |_| Ok(()))
    }

    /// How far the tables are behind the journal.
    pub fn lag(&self) -> Lag {
        let state = self.state();
        let time = state.memtable.since().map_or(Duration::ZERO, |since| since.elapsed());
        Lag { time, fault: state.fault.clone() }
    }

    /// Keeps why a step of the projector failed.
    pub fn failed(&self, fault: &StoreError) {
        let fault = match fault {
            // The cause names the database's address, which is for the log alone.
            StoreError::Unavailable(_) => "the database cannot be reached".to_owned(),
            fault => fault.to_string(),
        };
        self.state().fault = Some(fault);
    }

    /// Refuses work while the tables are too far behind.
    pub fn has_room(&self, is_job: bool) -> Result<(), StoreError> {
        let max = if is_job { BYTES_FOR_JOBS } else { BYTES_FOR_REQUESTS };
        let state = self.state();
        match state.memtable.bytes() > max {
            _ if state.is_full => Err(StoreError::DiskFull),
            true => Err(StoreError::Busy),
            false => Ok(()),
        }
    }

    /// Refuses all work, as the disk is full, or takes it again.
    pub fn refuse_changes(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    /// The next generation for the projector, with the row that the tables follow as far as is
    /// known. Nothing if there is none.
    pub fn next(&self) -> Option<(End, Arc<Generation<RecordKey, Values>>)> {
        let mut state = self.state();
        let sealed = state.memtable.next().map(Arc::clone)?;
        metrics::gauge!("switchyard_memtable_bytes").set(state.memtable.bytes() as f64);
        Some((state.memtable.base(), sealed))
    }

    /// Waits until a step of the projector is to begin, or for so long; false once it is closed and
    /// everything is projected.
    pub fn wait(&self, max: Option<Duration>) -> bool {
        let (mut state, begin) = (self.state(), now());
        loop {
            let until_step = state.until_step();
            let left = max.map(|max| max.saturating_sub(begin.elapsed()));
            match [until_step, left].into_iter().flatten().min() {
                Some(Duration::ZERO) => break,
                Some(pause) => drop(self.work.wait_for(&mut state, pause)),
                None if state.is_closed => break,
                None => self.work.wait(&mut state),
            }
        }
        state.stepped_at = Some(now());
        state.has_work() || !state.is_closed
    }

    /// Drops a generation: the tables have it.
    pub fn projected(&self, end: End) {
        let is_sealed =
            |state: &State| state.memtable.sealed().is_some_and(|sealed| sealed.end() == end);
        let mut state = self.state();
        state.fault = None;
        if is_sealed(&state) {
            self.projected.send_modify(|projected| projected.seq = end.seq);
        }
        self.unpinned.wait_while(&mut state, |state| state.is_pinned);
        if is_sealed(&state) {
            state.memtable.drop_sealed();
        }
    }

    /// Has the writer begin anew, as the tables follow less of the journal than they did: it finds
    /// out what is missing. The error is for the one who has found out.
    pub fn went_back(&self) -> StoreError {
        self.state().is_lost = true;
        // Each time: a batch may come to nothing while the database is away.
        if let Some(begin_anew) = self.begin_anew.get() {
            begin_anew();
        }
        StoreError::Conflict("the database lacks what it had; try again".to_owned())
    }

    /// Whether the tables were found to have gone back, so that it has to restart.
    pub fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// Lets the projector end once everything is projected.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.work.notify_one();
    }
}
