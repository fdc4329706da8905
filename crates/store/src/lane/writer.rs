//! One batch after the other: what is done with each batch where the database is across a network,
//! and with one that could not be written as it was run ahead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::queue::Queue;
use super::{Item, Listeners};
use crate::cache::Cache;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::reach::Reach;
use crate::sql::{Connection, Turn};
use crate::unit::{Batch, Changes, Ran};

/// What stops the process when a commit's outcome is unknown. The exit code is `EX_IOERR`.
const EXIT_IO_ERROR: i32 = 74;

/// How often a batch that lost against somebody else's transaction is tried again.
const CONFLICTS_MAX: u32 = 5;

/// How long it is tried again at most: whoever waits has other things to do.
const CONFLICTS_TIME: Duration = Duration::from_secs(8);

/// The first pause after a conflict, doubled each time: about as long as a commit takes.
const CONFLICT_PAUSE: Duration = Duration::from_millis(4);

/// How often a database that could not be reached is looked for.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// The connection that writes; whoever has it writes.
pub(super) type Pen = Arc<Mutex<Box<dyn Connection>>>;

/// Takes the connection that writes. A panic while it was held left a transaction at most, which
/// the next one refuses.
pub(super) fn hold(pen: &Pen) -> MutexGuard<'_, Box<dyn Connection>> {
    pen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What works the queue off.
pub(super) struct Writer {
    pub(super) pen: Pen,
    is_remote: bool,
    pub(super) keyring: Arc<Keyring>,
    pub(super) cache: Cache,
    pub(super) listeners: Listeners,
    pub(super) reach: Arc<Reach>,
}

impl Writer {
    pub(super) fn new(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        listeners: Listeners,
        reach: Arc<Reach>,
    ) -> Self {
        let is_remote = connection.is_remote();
        let pen = Arc::new(Mutex::new(connection));
        Self { pen, is_remote, keyring, cache: Cache::default(), listeners, reach }
    }

    /// Works the queue off until it is closed.
    pub(super) fn run(mut self, mut queue: Queue) {
        while let Some(items) = queue.next() {
            measure(items.len(), &queue);
            if let Err(StoreError::Unavailable(what)) = self.carry_out(items) {
                self.wait_for_database(&mut queue, &what);
            }
        }
        self.settle();
    }

    /// Leaves the database so that its main file alone is complete.
    pub(super) fn settle(self) {
        if let Err(error) = hold(&self.pen).settle() {
            tracing::warn!(%error, "the log was not moved into the database; the next start does it");
        }
    }

    /// Commits all items and answers them. The error is what kept all of them out.
    pub(super) fn carry_out(&mut self, mut items: Vec<Box<dyn Item>>) -> Result<(), StoreError> {
        let reach = Arc::clone(&self.reach);
        let outcome = timed(&reach, || self.commit(&mut items));
        items.into_iter().for_each(|item| item.answer());
        outcome
    }

    /// Turns everybody away at once while the database cannot be reached, and looks for it. Whoever
    /// has waited for an answer up to now would wait for as long again.
    fn wait_for_database(&mut self, queue: &mut Queue, what: &str) {
        self.reach.lost();
        tracing::error!(what, "the database cannot be reached: requests are turned away");
        loop {
            queue.refuse(&StoreError::Unavailable(what.to_owned()));
            if queue.is_closed() {
                return;
            }
            pause(PROBE_PAUSE);
            let connection = &mut **hold(&self.pen);
            if connection.begin_read().and_then(|()| connection.rollback()).is_ok() {
                break;
            }
        }
        self.reach.found();
        tracing::info!("the database can be reached again");
    }

    /// Commits all items together, or, where that fails, each for itself, so that one unit that the
    /// database refuses does not take its neighbours along. The error is what kept all of them out.
    fn commit(&mut self, items: &mut [Box<dyn Item>]) -> Result<(), StoreError> {
        let mut pause_for = CONFLICT_PAUSE;
        let mut conflicts = 0;
        let (blame, error) = loop {
            let Err((blame, error)) = self.try_commit(items) else { return Ok(()) };
            // What is remembered may be why it failed.
            self.cache = Cache::default();
            tracing::warn!(%error, units = items.len(), "a batch was not committed");
            let again = self.is_remote && matches!(error, StoreError::Conflict(_));
            let is_late = self.reach.batch_age() > CONFLICTS_TIME;
            if !again || conflicts == CONFLICTS_MAX || is_late {
                break (blame, error);
            }
            conflicts += 1;
            metrics::counter!("switchyard_commit_conflicts_total").increment(1);
            pause(pause_for);
            pause_for *= 2;
        };
        if items.len() == 1 || blame == Blame::Database {
            for item in items {
                item.fail(error.clone());
            }
            return Err(error);
        }
        let mut lost = Ok(());
        for item in items {
            match &lost {
                Err(error) => item.fail(StoreError::clone(error)),
                Ok(()) => {
                    let one = self.commit(std::slice::from_mut(item));
                    let is_lost = matches!(one, Err(StoreError::Unavailable(_)));
                    lost = if is_lost { one } else { Ok(()) };
                }
            }
        }
        lost
    }

    /// Runs, writes and commits the items.
    fn try_commit(&mut self, items: &mut [Box<dyn Item>]) -> Result<(), (Blame, StoreError)> {
        let Self { pen, keyring, cache, listeners, .. } = self;
        let connection = &mut **hold(pen);
        // Nothing that any unit does could help when somebody else holds the database.
        let turn = connection.begin().map_err(|error| (Blame::Database, error))?;
        if let Turn::Others { nouns } = turn {
            cache.forget(nouns);
            if nouns {
                listeners.callers.changed();
            }
        }
        cache.age();
        match run_and_write(connection, keyring, cache, items) {
            Ok(mut changes) => {
                let news = changes.take_news();
                changes.remember(cache);
                listeners.tell(news);
                Ok(())
            }
            Err(StoreError::OutcomeUnknown(what)) => stop(&what),
            Err(error) => {
                connection.rollback().map_err(|error| (Blame::Database, error))?;
                let blame = match error {
                    StoreError::DiskFull | StoreError::Unavailable(_) => Blame::Database,
                    _ => Blame::Unit,
                };
                Err((blame, error))
            }
        }
    }
}

/// Runs the items in their order, and commits what they left. One that waits for rows is run again
/// when they were fetched; those behind it tell meanwhile which rows they need.
fn run_and_write(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    cache: &mut Cache,
    items: &mut [Box<dyn Item>],
) -> Result<Changes, StoreError> {
    let mut batch = Batch::new(&mut *connection, keyring, cache, &[]);
    batch.expect(items.iter().filter_map(|item| item.scope()))?;
    let mut waiting: Vec<_> = items.iter_mut().collect();
    while !waiting.is_empty() {
        let mut is_stopped = false;
        waiting.retain_mut(|item| {
            if is_stopped {
                batch.foresee(|unit| item.run(unit));
            } else {
                is_stopped = batch.run(|unit| item.run(unit)) == Ran::Waits;
            }
            is_stopped
        });
        batch.fetch()?;
    }
    let (prepared, changes) = batch.prepare();
    prepared.commit(connection)?;
    Ok(changes)
}

/// Tells how many units a batch has and how many are left.
pub(super) fn measure(units: usize, queue: &Queue) {
    metrics::histogram!("switchyard_commit_batch_units").record(units as f64);
    metrics::gauge!("switchyard_commit_queue_units").set(queue.len() as f64);
}

/// Writes a batch and tells how long that took, and meanwhile that it is going on.
pub(super) fn timed<T>(reach: &Reach, write: impl FnOnce() -> T) -> T {
    #[expect(clippy::disallowed_methods, reason = "it is measured; nothing depends on it")]
    let started = std::time::Instant::now();
    reach.began();
    let outcome = write();
    reach.ended();
    metrics::histogram!("switchyard_commit_seconds").record(started.elapsed());
    outcome
}

/// Why a batch was not committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// Whatever was in it.
    Database,
    /// Perhaps one of its units: each gets a try of its own.
    Unit,
}

/// Lets time pass on the lane's own thread, on which nothing else could go on.
fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

/// Ends the process: after a failed flush, what this process believes about the database may be
/// wrong. The next start reads what is there, and idempotency keys tell clients the truth.
pub(super) fn stop(what: &str) -> ! {
    tracing::error!(what, "the outcome of a commit is unknown; stopping so that a restart decides");
    std::process::exit(EXIT_IO_ERROR)
}
