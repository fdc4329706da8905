//! Whether the database can be reached: once it cannot, requests are turned away at once instead of
//! each waiting for its own deadline, until the lane has found it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::StoreError;

/// A batch that takes longer than this stands still: a commit takes milliseconds, and whoever would
/// queue behind it is better off being told to come back.
const STALL: Duration = Duration::from_secs(2);

/// Shared by the lane and the readers.
#[derive(Debug)]
pub(crate) struct Reach {
    is_lost: AtomicBool,
    /// When the lane's present batch began, in milliseconds since `start`; 0 while it has none.
    batch_since: AtomicU64,
    start: Instant,
}

impl Default for Reach {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "it tells how long we wait, not what is true"
        )]
        let start = Instant::now();
        Self { is_lost: AtomicBool::new(false), batch_since: AtomicU64::new(0), start }
    }
}

impl Reach {
    /// Refuses while the database is known to be out of reach.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("it is looked for; try again".to_owned()));
        }
        if self.stands_still() {
            return Err(StoreError::Unavailable("it does not answer; try again".to_owned()));
        }
        Ok(())
    }

    /// Whether the lane's present batch takes longer than a commit should.
    fn stands_still(&self) -> bool {
        self.batch_age() > STALL
    }

    /// How long the lane has had its present batch; zero while it has none.
    pub(crate) fn batch_age(&self) -> Duration {
        match self.batch_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.millis().saturating_sub(since)),
        }
    }

    /// Since this was made; at least 1.
    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The lane has begun a batch.
    pub(crate) fn began(&self) {
        self.batch_since.store(self.millis(), Ordering::Relaxed);
    }

    /// The lane is done with its batch.
    pub(crate) fn ended(&self) {
        self.batch_since.store(0, Ordering::Relaxed);
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
