//! One batch after the other: what is done with each batch while other servers write as well, and
//! with one that could not be written as it was run ahead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::transaction::Transaction;

use super::queue::Queue;
use super::{Item, Listeners};
use crate::cache::Cache;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::outcome::stop;
use crate::pause::pause;
use crate::reach::{self, PROBE_PAUSE, Reach, Step};
use crate::shelf::Shelf;
use crate::sql::{Connection, Turn};
use crate::unit::{Batch, Changes, Ran, Repeats, Writing};

/// How often a batch that lost against somebody else's transaction is tried again.
const CONFLICTS_MAX: u32 = 5;

/// How long it is tried again at most: whoever waits has other things to do.
const CONFLICTS_TIME: Duration = Duration::from_secs(8);

/// The first pause after a conflict, doubled each time: about as long as a commit takes.
const CONFLICT_PAUSE: Duration = Duration::from_millis(4);

/// Turns in a row, others' between them, after which we take it that others write as often as we
/// do: what is run ahead would be run again each time. One alone is what a start looks like, or a
/// server that writes now and then.
const COMPANY_MIN: u32 = 2;

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
    /// What units that run ahead read from.
    pub(super) reader: Box<dyn Connection>,
    pub(super) is_remote: bool,
    /// Turns in a row before which somebody else had one.
    others: u32,
    pub(super) keyring: Arc<Keyring>,
    pub(super) cache: Cache,
    pub(super) listeners: Listeners,
    pub(super) reach: Arc<Reach>,
}

impl Writer {
    pub(super) fn new(
        connection: Box<dyn Connection>,
        reader: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        listeners: Listeners,
        reach: Arc<Reach>,
    ) -> Self {
        let is_remote = connection.is_remote();
        let (pen, cache) = (Arc::new(Mutex::new(connection)), Cache::default());
        Self { pen, reader, is_remote, others: 0, keyring, cache, listeners, reach }
    }

    /// Whether other servers write as well.
    pub(super) fn has_company(&self) -> bool {
        self.others >= COMPANY_MIN
    }

    /// Takes the turn and carries out what waits then, so that what comes while others have theirs
    /// is part of it; false once the store is closed and everything is done.
    pub(super) fn next(&mut self, queue: &mut Queue) -> bool {
        if !queue.wait() {
            return false;
        }
        self.reach.began(Step::Write);
        let turn = hold(&self.pen).begin();
        let items = queue.batch();
        match turn {
            Ok(turn) => self.carry_out(items, Some(turn), queue),
            Err(StoreError::Unavailable(what)) => self.turn_away(items, &what, queue),
            Err(error) => {
                tracing::warn!(%error, units = items.len(), "a batch did not get its turn");
                self.carry_out(items, None, queue);
            }
        }
        true
    }

    /// Leaves the database so that its main file alone is complete.
    pub(super) fn settle(self) {
        match hold(&self.pen).settle() {
            Ok(()) => {}
            // Closing the file could move the log once more, and then remove it.
            Err(StoreError::OutcomeUnknown(what)) => stop(&what),
            Err(error) => {
                tracing::warn!(%error, "the log was not moved into the database; the next start does it");
            }
        }
    }

    /// Commits all items and answers them. `turn` is the turn if it was taken for them already.
    pub(super) fn carry_out(
        &mut self,
        mut items: Vec<Box<dyn Item>>,
        turn: Option<Turn>,
        queue: &mut Queue,
    ) {
        measure(items.len());
        measure_queue(queue);
        let timed = Timed::begin(&self.reach);
        let outcome = self.commit(&mut items, turn);
        timed.end();
        let lost = match outcome {
            Err(StoreError::Unavailable(what)) => Some(what),
            Ok(()) | Err(_) => None,
        };
        self.answer(items, lost.as_deref(), queue);
    }

    /// Answers items that nobody can write now.
    pub(super) fn turn_away(
        &mut self,
        mut items: Vec<Box<dyn Item>>,
        what: &str,
        queue: &mut Queue,
    ) {
        for item in &mut items {
            item.fail(StoreError::Unavailable(what.to_owned()));
        }
        self.answer(items, Some(what), queue);
    }

    /// Answers items of which it is known what became of them. `lost` is why the database cannot be
    /// reached, if it cannot. That must be known before anybody is answered: who is told, and asks
    /// again, must not wait a second time.
    fn answer(&mut self, items: Vec<Box<dyn Item>>, lost: Option<&str>, queue: &mut Queue) {
        if lost.is_some() {
            self.reach.lost();
        }
        self.reach.rests();
        items.into_iter().for_each(|item| item.answer());
        if let Some(what) = lost {
            self.wait_for_database(queue, what);
        }
    }

    /// Turns everybody away at once while the database cannot be reached, and looks for it. Whoever
    /// has waited for an answer up to now would wait for as long again.
    fn wait_for_database(&mut self, queue: &mut Queue, what: &str) {
        tracing::error!(what, "the database cannot be reached: requests are turned away");
        let error = StoreError::Unavailable(what.to_owned());
        loop {
            queue.refuse(&error);
            if queue.is_closed() {
                return;
            }
            pause(PROBE_PAUSE);
            // Those who came just before it was known would wait as long as the look takes.
            queue.refuse(&error);
            if reach::probe(&mut **hold(&self.pen)).is_ok() {
                break;
            }
        }
        self.reach.found();
        tracing::info!("the database can be reached again");
    }

    /// Commits all items together, or, where that fails, each for itself, so that one unit that the
    /// database refuses does not take its neighbours along. The error is what kept all of them out.
    fn commit(
        &mut self,
        items: &mut [Box<dyn Item>],
        mut turn: Option<Turn>,
    ) -> Result<(), StoreError> {
        let mut pause_for = CONFLICT_PAUSE;
        let mut conflicts = 0;
        let (blame, error) = loop {
            let Err((blame, error)) = self.try_commit(items, turn.take()) else { return Ok(()) };
            // What is remembered may be why it failed.
            self.cache.forget(true);
            tracing::warn!(%error, units = items.len(), "a batch was not committed");
            let again = self.is_remote && matches!(error, StoreError::Conflict(_));
            let is_late = self.reach.age(Step::Write) > CONFLICTS_TIME;
            if !again || conflicts == CONFLICTS_MAX || is_late {
                break (blame, error);
            }
            conflicts += 1;
            count_conflict();
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
                    let one = self.commit(std::slice::from_mut(item), None);
                    let is_lost = matches!(one, Err(StoreError::Unavailable(_)));
                    lost = if is_lost { one } else { Ok(()) };
                }
            }
        }
        lost
    }

    /// Keeps in mind who wrote before us, and forgets what they may have changed.
    fn heed(&mut self, turn: Turn) {
        let Turn::Others { nouns } = turn else {
            self.others = 0;
            return;
        };
        self.others = self.others.saturating_add(1);
        self.cache.forget(nouns);
        self.listeners.shelf.clear();
        if nouns {
            self.listeners.callers.changed();
            // Perhaps the session that writes is a new one, on another server than before.
            self.reader.disconnect();
        }
    }

    /// Runs, writes and commits the items.
    fn try_commit(
        &mut self,
        items: &mut [Box<dyn Item>],
        turn: Option<Turn>,
    ) -> Result<(), (Blame, StoreError)> {
        let pen = Arc::clone(&self.pen);
        let connection = &mut **hold(&pen);
        // Nothing that any unit does could help when somebody else holds the database.
        let turn = turn.map_or_else(|| connection.begin(), Ok);
        self.heed(turn.map_err(|error| (Blame::Database, error))?);
        let Self { keyring, cache, listeners, .. } = self;
        cache.age();
        match run_and_write(connection, keyring, cache, &listeners.shelf, items) {
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

/// Runs the items in their order, and commits what they left.
fn run_and_write(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    cache: &mut Cache,
    shelf: &Shelf<Transaction>,
    items: &mut [Box<dyn Item>],
) -> Result<Changes, StoreError> {
    let mut batch = Batch::new(&mut *connection, keyring, cache, Repeats::LookedFor);
    batch.expect(items.iter().filter_map(|item| item.scope()))?;
    let mut ran = run_in_order(&mut batch, items);
    while ran < items.len() {
        batch.fetch()?;
        ran += run_in_order(&mut batch, &mut items[ran..]);
    }
    let (prepared, changes) = batch.prepare();
    let mut writing = Writing::of(vec![prepared]);
    writing.write(connection)?;
    writing.commit(connection, shelf)?;
    Ok(changes)
}

/// Runs the items up to the first that waits for rows. Those behind it tell meanwhile which rows
/// they need. How many ran.
pub(super) fn run_in_order(batch: &mut Batch<'_>, items: &mut [Box<dyn Item>]) -> usize {
    let (count, mut items) = (items.len(), items.iter_mut());
    let waits = items.position(|item| batch.run(|unit| item.run(unit)) == Ran::Waits);
    items.for_each(|item| batch.foresee(|unit| item.run(unit)));
    waits.unwrap_or(count)
}

/// Counts a batch that lost against somebody else's transaction.
pub(super) fn count_conflict() {
    metrics::counter!("switchyard_commit_conflicts_total").increment(1);
}

/// Tells how many units are written in one transaction.
pub(super) fn measure(units: usize) {
    metrics::histogram!("switchyard_commit_batch_units").record(units as f64);
}

/// Tells how many units are left.
pub(super) fn measure_queue(queue: &Queue) {
    metrics::gauge!("switchyard_commit_queue_units").set(queue.len() as f64);
}

/// A transaction under way: how long it takes is told, and meanwhile, until [`Reach::ended`], that
/// it is going on.
pub(super) struct Timed(std::time::Instant);

impl Timed {
    pub(super) fn begin(reach: &Reach) -> Self {
        reach.began(Step::Write);
        #[expect(clippy::disallowed_methods, reason = "it is measured; nothing depends on it")]
        Self(std::time::Instant::now())
    }

    pub(super) fn end(&self) {
        metrics::histogram!("switchyard_commit_seconds").record(self.0.elapsed());
    }
}

/// Why a batch was not committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// Whatever was in it.
    Database,
    /// Perhaps one of its units: each gets a try of its own.
    Unit,
}
