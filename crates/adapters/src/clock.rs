//! Clocks: the system's, and one that only moves when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::time::Timestamp;
use ports::clock::Clock;

/// The system's time of day, in whole milliseconds. Within the process it never runs backwards,
/// also when the system's clock is set back: it then stands still until that time has come again.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The latest reading of any [`SystemClock`] of this process.
static LATEST_MILLIS: AtomicI64 = AtomicI64::new(i64::MIN);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let reading = jiff::Timestamp::now();
        Timestamp::from_millis(not_before(&LATEST_MILLIS, reading.as_millisecond()))
    }
}

/// The later of `reading` and every reading before it. All threads see one order of changes of a
/// single atomic number, so nothing stronger than `Relaxed` is needed.
fn not_before(latest: &AtomicI64, reading: i64) -> i64 {
    latest.fetch_max(reading, Ordering::Relaxed).max(reading)
}

/// A clock that stands still until it is moved, for tests and the simulator. Clones are the same
/// clock: keep one to move it and give the other away.
#[derive(Debug, Clone)]
pub struct ManualClock {
    millis: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { millis: Arc::new(AtomicI64::new(now.millis())) }
    }

    /// Shows `now` from here on. That may be earlier than before, as it may be after a restart on
    /// a machine whose clock was set.
    pub fn set(&self, now: Timestamp) {
        self.millis.store(now.millis(), Ordering::SeqCst);
    }

    /// Moves on by `millis` milliseconds and answers the new time.
    pub fn advance_millis(&self, millis: i64) -> Timestamp {
        let before = self.millis.fetch_add(millis, Ordering::SeqCst);
        Timestamp::from_millis(before).plus_millis(millis)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_in_this_century_and_does_not_run_backwards() {
        let start = Timestamp::parse("2025-01-01T00:00:00Z").expect("valid");
        let mut last = SystemClock.now();
        assert!(last > start, "{last}");
        for _ in 0..1_000 {
            let now = SystemClock.now();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    }

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let latest = AtomicI64::new(i64::MIN);
        let shown: Vec<i64> =
            [5, 7, 6, -1, 7, 8].map(|reading| not_before(&latest, reading)).into();
        assert_eq!(shown, [5, 7, 7, 7, 7, 8]);
    }

    #[test]
    fn a_manual_clock_moves_when_told_to() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let given_away = clock.clone();
        assert_eq!(given_away.now().millis(), 1_000);
        assert_eq!(clock.advance_millis(250).millis(), 1_250);
        assert_eq!(given_away.now().millis(), 1_250);
        clock.set(Timestamp::from_millis(10));
        assert_eq!(given_away.now().millis(), 10);
    }
}
