//! The writer thread: one batch after the other.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::queue::Queue;
use super::{Queued, Subscribers};
use crate::circuit_breaker::CircuitBreaker;
use crate::error::StoreError;
use crate::in_place::InPlace;
use crate::journal::End;
use crate::journal::acknowledged::Acknowledged;
use crate::journal::tail::{self, Tail};
use crate::keyring::Keyring;
use crate::memtable::shared::SharedMemtable;
use crate::outcome::{settle, stop};
use crate::pause::pause;
use crate::record::Remembered;
use crate::sealing;
use crate::sql::Connection;
use crate::unit::{Batch, Changes, Finished, Ran};

/// How often a batch that lost against another transaction is tried again.
const CONFLICTS_MAX: u32 = 5;

/// How long it is tried again at most.
const CONFLICTS_TIME: Duration = Duration::from_secs(8);

/// The first pause after a conflict, doubled each time: about as long as a commit takes.
const CONFLICT_PAUSE: Duration = Duration::from_millis(4);

/// The last row of the journal once the write lock was taken, if that was before the units were.
type Begun = Result<End, StoreError>;

/// Where the reason lies that a batch was not committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// In the database, whatever is written to it.
    Database,
    /// Perhaps in one unit: each gets a try of its own.
    Unit,
}

pub(super) struct Writer {
    connection: Box<dyn Connection>,
    keyring: Arc<Keyring>,
    cache: Remembered,
    tail: Tail,
    memtable: Arc<SharedMemtable>,
    /// The last row of the journal that the cache is as new as.
    end: End,
    acknowledged: Acknowledged,
    projector: JoinHandle<()>,
    files: InPlace,
    /// Says that they were moved away.
    moves: watch::Sender<bool>,
    subscribers: Subscribers,
    breaker: Arc<CircuitBreaker>,
}

impl Writer {
    pub(super) fn new(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        (tail, memtable, projector): (Tail, Arc<SharedMemtable>, JoinHandle<()>),
        (files, moves): (InPlace, watch::Sender<bool>),
        subscribers: Subscribers,
        breaker: Arc<CircuitBreaker>,
    ) -> Self {
        let (cache, acknowledged) = (Remembered::default(), Acknowledged::default());
        let end = memtable.end();
        Self {
            connection,
            keyring,
            cache,
            tail,
            memtable,
            end,
            acknowledged,
            projector,
            files,
            moves,
            subscribers,
            breaker,
        }
    }

    /// Works the queue off until it is closed.
    pub(super) fn run(mut self, mut queue: Queue) {
        while queue.wait() {
            if let Err(error) = self.breaker.check() {
                // Units that came just before it opened would wait for another time-out.
                fail_all(queue.take_batch(), &error);
                continue;
            }
            // Units that come while another node has the write lock are part of this batch.
            let begun = self.begin();
            let units = queue.take_batch();
            metrics::gauge!("switchyard_commit_queue_units").set(queue.len() as f64);
            metrics::histogram!("switchyard_commit_batch_units").record(units.len() as f64);
            let in_place = self.commit_and_answer(units, begun);
            self.memtable.unpin();
            if let Err(error) = in_place {
                queue.close();
                while queue.wait() {
                    fail_all(queue.take_batch(), &error);
                }
                break;
            }
        }
        self.settle();
    }

    /// Takes the write lock. In a file, all of the batch is read from the snapshot that begins
    /// here.
    fn begin(&mut self) -> Begun {
        if !self.connection.is_remote() {
            self.memtable.pin();
        }
        self.connection.begin()?;
        tail::end(&mut *self.connection)
    }

    /// Commits a batch and answers its units. An error says that the files of the database were
    /// moved away: nothing may be acknowledged from then on.
    fn commit_and_answer(
        &mut self,
        mut units: Vec<Box<dyn Queued>>,
        begun: Begun,
    ) -> Result<(), StoreError> {
        #[expect(clippy::disallowed_methods, reason = "it is measured, and bounds only retries")]
        let start = Instant::now();
        let in_place = match self.commit(&mut units, Some(begun), start) {
            Err(error @ StoreError::Unavailable(_)) => {
                // It is open before anyone is answered: a caller who asks again must not wait
                // again.
                self.breaker.open("writes", &error);
                Ok(())
            }
            Err(error @ StoreError::FilesMoved) => Err(error),
            // A volume that was taken away may be why.
            Err(_) => self.files.check(),
            Ok(()) => Ok(()),
        };
        metrics::histogram!("switchyard_commit_seconds").record(start.elapsed());
        if in_place.is_err() {
            self.moves.send_replace(true);
        }
        units.into_iter().for_each(|unit| unit.answer());
        in_place
    }

    /// Commits all units together, or each for itself where that fails, so that a unit that the
    /// database refuses does not take its neighbours along. The error is of the database.
    fn commit(
        &mut self,
        units: &mut [Box<dyn Queued>],
        mut begun: Option<Begun>,
        start: Instant,
    ) -> Result<(), StoreError> {
        let mut pause_for = CONFLICT_PAUSE;
        let mut conflicts = 0;
        let (blame, error) = loop {
            let Err((blame, error)) = self.try_commit(units, begun.take()) else { return Ok(()) };
            // A stale row may be why it failed.
            self.forget();
            tracing::warn!(%error, units = units.len(), "batch not committed");
            let again = self.connection.is_remote() && matches!(error, StoreError::Conflict(_));
            if !again || conflicts == CONFLICTS_MAX || start.elapsed() > CONFLICTS_TIME {
                break (blame, error);
            }
            conflicts += 1;
            metrics::counter!("switchyard_commit_conflicts_total").increment(1);
            pause(pause_for);
            pause_for *= 2;
        };
        if units.len() == 1 || blame == Blame::Database {
            units.iter_mut().for_each(|unit| unit.fail(error.clone()));
            return Err(error);
        }
        let mut result = Ok(());
        for unit in units {
            if let Err(error) = &result {
                unit.fail(StoreError::clone(error));
                continue;
            }
            let one = self.commit(std::slice::from_mut(unit), None, start);
            if matches!(one, Err(StoreError::Unavailable(_) | StoreError::FilesMoved)) {
                result = one;
            }
        }
        result
    }

    /// Runs, writes and commits the units.
    fn try_commit(
        &mut self,
        units: &mut [Box<dyn Queued>],
        begun: Option<Begun>,
    ) -> Result<(), (Blame, StoreError)> {
        let begun = begun.unwrap_or_else(|| self.begin());
        let caught_up = begun.and_then(|end| {
            // Leases pass beside the journal.
            self.cache.leases.clear();
            let is_known = end == self.end && !self.memtable.is_lost();
            if is_known && self.is_snapshot_admitted()? { Ok(()) } else { self.catch_up(end) }
        });
        if let Err(error) = caught_up {
            self.connection.rollback().map_err(|error| (Blame::Database, error))?;
            return Err((Blame::Database, error));
        }
        match self.run_and_write(units) {
            Ok(mut changes) => {
                changes.count_completed(&mut self.cache);
                self.subscribers.publish(changes.take_wake_ups());
                changes.remember(&mut self.cache);
                Ok(())
            }
            Err(StoreError::OutcomeUnknown(what)) => stop(&what),
            Err(error) => {
                self.connection.rollback().map_err(|error| (Blame::Database, error))?;
                let blame = match error {
                    StoreError::DiskFull | StoreError::Unavailable(_) | StoreError::FilesMoved => {
                        Blame::Database
                    }
                    _ => Blame::Unit,
                };
                Err((blame, error))
            }
        }
    }

    /// Runs the units in their order, and commits their changes.
    fn run_and_write(&mut self, units: &mut [Box<dyn Queued>]) -> Result<Changes, StoreError> {
        let (connection, memtable) = (&mut *self.connection, &*self.memtable);
        let mut batch = Batch::new(connection, &self.keyring, &mut self.cache, memtable);
        batch.fetch_answers(units.iter().filter_map(|unit| unit.scope()))?;
        let mut ran = run_in_order(&mut batch, units);
        while ran < units.len() {
            batch.fetch()?;
            ran += run_in_order(&mut batch, &mut units[ran..]);
        }
        let Finished { sets, at, beside, changes } = batch.finish();
        // Everything is decided. The projector goes on while the rows are flushed.
        memtable.unpin();
        let connection = &mut *self.connection;
        if sets.is_empty() && beside.is_none() {
            // Units that only read cost no flush.
            connection.rollback()?;
            self.files.check()?;
        } else {
            let (chain, sets) = (memtable.chain(), (sets, at));
            let mut before = chain.end();
            let prepared =
                self.tail.prepare(connection, &self.keyring, chain, sets, changes.erased())?;
            let rows = prepared.with(beside).commit(connection)?;
            // After the commit, and before anything follows from it: a file that lost its name
            // before may have taken it.
            self.files.check()?;
            self.acknowledged.keep(&rows);
            for (chain, changes) in rows {
                let published = memtable.publish(before, chain, changes);
                published.expect("these are changes of known tables");
                before = chain.end();
            }
            self.end = before;
            if !changes.erased().is_empty() {
                // The tables have a person whom the journal says nothing of any more.
                memtable.hasten(before.seq);
            }
        }
        Ok(changes)
    }

    /// Whether the snapshot of a file has all that the memtable has dropped, so that every record
    /// of it counts that the memtable does not have. Elsewhere each fetch checks it.
    fn is_snapshot_admitted(&mut self) -> Result<bool, StoreError> {
        let connection = &mut *self.connection;
        Ok(connection.is_remote() || tail::applied(connection)?.seq >= self.memtable.base())
    }

    /// Takes what other processes have written since the last batch, in the transaction of this
    /// one.
    fn catch_up(&mut self, end: End) -> Result<(), StoreError> {
        let (connection, keyring) = (&mut *self.connection, &*self.keyring);
        // Tables that went back, as a server's do that was killed, follow again.
        let base = self.memtable.base();
        let is_lost = self.memtable.is_lost() || tail::applied(connection)?.seq < base;
        self.cache.clear();
        self.subscribers.callers.changed();
        self.tail.read_again(connection, keyring)?;
        // A reader may have skipped lost rows: the tables follow newer rows of another server.
        let has_ours = tail::has(connection, self.end)?;
        if !is_lost && has_ours && tail::has(connection, self.memtable.end())? {
            self.memtable.catch_up(connection, keyring)?;
        } else {
            // The database is an older one.
            self.acknowledged.compare(connection)?;
            sealing::go_back(connection, keyring)?;
            self.memtable.restart(connection, keyring)?;
        }
        self.end = end;
        Ok(())
    }

    /// Forgets what may not be so any more.
    fn forget(&mut self) {
        self.cache.clear();
        self.tail.forget();
    }

    /// Leaves the database so that its main file alone is complete.
    fn settle(mut self) {
        self.memtable.close();
        // One that panicked leaves the rest to the next start.
        let _ = self.projector.join();
        settle(&mut *self.connection);
    }
}

/// Runs the units up to the first that waits for rows, and returns how many ran. Those behind it
/// only collect the rows that they need.
fn run_in_order(batch: &mut Batch<'_>, units: &mut [Box<dyn Queued>]) -> usize {
    let (count, mut units) = (units.len(), units.iter_mut());
    let waits = units.position(|queued| {
        let origin = queued.origin().clone();
        batch.run(origin, |unit| queued.run(unit)) == Ran::Waits
    });
    units.for_each(|queued| batch.foresee(|unit| queued.run(unit)));
    waits.unwrap_or(count)
}

fn fail_all(units: Vec<Box<dyn Queued>>, error: &StoreError) {
    for mut unit in units {
        unit.fail(error.clone());
        unit.answer();
    }
}
