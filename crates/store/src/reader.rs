//! Readers: a pool of threads, each with a connection that only reads. They never wait for the
//! writer thread.
//!
//! There are two ways to read, and both see everything that was committed before the call, also by
//! another process. `get` looks for one record in the memtable, and in the tables if it is not
//! there (`point_reads`). `read` waits until the tables have followed, and looks into them alone.
//! The server's own jobs look into the tables as they are.
//!
//! A list may take long and a point read never does. Point reads have a connection of their own, so
//! that authentication and readiness do not wait behind lists.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::circuit_breaker::CircuitBreaker;
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::memtable::shared::SharedMemtable;
use crate::point_reads::PointReads;
use crate::record::{self, Record, load};
use crate::sealing;
use crate::sql::Connection;
use crate::threads;

/// How often it is read from tables that are too old: a list once more if another process has
/// appended, and both again if the database went back.
const READS_MAX: u32 = 5;

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

    /// The rows of some keys, as far as they are there.
    pub fn get_all<R: Record>(
        &mut self,
        keys: impl IntoIterator<Item = R::Key>,
    ) -> Result<BTreeMap<R::Key, Arc<R>>, StoreError> {
        let found = record::fetch::<R>(self.connection, self.keyring, keys)?;
        Ok(found.into_iter().filter_map(|(key, found)| Some((key, found?))).collect())
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
    points: PointReads,
    keyring: Arc<Keyring>,
    memtable: Arc<SharedMemtable>,
    breaker: Arc<CircuitBreaker>,
}

impl Readers {
    /// Starts one thread for each connection, the first for point reads.
    pub(crate) fn start(
        point_reads: Box<dyn Connection>,
        connections: Vec<Box<dyn Connection>>,
        keyring: &Arc<Keyring>,
        memtable: Arc<SharedMemtable>,
        breaker: Arc<CircuitBreaker>,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let (points, point_thread) = PointReads::start(
            point_reads,
            Arc::clone(keyring),
            Arc::clone(&memtable),
            Arc::clone(&breaker),
        )?;
        let threads = connections.into_iter().enumerate().map(|(number, connection)| {
            let (waiting, keyring) = (Arc::clone(&waiting), Arc::clone(keyring));
            let work = move || run(connection, &keyring, &waiting);
            threads::start(format!("reader-{number}"), work)
        });
        let mut threads = threads.collect::<Result<Vec<_>, _>>()?;
        threads.push(point_thread);
        let keyring = Arc::clone(keyring);
        Ok((Self { queue, points, keyring, memtable, breaker }, threads))
    }

    /// The row with this key, as it is now.
    pub(crate) async fn get<R: Record>(&self, key: R::Key) -> Result<Option<Arc<R>>, StoreError> {
        for read in 0..READS_MAX {
            let restarts = self.memtable.restarts();
            match self.points.find(R::shape(), key.clone().into()).await {
                // Another session with the database may be the first that sees an older one.
                Err(StoreError::Conflict(_)) if self.memtable.went_back_since(restarts) => {
                    self.memtable.restarted(restarts).await?;
                }
                found => match record::found(found?, &self.keyring) {
                    // A new secret may have been announced between the reads of ends and record.
                    Err(StoreError::Sealed { .. }) if read + 1 < READS_MAX => {}
                    found => return found,
                },
            }
        }
        Err(self.memtable.went_back())
    }

    /// Runs `read` on one snapshot, which is newer than this call.
    pub(crate) async fn read<T, E, F>(&self, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.breaker.check()?;
        let (mut end, mut read) = (None, read);
        for _ in 0..READS_MAX {
            if let Some(end) = end
                && let Err(error) = self.memtable.follow(end).await
            {
                self.breaker.check()?;
                return Err(error.into());
            }
            let memtable = Arc::clone(&self.memtable);
            let read_once = move |view: &mut View<'_>| match behind(view, &memtable, end)? {
                Some(end) => Ok(Attempt::Again(end, read)),
                None => read(view).map(Attempt::Read),
            };
            let (is_first, restarts) = (end.is_none(), self.memtable.restarts());
            match self.run::<_, E, _>(read_once).await? {
                Attempt::Read(found) => return Ok(found),
                Attempt::Again(later, again) => (end, read) = (Some(later), again),
            }
            // The tables had followed before this snapshot.
            if !is_first {
                self.memtable.went_back();
                self.memtable.restarted(restarts).await?;
            }
        }
        Err(self.memtable.went_back().into())
    }

    /// Runs `read` on one snapshot, whose tables may lag behind the journal.
    pub(crate) async fn run<T, E, F>(&self, read: F) -> Result<T, E>
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
            let _ = reply.send(from_snapshot(view, &breaker, read));
            let _ = view.connection.rollback();
        });
        self.queue.try_send(job).map_err(StoreError::from)?;
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::Panicked("a read did not come back".to_owned()).into())
        })
    }
}

/// The outcome of one attempt to read.
enum Attempt<T, F> {
    /// It was read.
    Read(T),
    /// The tables have to follow up to this row first.
    Again(u64, F),
}

/// The row up to which the tables of a snapshot have to follow still: the `end` of the journal in
/// the first snapshot, which has everything that was acknowledged before this read. The first
/// snapshot is this one if there is no `end`; then rows that another process has appended are
/// taken.
fn behind(
    view: &mut View<'_>,
    memtable: &SharedMemtable,
    end: Option<u64>,
) -> Result<Option<u64>, StoreError> {
    let tail::Ends { last, applied } = tail::ends(view.connection)?;
    if last > memtable.end().seq {
        match end {
            None => memtable.catch_up(view.connection, view.keyring)?,
            // The rows between may have announced the secret with which tables are sealed now.
            Some(_) => sealing::learn(view.connection, view.keyring)?,
        }
    }
    // A database that went back may never have the rest.
    let end = end.map_or(last, |end| end.min(last));
    Ok(Some(end).filter(|end| applied < *end))
}

/// Reads, and opens the breaker if the connection was lost.
fn from_snapshot<T, E: From<StoreError>>(
    view: &mut View<'_>,
    breaker: &CircuitBreaker,
    read: impl FnOnce(&mut View<'_>) -> Result<T, E>,
) -> Result<T, E> {
    // A read that came just before it opened would wait for another time-out.
    breaker.check()?;
    let result = match view.connection.begin_read() {
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
