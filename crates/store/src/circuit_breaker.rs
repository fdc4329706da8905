//! The circuit breaker of the database: while it is open, every caller is refused at once instead
//! of waiting for a time-out. A probe closes it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::knows_key;
use crate::error::StoreError;
use crate::sql::Connection;

/// The pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// Shared by the writer thread and the readers.
pub(crate) struct CircuitBreaker {
    is_open: Arc<AtomicBool>,
    opened: Sender<()>,
}

impl CircuitBreaker {
    /// Starts a closed breaker, with a connection of its own for probes. Its thread ends when the
    /// breaker is dropped.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), StoreError> {
        let (is_open, (opened, openings)) = (Arc::<AtomicBool>::default(), channel());
        let flag = Arc::clone(&is_open);
        let thread = std::thread::Builder::new()
            .name("circuit-breaker".to_owned())
            .spawn(move || close_again(connection, &flag, &openings))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        metrics::gauge!("switchyard_database_reachable").set(1);
        Ok((Arc::new(Self { is_open, opened }), thread))
    }

    /// Refuses while the breaker is open.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_open.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable("circuit breaker open; try again".to_owned()));
        }
        Ok(())
    }

    /// Opens the breaker: the database did not answer `what`.
    pub(crate) fn open(&self, what: &str, error: &StoreError) {
        if !self.is_open.swap(true, Ordering::AcqRel) {
            metrics::gauge!("switchyard_database_reachable").set(0);
            tracing::error!(%error, "database unreachable ({what}), circuit breaker open");
            // The thread is there for as long as this is.
            let _ = self.opened.send(());
        }
    }
}

/// Probes the database each time that the breaker was opened, until it can be closed.
fn close_again(mut connection: Box<dyn Connection>, is_open: &AtomicBool, openings: &Receiver<()>) {
    while openings.recv().is_ok() {
        while probe(&mut *connection).is_err() {
            match openings.recv_timeout(PROBE_PAUSE) {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        metrics::gauge!("switchyard_database_reachable").set(1);
        tracing::info!("database reachable, circuit breaker closed");
        is_open.store(false, Ordering::Release);
    }
}

/// Reads a row. That there is a session says little: an idle one looks well while its server hangs.
fn probe(connection: &mut dyn Connection) -> Result<(), StoreError> {
    connection.begin_read()?;
    knows_key(connection)?;
    connection.rollback()
}
