//! The circuit breaker of the database: while it is open, every caller is refused at once instead
//! of waiting for a time-out. A probe closes it again.
//!
//! It opens when a read or a write loses its connection. Across a network it also opens when a
//! heartbeat gets no answer: a server that hangs is noticed before the first caller's time-out.
//!
//! A heartbeat also looks whether every table is still there. Lost ones do not open the breaker:
//! the journal may be whole, and what needs no lost table is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::catalogue;
use crate::engine::knows_key;
use crate::error::StoreError;
use crate::sql::Connection;
use crate::threads;

/// The pause between two probes of a database that is away.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// The pause between two heartbeats. Each costs one small query.
const HEARTBEAT_PAUSE: Duration = Duration::from_millis(500);

/// A heartbeat that fails sooner than this was refused, and one that fails later got no answer.
const HANGS_AFTER: Duration = Duration::from_millis(1_500);

/// Shared by the writer thread and the readers.
pub(crate) struct CircuitBreaker {
    is_open: Arc<AtomicBool>,
    is_incomplete: Arc<AtomicBool>,
    opened: Sender<()>,
}

impl CircuitBreaker {
    /// Starts a closed breaker, with a connection of its own for probes. Its thread ends when the
    /// breaker is dropped.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), StoreError> {
        let is_open = Arc::<AtomicBool>::default();
        let (opened, openings) = channel();
        let is_incomplete = Arc::<AtomicBool>::default();
        let prober = Prober {
            connection,
            is_open: Arc::clone(&is_open),
            is_incomplete: Arc::clone(&is_incomplete),
            all_columns: catalogue::all_columns(),
            openings,
        };
        let thread = threads::start("circuit-breaker", move || prober.run())?;
        metrics::gauge!("switchyard_database_reachable").set(1);
        Ok((Arc::new(Self { is_open, is_incomplete, opened }), thread))
    }

    /// Whether the last heartbeat missed a table or a column.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete.load(Ordering::Acquire)
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
        if open(&self.is_open, what, error) {
            // The thread is there for as long as this is.
            let _ = self.opened.send(());
        }
    }
}

/// Opens the breaker. Returns whether it was closed.
fn open(is_open: &AtomicBool, what: &str, error: &StoreError) -> bool {
    let was_open = is_open.swap(true, Ordering::AcqRel);
    if !was_open {
        metrics::gauge!("switchyard_database_reachable").set(0);
        tracing::error!(%error, "database unreachable ({what}), circuit breaker open");
    }
    !was_open
}

/// The thread that probes the database.
struct Prober {
    connection: Box<dyn Connection>,
    is_open: Arc<AtomicBool>,
    is_incomplete: Arc<AtomicBool>,
    all_columns: String,
    openings: Receiver<()>,
}

impl Prober {
    fn run(mut self) {
        loop {
            let opening = if self.connection.is_remote() {
                self.openings.recv_timeout(HEARTBEAT_PAUSE)
            } else {
                self.openings.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match opening {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => self.beat(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.is_open.load(Ordering::Acquire) && !self.close_again() {
                return;
            }
        }
    }

    /// Opens the breaker if the database hangs. A failure at once is left to callers: none may
    /// have come before the next heartbeat succeeds.
    fn beat(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "it is how long we wait, not what is true")]
        let start = Instant::now();
        match probe(&mut *self.connection) {
            Ok(()) => self.look_for_tables(),
            Err(error) if start.elapsed() > HANGS_AFTER => {
                open(&self.is_open, "heartbeat", &error);
            }
            Err(_) => {}
        }
    }

    /// Looks whether every table and every column is there.
    fn look_for_tables(&mut self) {
        let connection = &mut *self.connection;
        let looked = connection
            .begin_read()
            .and_then(|()| connection.query(&self.all_columns, &[], 1, &mut |_| Ok(())));
        let _ = connection.rollback();
        let is_incomplete = match &looked {
            Ok(()) => false,
            Err(StoreError::Engine(_)) => true,
            // Locked by a migration, or out of reach: nothing is known.
            Err(_) => return,
        };
        let was_incomplete = self.is_incomplete.swap(is_incomplete, Ordering::AcqRel);
        match looked {
            Err(error) if !was_incomplete => {
                tracing::error!(
                    %error,
                    "the database lacks a table or a column: restore it, or stop every server and \
                     run switchyard rebuild"
                );
            }
            Ok(()) if was_incomplete => tracing::info!("the database has all its tables again"),
            Ok(()) | Err(_) => {}
        }
    }

    /// Probes until the breaker can be closed; false if it was dropped meanwhile.
    fn close_again(&mut self) -> bool {
        while probe(&mut *self.connection).is_err() {
            if self.openings.recv_timeout(PROBE_PAUSE) == Err(RecvTimeoutError::Disconnected) {
                return false;
            }
        }
        metrics::gauge!("switchyard_database_reachable").set(1);
        tracing::info!("database reachable, circuit breaker closed");
        self.is_open.store(false, Ordering::Release);
        true
    }
}

/// Reads a row: an idle session looks well while its server hangs.
fn probe(connection: &mut dyn Connection) -> Result<(), StoreError> {
    connection.begin_read()?;
    knows_key(connection)?;
    connection.rollback()
}
