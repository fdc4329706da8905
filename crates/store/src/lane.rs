//! The commit lane: the one place where anything is written.
//!
//! A thread of its own takes the units of work that wait, runs them in order in one database
//! transaction, writes their changes, commits once and then answers each (group commit). A busy
//! moment makes larger batches instead of a longer queue, and a hot account costs nothing extra.
//! The queue is bounded: when it is full, the caller is told at once. Requests go before jobs,
//! which get half of the lane if they need it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::cache::Cache;
use crate::callers::Callers;
use crate::error::StoreError;
use crate::idempotency::Scope;
use crate::keyring::Keyring;
use crate::questions::Questions;
use crate::reach::Reach;
use crate::sql::{Connection, Turn};
use crate::unit::{Batch, Changes, Ran, Unit};

/// Units that may wait. At the speed of the lane this is some tenths of a second of work: a caller
/// who would wait longer is better off being told to come back.
const QUEUE_MAX: usize = 4_096;

/// Units of requests in one database transaction, and as many of jobs. More would hardly gain
/// throughput and would let the first wait for the last.
const REQUESTS_MAX: usize = 256;

/// Units of jobs in one database transaction when there are fewer of requests. Requests that come
/// meanwhile wait for these, which takes a millisecond or two; fewer would make as many more
/// transactions.
const JOBS_MIN: usize = 16;

/// The same across a network, where a transaction costs several round trips, whatever is in it.
/// With 256, requests at half of the peak waited 65 ms for them (p99); with these, 13.
const REMOTE_JOBS_MIN: usize = 48;

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

/// Who waits for a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// A client.
    Request,
    /// Nobody who minds.
    Job,
}

/// A unit of work on its way through the lane.
trait Item: Send {
    /// Runs the unit; may be called again. Whether its changes are kept.
    fn run(&mut self, unit: &mut Unit<'_, '_>) -> bool;

    /// The request whose first answer the unit will look for.
    fn scope(&self) -> Option<Scope>;

    /// Replaces whatever the unit would have answered.
    fn fail(&mut self, error: StoreError);

    /// Sends the answer.
    fn answer(self: Box<Self>);
}

struct Work<T, E, F> {
    work: F,
    scope: Option<Scope>,
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

    fn scope(&self) -> Option<Scope> {
        self.scope
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
    queue: mpsc::Sender<(Rank, Box<dyn Item>)>,
    reach: Arc<Reach>,
}

impl Lane {
    /// Starts the lane's thread on a connection of its own. `timers_set` is notified after each
    /// commit that set a timer and `told` after each with something to be delivered; `callers`
    /// counts those that may change who may do what, and `questions` gets what platforms are to be
    /// asked about what was committed.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        timers_set: Arc<Notify>,
        told: Arc<Notify>,
        callers: Arc<Callers>,
        questions: Arc<Questions>,
        reach: Arc<Reach>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let jobs_min = if connection.is_remote() { REMOTE_JOBS_MIN } else { JOBS_MIN };
        let queued = Queue { waiting, jobs: VecDeque::new(), jobs_min };
        let mut writer = Writer {
            connection,
            keyring,
            cache: Cache::default(),
            timers_set,
            told,
            callers,
            questions,
            reach: Arc::clone(&reach),
        };
        let thread = std::thread::Builder::new()
            .name("commit-lane".to_owned())
            .spawn(move || writer.run(queued))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        Ok((Self { queue, reach }, thread))
    }

    /// Queues a unit of work and waits for its durable answer. `scope` is the request whose first
    /// answer it will look for.
    pub(crate) async fn write<T, E, F>(
        &self,
        rank: Rank,
        scope: Option<Scope>,
        work: F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        self.reach.check()?;
        let (reply, answer) = oneshot::channel();
        let item = Box::new(Work { work, scope, result: None, reply });
        self.queue.try_send((rank, item)).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }
}

/// The lane's end of the queue.
struct Queue {
    waiting: mpsc::Receiver<(Rank, Box<dyn Item>)>,
    /// Units of jobs that were passed by requests.
    jobs: VecDeque<Box<dyn Item>>,
    jobs_min: usize,
}

impl Queue {
    /// The next batch, requests first; none once the store is closed and everything is done.
    fn next(&mut self) -> Option<Vec<Box<dyn Item>>> {
        let mut batch = Vec::new();
        if self.jobs.is_empty() {
            let first = self.waiting.blocking_recv()?;
            self.sort(first, &mut batch);
        }
        while batch.len() < REQUESTS_MAX
            && self.jobs.len() < QUEUE_MAX
            && let Ok(next) = self.waiting.try_recv()
        {
            self.sort(next, &mut batch);
        }
        let jobs = batch.len().max(self.jobs_min).min(self.jobs.len());
        batch.extend(self.jobs.drain(..jobs));
        Some(batch)
    }

    fn sort(&mut self, (rank, item): (Rank, Box<dyn Item>), requests: &mut Vec<Box<dyn Item>>) {
        match rank {
            Rank::Request => requests.push(item),
            Rank::Job => self.jobs.push_back(item),
        }
    }

    /// Units that are still to be taken.
    fn len(&self) -> usize {
        self.waiting.len() + self.jobs.len()
    }

    /// Answers everything that waits.
    fn refuse(&mut self, error: &StoreError) {
        let newer = std::iter::from_fn(|| self.waiting.try_recv().ok()).map(|(_, item)| item);
        for mut item in self.jobs.drain(..).chain(newer) {
            item.fail(error.clone());
            item.answer();
        }
    }
}

/// What works the queue off.
struct Writer {
    connection: Box<dyn Connection>,
    keyring: Arc<Keyring>,
    cache: Cache,
    timers_set: Arc<Notify>,
    told: Arc<Notify>,
    callers: Arc<Callers>,
    questions: Arc<Questions>,
    reach: Arc<Reach>,
}

impl Writer {
    fn run(&mut self, mut queue: Queue) {
        while let Some(mut items) = queue.next() {
            metrics::histogram!("switchyard_commit_batch_units").record(items.len() as f64);
            metrics::gauge!("switchyard_commit_queue_units").set(queue.len() as f64);
            #[expect(clippy::disallowed_methods, reason = "it is measured; nothing depends on it")]
            let started = std::time::Instant::now();
            self.reach.began();
            let outcome = self.commit(&mut items);
            self.reach.ended();
            metrics::histogram!("switchyard_commit_seconds").record(started.elapsed());
            for item in items {
                item.answer();
            }
            if let Err(StoreError::Unavailable(what)) = outcome {
                self.wait_for_database(&mut queue, &what);
            }
        }
        if let Err(error) = self.connection.settle() {
            tracing::warn!(%error, "the log was not moved into the database; the next start does it");
        }
    }

    /// Turns everybody away at once while the database cannot be reached, and looks for it. Whoever
    /// has waited for an answer up to now would wait for as long again.
    fn wait_for_database(&mut self, queue: &mut Queue, what: &str) {
        self.reach.lost();
        tracing::error!(what, "the database cannot be reached: requests are turned away");
        loop {
            queue.refuse(&StoreError::Unavailable(what.to_owned()));
            if queue.waiting.is_closed() {
                return;
            }
            pause(PROBE_PAUSE);
            let probed = self.connection.begin_read();
            if probed.and_then(|()| self.connection.rollback()).is_ok() {
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
            let again = self.connection.is_remote() && matches!(error, StoreError::Conflict(_));
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
        // Nothing that any unit does could help when somebody else holds the database.
        let turn = self.connection.begin().map_err(|error| (Blame::Database, error))?;
        if let Turn::Others { nouns } = turn {
            self.cache.forget(nouns);
            if nouns {
                self.callers.changed();
            }
        }
        self.cache.age();
        match self.run_and_write(items) {
            Ok(mut changes) => {
                let questions = changes.take_questions();
                let (sets_timer, tells) = (changes.sets_timer(), changes.tells());
                if changes.changes_callers() {
                    self.callers.changed();
                }
                changes.committed(&mut self.cache);
                if sets_timer {
                    self.timers_set.notify_one();
                }
                questions.into_iter().for_each(|question| self.questions.put(question));
                if tells {
                    self.told.notify_one();
                }
                Ok(())
            }
            Err(StoreError::OutcomeUnknown(what)) => stop(&what),
            Err(error) => {
                self.connection.rollback().map_err(|error| (Blame::Database, error))?;
                let blame = match error {
                    StoreError::DiskFull | StoreError::Unavailable(_) => Blame::Database,
                    _ => Blame::Unit,
                };
                Err((blame, error))
            }
        }
    }

    /// Runs the items in their order, and commits what they left. One that waits for rows is run
    /// again when they were fetched; those behind it tell meanwhile which rows they need.
    fn run_and_write(&mut self, items: &mut [Box<dyn Item>]) -> Result<Changes, StoreError> {
        let connection = &mut *self.connection;
        let mut batch = Batch::new(connection, &self.keyring, &mut self.cache);
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
        batch.commit()
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

/// Lets time pass on the lane's own thread, on which nothing else could go on.
fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

/// Ends the process: after a failed flush, what this process believes about the database may be
/// wrong. The next start reads what is there, and idempotency keys tell clients the truth.
fn stop(what: &str) -> ! {
    tracing::error!(what, "the outcome of a commit is unknown; stopping so that a restart decides");
    std::process::exit(EXIT_IO_ERROR)
}
