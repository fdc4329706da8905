//! Group commit: the one place where anything is written.
//!
//! A writer thread takes the units of work that wait, runs them in order, appends what they change
//! to the journal with one flush and then answers each. The tables follow a moment later
//! (`crate::projector`). Load makes batches larger, not the queue longer, and a hot account costs
//! nothing extra. The queue is bounded: a caller who finds it full is refused at once. Requests go
//! before jobs, which have a share (`queue`).

mod queue;
mod writer;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use domain::time::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use self::queue::{QUEUE_MAX, Queue};
use self::writer::Writer;
use crate::approval_requests::ApprovalRequests;
use crate::callers::Callers;
use crate::circuit_breaker::CircuitBreaker;
use crate::committed_deliveries::CommittedDeliveries;
use crate::error::StoreError;
use crate::idempotency::Scope;
use crate::in_place::InPlace;
use crate::journal::tail::Tail;
use crate::keyring::Keyring;
use crate::memtable::shared::SharedMemtable;
use crate::origin::{Actor, Origin};
use crate::sql::Connection;
use crate::threads;
use crate::unit::{Unit, WakeUps};

/// How urgent a unit of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A client waits for it.
    Request,
    /// Only a job waits for it.
    Job,
}

/// A unit of work in the queue.
trait Queued: Send {
    /// Runs the unit, perhaps again. Returns whether its changes are kept.
    fn run(&mut self, unit: &mut Unit<'_, '_>) -> bool;

    /// The idempotency scope that the unit looks up first.
    fn scope(&self) -> Option<Scope>;

    /// The origin of its changes.
    fn origin(&self) -> &Origin;

    /// Replaces the unit's answer by an error.
    fn fail(&mut self, error: StoreError);

    /// Sends the answer.
    fn answer(self: Box<Self>);
}

struct Work<T, E, F> {
    work: F,
    scope: Option<Scope>,
    origin: Origin,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<T, E, F> Queued for Work<T, E, F>
where
    T: Send,
    E: From<StoreError> + Send,
    F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send,
{
    fn run(&mut self, unit: &mut Unit<'_, '_>) -> bool {
        // A panic is a bug of this unit alone: its changes are dropped and the rest goes on.
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(unit)))
            .unwrap_or_else(|panic| Err(StoreError::Panicked(panic_text(&*panic)).into()));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn scope(&self) -> Option<Scope> {
        self.scope
    }

    fn origin(&self) -> &Origin {
        &self.origin
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

/// A unit that does nothing, and has a batch run.
fn nothing() -> Box<dyn Queued> {
    let work = |_: &mut Unit<'_, '_>| Ok::<_, StoreError>(());
    let origin =
        Origin { actor: Actor::job("RESTART"), request: None, at: Timestamp::from_millis(0) };
    let (reply, _) = oneshot::channel();
    Box::new(Work { work, scope: None, origin, result: None, reply })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Everyone that a commit wakes up.
#[derive(Clone, Default)]
pub(crate) struct Subscribers {
    /// Notified after each commit that set a timer.
    pub(crate) timers: Arc<Notify>,
    /// Gets what each commit has for the webhook worker.
    pub(crate) deliveries: Arc<CommittedDeliveries>,
    /// Counts commits that may change the rights of a caller.
    pub(crate) callers: Arc<Callers>,
    /// Gets the approval requests of each commit.
    pub(crate) approval_requests: Arc<ApprovalRequests>,
}

impl Subscribers {
    /// Publishes the wake-ups of a commit.
    fn publish(&self, wake_ups: WakeUps) {
        if wake_ups.callers {
            self.callers.changed();
        }
        if wake_ups.timers {
            self.timers.notify_one();
        }
        let requests = wake_ups.approval_requests.into_iter();
        requests.for_each(|request| self.approval_requests.put(request));
        self.deliveries.put(wake_ups.deliveries);
    }
}

/// A handle of the commit queue. The writer thread ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct GroupCommit {
    queue: mpsc::Sender<(Priority, Box<dyn Queued>)>,
    memtable: Arc<SharedMemtable>,
    breaker: Arc<CircuitBreaker>,
    /// Whether the files of the database were moved away.
    moved: watch::Receiver<bool>,
}

impl GroupCommit {
    /// Starts the writer thread on the write connection.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        (tail, memtable, projector): (Tail, Arc<SharedMemtable>, JoinHandle<()>),
        files: InPlace,
        subscribers: Subscribers,
        breaker: Arc<CircuitBreaker>,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let journal = (tail, Arc::clone(&memtable), projector);
        let (moves, moved) = watch::channel(false);
        let circuit = Arc::clone(&breaker);
        let writer =
            Writer::new(connection, keyring, journal, (files, moves), subscribers, circuit);
        let weak = queue.downgrade();
        memtable.on_loss(Box::new(move || {
            // A queue that is full or closed has a batch without it, or needs none.
            let _ = weak.upgrade().map(|queue| queue.try_send((Priority::Request, nothing())));
        }));
        let thread = threads::start("group-commit", move || writer.run(Queue::new(waiting)))?;
        Ok((Self { queue, memtable, breaker, moved }, thread))
    }

    /// Waits until the files of the database were moved away.
    pub(crate) async fn files_moved(&self) {
        let mut moved = self.moved.clone();
        if moved.wait_for(|is_moved| *is_moved).await.is_err() {
            // The writer ended in order, with every file in its place.
            std::future::pending::<()>().await;
        }
    }

    /// The records that the tables do not have yet.
    pub(crate) fn memtable(&self) -> &SharedMemtable {
        &self.memtable
    }

    /// Whether the files of the database were moved away.
    pub(crate) fn are_files_moved(&self) -> bool {
        *self.moved.borrow()
    }

    /// Queues a unit of work and waits for its durable answer. `scope` is the idempotency scope
    /// that the unit looks up first.
    pub(crate) async fn write<T, E, F>(
        &self,
        priority: Priority,
        scope: Option<Scope>,
        origin: Origin,
        work: F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        self.breaker.check()?;
        self.memtable.has_room(priority == Priority::Job)?;
        let (reply, answer) = oneshot::channel();
        let unit = Box::new(Work { work, scope, origin, result: None, reply });
        self.queue.try_send((priority, unit)).map_err(StoreError::from)?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }
}
