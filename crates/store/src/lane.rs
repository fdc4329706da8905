//! The commit lane: the one place where anything is written.
//!
//! A thread of its own takes the units of work that wait, runs them in order, has their changes
//! written in one database transaction and committed once, and then each is answered (group
//! commit). A busy moment makes larger batches instead of a longer queue, and a hot account costs
//! nothing extra. The queue is bounded: when it is full, the caller is told at once. Requests go
//! before jobs, which get half of the lane if they need it (`queue`).
//!
//! Units run while those before them are written (`ahead`). While other servers write as well,
//! and whenever something is amiss, one batch comes after the other (`writer`).

mod ahead;
mod queue;
mod tray;
mod writer;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use domain::transaction::Transaction;
use tokio::sync::{Notify, mpsc, oneshot};

use self::ahead::Ahead;
use self::queue::{Queue, Ranked};
use self::writer::Writer;
use crate::approval_requests::ApprovalRequests;
use crate::callers::Callers;
use crate::error::StoreError;
use crate::idempotency::Scope;
use crate::keyring::Keyring;
use crate::reach::Reach;
use crate::shelf::Shelf;
use crate::sql::Connection;
use crate::unit::{News, Unit};

/// Units that may wait. At the speed of the lane this is some tenths of a second of work: a caller
/// who would wait longer is better off being told to come back.
const QUEUE_MAX: usize = 4_096;

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

/// Who is told of commits.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    /// Notified after each commit that set a timer.
    pub(crate) timers_set: Arc<Notify>,
    /// Notified after each commit that added an event.
    pub(crate) events_added: Arc<Notify>,
    /// Counts commits that may change who may do what.
    pub(crate) callers: Arc<Callers>,
    /// Gets the approval requests of each commit.
    pub(crate) approval_requests: Arc<ApprovalRequests>,
    /// Is told which payments a commit changes before it does.
    pub(crate) shelf: Arc<Shelf<Transaction>>,
}

impl Listeners {
    /// Tells of a commit.
    fn tell(&self, news: News) {
        if news.changes_callers {
            self.callers.changed();
        }
        if news.sets_timer {
            self.timers_set.notify_one();
        }
        let requests = news.approval_requests.into_iter();
        requests.for_each(|request| self.approval_requests.put(request));
        if news.adds_events {
            self.events_added.notify_one();
        }
    }
}

/// The way into the lane.
#[derive(Clone)]
pub(crate) struct Lane {
    queue: mpsc::Sender<Ranked>,
    reach: Arc<Reach>,
}

impl Lane {
    /// Starts the lane's threads on a connection of its own, with another one that only reads.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        reader: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        listeners: Listeners,
        reach: Arc<Reach>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let waiting = Queue::new(waiting, connection.is_remote());
        let writer = Writer::new(connection, reader, keyring, listeners, Arc::clone(&reach));
        let ahead = Ahead::start(&writer)?;
        let thread = std::thread::Builder::new()
            .name("commit-lane".to_owned())
            .spawn(move || ahead.run(writer, waiting))
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
