//! The commit lane: the one place where anything is written.
//!
//! A thread of its own takes the units of work that wait, runs them in order in one database
//! transaction, writes their changes, commits once and then answers each (group commit). A busy
//! moment makes larger batches instead of a longer queue, and a hot account costs nothing extra.
//! The queue is bounded: when it is full, the caller is told at once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::sql::Connection;
use crate::unit::{Batch, Unit};

/// Units that may wait. At the speed of the lane this is some tenths of a second of work: a caller
/// who would wait longer is better off being told to come back.
const QUEUE_MAX: usize = 4_096;

/// Units in one database transaction. More would hardly gain throughput and would let the first
/// wait for the last.
const BATCH_MAX: usize = 512;

/// What stops the process when a commit's outcome is unknown. The exit code is `EX_IOERR`.
const EXIT_IO_ERROR: i32 = 74;

/// A unit of work on its way through the lane.
trait Item: Send {
    /// Runs the unit; may be called again. Whether its changes are kept.
    fn run(&mut self, unit: &mut Unit<'_, '_>) -> bool;

    /// Replaces whatever the unit would have answered.
    fn fail(&mut self, error: StoreError);

    /// Sends the answer.
    fn answer(self: Box<Self>);
}

struct Work<T, E, F> {
    work: F,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<T, E, F> Item for Work<T, E, F>
where
    T: Send,
    E: From<StoreError> + Send,
    F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send,
{
    fn run(&mut self, unit: &mut Unit<'_, '_>) -> bool {
        // A panic is a bug, but only this unit's: its changes are dropped and the rest goes on.
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(unit)))
            .unwrap_or_else(|panic| Err(StoreError::Panicked(panic_text(&*panic)).into()));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn fail(&mut self, error: StoreError) {
        self.result = Some(Err(error.into()));
    }

    fn answer(self: Box<Self>) {
        let result = self.result.unwrap_or_else(|| Err(StoreError::Closed.into()));
        // The caller may have gone away; its change stands all the same.
        let _ = self.reply.send(result);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The way into the lane.
#[derive(Clone)]
pub(crate) struct Lane {
    queue: mpsc::Sender<Box<dyn Item>>,
}

impl Lane {
    /// Starts the lane's thread on a connection of its own. `timers_set` is notified after each
    /// commit that set a timer.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        timers_set: Arc<Notify>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("commit-lane".to_owned())
            .spawn(move || run(connection, &keyring, waiting, &timers_set))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        Ok((Self { queue }, thread))
    }

    /// Queues a unit of work and waits for its durable answer.
    pub(crate) async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let item = Box::new(Work { work, result: None, reply });
        self.queue.try_send(item).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }
}

fn run(
    mut connection: Box<dyn Connection>,
    keyring: &Keyring,
    mut waiting: mpsc::Receiver<Box<dyn Item>>,
    timers_set: &Notify,
) {
    while let Some(first) = waiting.blocking_recv() {
        let mut items = vec![first];
        while items.len() < BATCH_MAX
            && let Ok(next) = waiting.try_recv()
        {
            items.push(next);
        }
        metrics::histogram!("switchyard_commit_batch_units").record(items.len() as f64);
        metrics::gauge!("switchyard_commit_queue_units").set(waiting.len() as f64);
        #[expect(clippy::disallowed_methods, reason = "it is measured; nothing depends on it")]
        let started = std::time::Instant::now();
        commit(&mut *connection, keyring, &mut items, timers_set);
        metrics::histogram!("switchyard_commit_seconds").record(started.elapsed());
        for item in items {
            item.answer();
        }
    }
    if let Err(error) = connection.settle() {
        tracing::warn!(%error, "the log was not moved into the database; the next start does it");
    }
}

/// Commits all items together, or, where that fails, each for itself, so that one unit that the
/// database refuses does not take its neighbours along.
fn commit(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    items: &mut [Box<dyn Item>],
    timers_set: &Notify,
) {
    let failed = match connection.begin() {
        Ok(()) => try_commit(connection, keyring, items, timers_set),
        // Nothing that any unit does could help: somebody else holds the database.
        Err(error) => Err((Blame::Database, error)),
    };
    let Err((blame, error)) = failed else { return };
    tracing::warn!(%error, units = items.len(), "a batch was not committed");
    if items.len() == 1 || blame == Blame::Database {
        for item in items {
            item.fail(error.clone());
        }
        return;
    }
    for item in items {
        commit(connection, keyring, std::slice::from_mut(item), timers_set);
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

/// Runs, writes and commits the items in the transaction that has begun.
fn try_commit(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    items: &mut [Box<dyn Item>],
    timers_set: &Notify,
) -> Result<(), (Blame, StoreError)> {
    let mut batch = Batch::new(connection, keyring);
    for item in items {
        batch.run(|unit| item.run(unit));
    }
    let written = batch.write().and_then(|changes| {
        connection.commit()?;
        Ok(changes)
    });
    match written {
        Ok(changes) => {
            if changes.timers.values().any(Option::is_some) {
                timers_set.notify_one();
            }
            Ok(())
        }
        Err(StoreError::OutcomeUnknown(what)) => stop(&what),
        Err(error) => {
            connection.rollback().map_err(|error| (Blame::Database, error))?;
            let is_full = error == StoreError::DiskFull;
            Err((if is_full { Blame::Database } else { Blame::Unit }, error))
        }
    }
}

/// Ends the process: after a failed flush, what this process believes about the database may be
/// wrong. The next start reads what is there, and idempotency keys tell clients the truth.
fn stop(what: &str) -> ! {
    tracing::error!(what, "the outcome of a commit is unknown; stopping so that a restart decides");
    std::process::exit(EXIT_IO_ERROR)
}
