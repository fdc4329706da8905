//! Readers: threads with connections of their own, which never wait for the commit lane.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, load};
use crate::sql::Connection;

/// Reads that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

type Job = Box<dyn FnOnce(&mut View<'_>) + Send>;

/// One consistent look at the database.
pub struct View<'a> {
    pub(crate) connection: &'a mut dyn Connection,
    pub(crate) keyring: &'a Keyring,
}

impl View<'_> {
    /// The row with this key.
    pub fn get<R: Record>(&mut self, key: &R::Key) -> Result<Option<Arc<R>>, StoreError> {
        Ok(load::<R>(self.connection, self.keyring, key)?.map(|(row, _)| row))
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
}

impl Readers {
    /// Starts one thread per connection.
    pub(crate) fn start(
        connections: Vec<Box<dyn Connection>>,
        keyring: &Arc<Keyring>,
    ) -> Result<(Self, Vec<std::thread::JoinHandle<()>>), StoreError> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = connections.into_iter().enumerate().map(|(number, connection)| {
            let (waiting, keyring) = (Arc::clone(&waiting), Arc::clone(keyring));
            std::thread::Builder::new()
                .name(format!("reader-{number}"))
                .spawn(move || run(connection, &keyring, &waiting))
                .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))
        });
        Ok((Self { queue }, threads.collect::<Result<_, _>>()?))
    }

    /// Runs `read` on one snapshot.
    pub(crate) async fn read<T, E, F>(&self, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut View<'_>) -> Result<T, E> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |view| {
            let result = match view.connection.begin_read() {
                Ok(()) => read(view),
                Err(error) => Err(error.into()),
            };
            // Nothing was written, so leaving the transaction cannot lose anything.
            let _ = view.connection.rollback();
            let _ = reply.send(result);
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

fn run(mut connection: Box<dyn Connection>, keyring: &Keyring, waiting: &Mutex<Receiver<Job>>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let view = &mut View { connection: &mut *connection, keyring };
        let job = std::panic::AssertUnwindSafe(|| job(view));
        if std::panic::catch_unwind(job).is_err() {
            tracing::error!("a read panicked");
            let _ = connection.rollback();
        }
    }
}
