//! Readers: a pool of threads, each with a connection that only reads. They never wait for the
//! writer thread.
//!
//! A list may take long and a point read never does. Lists leave one connection free, so that
//! authentication and readiness do not wait behind them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::circuit_breaker::CircuitBreaker;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, load};
use crate::sql::Connection;

/// Reads that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

type Job = Box<dyn FnOnce(&mut View<'_>) + Send>;

/// One consistent snapshot of the database.
pub struct View<'a> {
    pub(crate) connection: &'a mut dyn Connection,
    pub(crate) keyring: &'a Keyring,
}

impl View<'_> {
    /// The row with this key.
    pub fn get<R: Record>(&mut self, key: &R::Key) -> Result<Option<Arc<R>>, StoreError> {
        load::<R>(self.connection, self.keyring, key)
    }

    /// Keyed hashes and sealing.
    pub fn keyring(&self) -> &Keyring {
        self.keyring
    }
}

/// A handle of the pool. Its threads end when the last one is dropped.
#[derive(Clone)]
pub(crate) struct Readers {
    queue: mpsc::Sender<Job>,
    /// One permit for each connection that a list may use.
    lists: Arc<Semaphore>,
    breaker: Arc<CircuitBreaker>,
}

impl Readers {
    /// Starts one thread for each connection.
    pub(crate) fn start(
        connections: Vec<Box<dyn Connection>>,
        keyring: &Arc<Keyring>,
        breaker: Arc<CircuitBreaker>,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let lists = Arc::new(Semaphore::new(connections.len().saturating_sub(1).max(1)));
        let threads = connections.into_iter().enumerate().map(|(number, connection)| {
            let (waiting, keyring) = (Arc::clone(&waiting), Arc::clone(keyring));
            std::thread::Builder::new()
                .name(format!("reader-{number}"))
                .spawn(move || run(connection, &keyring, &waiting))
                .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))
        });
        let threads = threads.collect::<Result<_, _>>()?;
        Ok((Self { queue, lists, breaker }, threads))
    }

    /// The row with this key, as it is now.
    pub(crate) async fn get<R: Record>(&self, key: R::Key) -> Result<Option<Arc<R>>, StoreError> {
        let begin = |connection: &mut dyn Connection| connection.begin_point_read();
        self.run(begin, move |view| view.get::<R>(&key)).await
    }

    /// Runs `read` on one snapshot, which is newer than this call.
    pub(crate) async fn read<T, E, F>(&self, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.breaker.check()?;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.lists).acquire_owned().await.ok();
        let begin = |connection: &mut dyn Connection| connection.begin_read();
        let read = move |view: &mut View<'_>| {
            let _permit = permit;
            read(view)
        };
        self.run(begin, read).await
    }

    async fn run<T, E, F>(&self, begin: Begin, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.breaker.check()?;
        let (reply, answer) = oneshot::channel();
        let breaker = Arc::clone(&self.breaker);
        let job: Job = Box::new(move |view| {
            // The caller need not wait for the end of the transaction.
            let _ = reply.send(from_snapshot(view, &breaker, begin, read));
            let _ = view.connection.rollback();
        });
        self.queue.try_send(job).map_err(StoreError::from)?;
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::Panicked("a read did not come back".to_owned()).into())
        })
    }
}

/// Starts a read.
type Begin = fn(&mut dyn Connection) -> Result<(), StoreError>;

/// Reads, and opens the breaker if the connection was lost.
fn from_snapshot<T, E: From<StoreError>>(
    view: &mut View<'_>,
    breaker: &CircuitBreaker,
    begin: Begin,
    read: impl FnOnce(&mut View<'_>) -> Result<T, E>,
) -> Result<T, E> {
    // A read that came just before it opened would wait for another time-out.
    breaker.check()?;
    let result = match begin(view.connection) {
        Ok(()) => read(view),
        Err(error) => Err(error.into()),
    };
    if !view.connection.is_connected() {
        let error = StoreError::Unavailable("the connection was lost".to_owned());
        breaker.open("reads", &error);
    }
    result
}

fn run(
    mut connection: Box<dyn Connection>,
    keyring: &Keyring,
    waiting: &Mutex<mpsc::Receiver<Job>>,
) {
    loop {
        let Some(job) = waiting.lock().blocking_recv() else { return };
        let view = &mut View { connection: &mut *connection, keyring };
        if catch_unwind(AssertUnwindSafe(|| job(view))).is_err() {
            tracing::error!("a read panicked");
            let _ = connection.rollback();
        }
    }
}
