//! Whether the database can be reached: once it cannot, requests are turned away at once instead of
//! each waiting for its own deadline, until the lane has found it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::StoreError;

/// What takes longer than this stands still: a commit takes milliseconds, and whoever would queue
/// behind it is better off being told to come back.
const STALL: Duration = Duration::from_secs(2);

/// What the lane waits for, each for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Rows that units need before their batch has its turn.
    Read,
    /// The end of a batch, from the moment in which it asks for its turn.
    Write,
}

/// Shared by the lane and the readers.
#[derive(Debug)]
pub(crate) struct Reach {
    is_lost: AtomicBool,
    /// When each step of the lane began, in milliseconds since `start`; 0 while it is in none.
    read_since: AtomicU64,
    write_since: AtomicU64,
    start: Instant,
}

impl Default for Reach {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "it tells how long we wait, not what is true"
        )]
        let start = Instant::now();
        let (read_since, write_since) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { is_lost: AtomicBool::new(false), read_since, write_since, start }
    }
}

impl Reach {
    /// Refuses while the database is known to be out of reach.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("it is looked for; try again".to_owned()));
        }
        if self.stands_still(Step::Read) || self.stands_still(Step::Write) {
            return Err(StoreError::Unavailable("it does not answer; try again".to_owned()));
        }
        Ok(())
    }

    /// Whether the lane's present step takes longer than it should.
    pub(crate) fn stands_still(&self, step: Step) -> bool {
        self.age(step) > STALL
    }

    /// How long the lane has been in a step; zero while it is not.
    pub(crate) fn age(&self, step: Step) -> Duration {
        match self.since(step).load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.millis().saturating_sub(since)),
        }
    }

    fn since(&self, step: Step) -> &AtomicU64 {
        match step {
            Step::Read => &self.read_since,
            Step::Write => &self.write_since,
        }
    }

    /// Since this was made; at least 1.
    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The lane has begun a step. One that is begun again before it has ended goes on.
    pub(crate) fn began(&self, step: Step) {
        let (since, now) = (self.since(step), self.millis());
        let _ = since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The lane is done with a step.
    pub(crate) fn ended(&self, step: Step) {
        self.since(step).store(0, Ordering::Relaxed);
    }

    /// It did not answer.
    pub(crate) fn lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        metrics::gauge!("switchyard_database_reachable").set(0);
    }

    /// It answers again.
    pub(crate) fn found(&self) {
        self.is_lost.store(false, Ordering::Relaxed);
        metrics::gauge!("switchyard_database_reachable").set(1);
    }
}
