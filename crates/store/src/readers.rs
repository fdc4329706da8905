//! Readers: connections of their own, which never wait for the commit lane. Lists are read by
//! threads. Rows by key are looked at on the caller's thread where no network is between; where
//! there is one, looks at single rows share questions (`looks`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use domain::transaction::Transaction;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::looks::Looks;
use crate::reach::Reach;
use crate::record::{self, Record, load};
use crate::shelf::{Place, Shelf};
use crate::sql::Connection;

/// Reads that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

type Job = Box<dyn FnOnce(&mut View<'_>) + Send>;

/// Connections that wait for somebody who looks at a few rows.
type Idle = Mutex<Vec<Box<dyn Connection>>>;

/// Connections for looks at rows by key.
pub(crate) enum Looking {
    /// Each is used on the thread of whoever asks.
    Here(Vec<Box<dyn Connection>>),
    /// A look waits for a network, which a thread of the runtime must not: many share a question.
    /// The number is that of who writes for this server.
    Together(Box<dyn Connection>, i64),
}

/// The way to them.
#[derive(Clone)]
enum Way {
    Here(Arc<Idle>),
    Together(Looks),
}

/// One consistent look at the database.
pub struct View<'a> {
    pub(crate) connection: &'a mut dyn Connection,
    pub(crate) keyring: &'a Keyring,
}

impl View<'_> {
    /// The row with this key.
    pub fn get<R: Record>(&mut self, key: &R::Key) -> Result<Option<Arc<R>>, StoreError> {
        Ok(load::<R>(self.connection, self.keyring, key)?.row)
    }

    /// Keyed hashes and sealing.
    pub fn keyring(&self) -> &Keyring {
        self.keyring
    }
}

/// The way to the readers.
#[derive(Clone)]
pub(crate) struct Readers {
    queue: SyncSender<Job>,
    way: Way,
    keyring: Arc<Keyring>,
    reach: Arc<Reach>,
    shelf: Arc<Shelf<Transaction>>,
}

impl Readers {
    /// Starts one thread per connection of `listing`, and what `looking` needs.
    pub(crate) fn start(
        listing: Vec<Box<dyn Connection>>,
        looking: Looking,
        keyring: &Arc<Keyring>,
        reach: Arc<Reach>,
        shelf: Arc<Shelf<Transaction>>,
    ) -> Result<(Self, Vec<std::thread::JoinHandle<()>>), StoreError> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = listing.into_iter().enumerate().map(|(number, connection)| {
            let (waiting, keyring) = (Arc::clone(&waiting), Arc::clone(keyring));
            std::thread::Builder::new()
                .name(format!("reader-{number}"))
                .spawn(move || run(connection, &keyring, &waiting))
                .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))
        });
        let mut threads = threads.collect::<Result<Vec<_>, _>>()?;
        let way = match looking {
            Looking::Here(idle) => Way::Here(Arc::new(Mutex::new(idle))),
            Looking::Together(connection, member) => {
                // Each row counts only behind a look at who has written.
                shelf.open();
                let (reach, shelf) = (Arc::clone(&reach), Arc::clone(&shelf));
                let (looks, thread) = Looks::start(connection, member, reach, shelf)?;
                threads.push(thread);
                Way::Together(looks)
            }
        };
        Ok((Self { queue, way, keyring: Arc::clone(keyring), reach, shelf }, threads))
    }

    /// Refuses while the database is known to be out of reach.
    pub(crate) fn check_reach(&self) -> Result<(), StoreError> {
        self.reach.check()
    }

    /// The row with this key, as it is now.
    pub(crate) async fn get<R: Record>(&self, key: R::Key) -> Result<Option<Arc<R>>, StoreError> {
        let shelf = R::shelf(&self.shelf);
        let place = match shelf {
            Some(shelf) => self.on_shelf(shelf, &key).await?,
            None => Place::Closed,
        };
        let ticket = match place {
            Place::Row(row) => return Ok(Some(row)),
            Place::Free(ticket) => Some(ticket),
            Place::Closed => None,
        };
        let found = match &self.way {
            Way::Together(looks) => {
                let found = looks.row(R::shape(), R::key_value(&key)).await?;
                let read = |values| record::read::<R>(values, &self.keyring);
                found.map(read).transpose()?.map(|(row, _)| Arc::new(row))
            }
            Way::Here(_) => self.ask(move |view| view.get::<R>(&key)).await?,
        };
        if let (Some(shelf), Some(ticket), Some(row)) = (shelf, ticket, &found) {
            shelf.put(ticket, Arc::clone(row));
        }
        Ok(found)
    }

    /// What the shelf has under a key, as it is now. Where others write as well, that is what it
    /// has behind a look that found it to be right.
    async fn on_shelf<R: Record>(
        &self,
        shelf: &Shelf<R>,
        key: &R::Key,
    ) -> Result<Place<R>, StoreError> {
        let place = shelf.get(key);
        let Way::Together(looks) = &self.way else { return Ok(place) };
        match place {
            Place::Row(_) if looks.is_shelf_right().await? => Ok(shelf.get(key)),
            Place::Row(_) => Ok(Place::Closed),
            Place::Free(_) if !looks.is_alone() => Ok(Place::Closed),
            place => Ok(place),
        }
    }

    /// Runs `look` on one snapshot, on the caller's thread if a connection is free.
    pub(crate) async fn look<T, E, F>(&self, look: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        match self.take_idle() {
            Some(idle) => self.with(idle, |view| from_snapshot(view, look)),
            None => self.read(look).await,
        }
    }

    /// Runs `ask`, which asks one question: a statement has a snapshot of its own, and a
    /// transaction around it would be two questions more.
    pub(crate) async fn ask<T, E, F>(&self, ask: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        match self.take_idle() {
            Some(idle) => self.with(idle, ask),
            None => self.queued(|connection| connection.connect(), ask).await,
        }
    }

    fn take_idle(&self) -> Option<(&Idle, Box<dyn Connection>)> {
        let Way::Here(idle) = &self.way else { return None };
        let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some((idle, connection))
    }

    /// Reads with a connection that was idle, and is so again afterwards.
    fn with<T, E: From<StoreError>>(
        &self,
        (idle, mut connection): (&Idle, Box<dyn Connection>),
        read: impl FnOnce(&mut View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let view = &mut View { connection: &mut *connection, keyring: &self.keyring };
        let looked = catch_unwind(AssertUnwindSafe(|| read(view)));
        if looked.is_err() {
            // Whoever has it next must not read from the snapshot of this one.
            let _ = connection.rollback();
        }
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        looked.unwrap_or_else(|_| {
            Err(StoreError::Panicked("a read did not come back".to_owned()).into())
        })
    }

    /// Runs `read` on one snapshot.
    pub(crate) async fn read<T, E, F>(&self, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.queued(|connection| connection.begin_read(), read).await
    }

    /// Runs `read` on a thread, behind `begin`.
    async fn queued<T, E, F>(
        &self,
        begin: fn(&mut dyn Connection) -> Result<(), StoreError>,
        read: F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        self.reach.check()?;
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |view| {
            let result = match begin(view.connection) {
                Ok(()) => read(view),
                Err(error) => Err(error.into()),
            };
            // Whoever waits need not wait for the end of the transaction.
            let _ = reply.send(result);
            let _ = view.connection.rollback();
        });
        self.queue.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::Panicked("a read did not come back".to_owned()).into())
        })
    }
}

/// Reads in a transaction that only reads.
fn from_snapshot<T, E: From<StoreError>>(
    view: &mut View<'_>,
    read: impl FnOnce(&mut View<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let result = match view.connection.begin_read() {
        Ok(()) => read(view),
        Err(error) => Err(error.into()),
    };
    // Nothing was written, so leaving the transaction cannot lose anything.
    let _ = view.connection.rollback();
    result
}

fn run(mut connection: Box<dyn Connection>, keyring: &Keyring, waiting: &Mutex<Receiver<Job>>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let view = &mut View { connection: &mut *connection, keyring };
        if catch_unwind(AssertUnwindSafe(|| job(view))).is_err() {
            tracing::error!("a read panicked");
            let _ = connection.rollback();
        }
    }
}
