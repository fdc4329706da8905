//! Whether the database can be reached: once it cannot, requests are turned away at once instead of
//! each waiting for its own deadline, until whoever has missed it has found it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::knows_key;
use crate::error::StoreError;
use crate::sql::Connection;

/// What takes longer than this stands still: a commit takes milliseconds, and whoever would queue
/// behind it is better off being told to come back.
const STALL: Duration = Duration::from_secs(2);

/// How often a database that could not be reached is looked for.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// Asks the database something. That there is a session says little: one that nobody has asked
/// anything since looks well while the server hangs.
pub(crate) fn probe(connection: &mut dyn Connection) -> Result<(), StoreError> {
    connection.begin_read()?;
    knows_key(connection)?;
    connection.rollback()
}

/// What somebody waits for, each on a thread of its own. All of it takes milliseconds, which cannot
/// be said of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Of the lane: rows that units need before their batch has its turn.
    Read,
    /// Of the lane: the end of a batch, from the moment in which it asks for its turn.
    Write,
    /// Of those who look at rows by key across a network: the rows.
    Look,
}

impl Step {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Look];
}

/// Shared by the lane and the readers.
#[derive(Debug)]
pub(crate) struct Reach {
    is_lost: AtomicBool,
    /// When each step began, in milliseconds since `start`; 0 while it is not under way.
    since: [AtomicU64; Step::ALL.len()],
    start: Instant,
}

impl Default for Reach {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "it tells how long we wait, not what is true"
        )]
        let start = Instant::now();
        metrics::gauge!("switchyard_database_reachable").set(1);
        Self { is_lost: AtomicBool::new(false), since: Default::default(), start }
    }
}

impl Reach {
    /// Refuses while the database is known to be out of reach.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("it is looked for; try again".to_owned()));
        }
        if Step::ALL.into_iter().any(|step| self.stands_still(step)) {
            return Err(StoreError::Unavailable("it does not answer; try again".to_owned()));
        }
        Ok(())
    }

    /// Whether a step takes longer than it should.
    pub(crate) fn stands_still(&self, step: Step) -> bool {
        self.age(step) > STALL
    }

    /// How long a step has been going on; zero while it is not.
    pub(crate) fn age(&self, step: Step) -> Duration {
        match self.since(step).load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.millis().saturating_sub(since)),
        }
    }

    fn since(&self, step: Step) -> &AtomicU64 {
        &self.since[step as usize]
    }

    /// Since this was made; at least 1.
    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// A step has begun. One that is begun again before it has ended goes on.
    pub(crate) fn began(&self, step: Step) {
        let (since, now) = (self.since(step), self.millis());
        let _ = since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A step has ended.
    pub(crate) fn ended(&self, step: Step) {
        self.since(step).store(0, Ordering::Relaxed);
    }

    /// The lane is in no step.
    pub(crate) fn rests(&self) {
        self.ended(Step::Read);
        self.ended(Step::Write);
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
