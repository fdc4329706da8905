//! The circuit breaker of the database: while it is open, every caller is refused at once instead
//! of waiting for a time-out. A probe closes it again.
//!
//! It opens when a read or a write loses its connection, and while a heartbeat across a network
//! takes too long: a server that hangs is noticed before the first caller's time-out is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::engine::knows_key;
use crate::error::StoreError;
use crate::sql::Connection;

/// The pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// The pause between two heartbeats. Each costs one small question.
const HEARTBEAT_PAUSE: Duration = Duration::from_millis(500);

/// The time that a heartbeat may take, which takes a millisecond as a rule.
const HEARTBEAT_TIME: Duration = Duration::from_secs(2);

/// Shared by the writer thread and the readers.
pub(crate) struct CircuitBreaker {
    state: Arc<State>,
    opened: Sender<()>,
}

struct State {
    is_open: AtomicBool,
    /// When the heartbeat under way began, in milliseconds since `start`; 0 if there is none.
    heartbeat: AtomicU64,
    start: Instant,
}

impl CircuitBreaker {
    /// Starts a closed breaker, with a connection of its own for probes. Its thread ends when the
    /// breaker is dropped.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), StoreError> {
        #[expect(clippy::disallowed_methods, reason = "it is how long we wait, not what is true")]
        let start = Instant::now();
        let (is_open, heartbeat) = (AtomicBool::new(false), AtomicU64::new(0));
        let state = Arc::new(State { is_open, heartbeat, start });
        let (opened, openings) = channel();
        let prober = Prober { connection, state: Arc::clone(&state), openings };
        let thread = std::thread::Builder::new()
            .name("circuit-breaker".to_owned())
            .spawn(move || prober.run())
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        metrics::gauge!("switchyard_database_reachable").set(1);
        Ok((Arc::new(Self { state, opened }), thread))
    }

    /// Refuses while the breaker is open.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.state.is_open.load(Ordering::Acquire) || self.state.is_late() {
            return Err(StoreError::Unavailable("circuit breaker open; try again".to_owned()));
        }
        Ok(())
    }

    /// Opens the breaker: the database did not answer `what`.
    pub(crate) fn open(&self, what: &str, error: &StoreError) {
        if self.state.open(what, error) {
            // The thread is there for as long as this is.
            let _ = self.opened.send(());
        }
    }
}

impl State {
    /// Since this was made, in milliseconds; at least 1.
    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether the heartbeat under way takes too long.
    fn is_late(&self) -> bool {
        let since = self.heartbeat.load(Ordering::Acquire);
        since > 0 && self.millis().saturating_sub(since) > HEARTBEAT_TIME.as_millis() as u64
    }

    /// Opens the breaker. Whether it was closed.
    fn open(&self, what: &str, error: &StoreError) -> bool {
        let was_open = self.is_open.swap(true, Ordering::AcqRel);
        if !was_open {
            metrics::gauge!("switchyard_database_reachable").set(0);
            tracing::error!(%error, "database unreachable ({what}), circuit breaker open");
        }
        !was_open
    }
}

/// The thread that probes the database.
struct Prober {
    connection: Box<dyn Connection>,
    state: Arc<State>,
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
            if self.state.is_open.load(Ordering::Acquire) && !self.close_again() {
                return;
            }
        }
    }

    /// Opens the breaker if the database hangs. A failure at once is left to callers: none may
    /// have come before the next heartbeat succeeds.
    fn beat(&mut self) {
        self.state.heartbeat.store(self.state.millis(), Ordering::Release);
        if let Err(error) = probe(&mut *self.connection)
            && self.state.is_late()
        {
            self.state.open("heartbeat", &error);
        }
        self.state.heartbeat.store(0, Ordering::Release);
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
        self.state.is_open.store(false, Ordering::Release);
        true
    }
}

/// Reads a row. That there is a session says little: an idle one looks well while its server hangs.
fn probe(connection: &mut dyn Connection) -> Result<(), StoreError> {
    connection.begin_read()?;
    knows_key(connection)?;
    connection.rollback()
}
