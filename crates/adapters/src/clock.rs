//! Clocks: the system's, and one that only moves on demand.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use domain::time::Timestamp;
use ports::clock::Clock;

/// The system's time of day, in whole milliseconds, as far as it can be believed: it never goes
/// back, and a jump forward is believed once the system has stood by it. A system's clock that is
/// set back is waited for at half of the speed.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The state that every [`SystemClock`] of this process shares.
static SHOWN: Mutex<Option<Reckoning>> = Mutex::new(None);

/// The origin of this process's moments.
static START: LazyLock<Instant> = LazyLock::new(moment);

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn moment() -> Instant {
    Instant::now()
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Both under the lock, so that one order of readings is everybody's.
        let ran = i64::try_from(START.elapsed().as_micros()).unwrap_or(i64::MAX);
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let read = jiff::Timestamp::now();
        let read = read.as_microsecond();
        let shown = shown.get_or_insert_with(|| Reckoning::new(read, ran));
        Timestamp::from_millis(shown.at(read, ran).div_euclid(MILLI))
    }
}

/// Microseconds of a millisecond.
const MILLI: i64 = 1_000;

/// Microseconds of a second.
const SECOND: i64 = 1_000 * MILLI;

/// The largest step forward of the system's clock that is believed at once: corrections over a
/// network are far smaller, and so is what a clock loses while it is not corrected.
const BELIEVED: i64 = 60 * SECOND;

/// For how long it must stand by a larger one: who sets a clock wrong by an hour notices.
const DOUBTED_FOR: i64 = 10 * SECOND;

/// By how much two readings may differ that agree: a clock that is being corrected drifts.
const AGREES: u64 = SECOND.unsigned_abs();

/// The time of day from two clocks: one that people and networks set, and one that only runs
/// (reliability.md 3.4, F24). It never goes back and never stands still, so that what waits for
/// time to pass does not wait for ever.
///
/// - Set forward by more than a minute, the first one is not believed before it has stood by it for
///   some seconds: every quote and every deadline would be over.
/// - Set back, it is waited for at half of the speed.
///
/// All numbers are microseconds, so that half of the time between two readings is seldom none.
#[derive(Debug)]
struct Reckoning {
    /// The last shown instant.
    shown: i64,
    /// When, by the clock that only runs.
    ran: i64,
    /// When a jump was seen, and by how much the clocks differ since.
    doubt: Option<(i64, i64)>,
}

impl Reckoning {
    fn new(read: i64, ran: i64) -> Self {
        Self { shown: read, ran, doubt: None }
    }

    /// The time when one clock shows `read` and the other has run for `ran`.
    fn at(&mut self, read: i64, ran: i64) -> i64 {
        let passed = ran.saturating_sub(self.ran).max(0);
        let expected = self.shown.saturating_add(passed);
        let now = if read < expected {
            self.doubt = None;
            read.max(self.shown.saturating_add(passed / 2))
        } else if read.saturating_sub(expected) <= BELIEVED
            || self.is_sure(read.saturating_sub(ran), ran)
        {
            self.doubt = None;
            read
        } else {
            expected
        };
        // Steps below the shown resolution are not lost.
        if now > self.shown {
            (self.shown, self.ran) = (now, ran);
        }
        now
    }

    /// Whether the clocks have differed by this for long enough.
    fn is_sure(&mut self, differ: i64, ran: i64) -> bool {
        match self.doubt {
            Some((since, doubted)) if differ.abs_diff(doubted) <= AGREES => {
                ran.saturating_sub(since) >= DOUBTED_FOR
            }
            Some(_) | None => {
                self.doubt = Some((ran, differ));
                false
            }
        }
    }
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

    /// Shows `now` from here on. The time may be earlier than before, as it may be after a restart
    /// on a machine whose clock was set.
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

    const HOUR: i64 = 3_600 * SECOND;

    /// The shown time, where one clock is `ahead` of the other, each time after so many seconds.
    fn shown(reckoning: &mut Reckoning, ran: &mut i64, steps: &[(i64, i64)]) -> Vec<i64> {
        let steps = steps.iter().map(|(after, ahead)| {
            *ran += after * SECOND;
            reckoning.at(*ran + ahead, *ran) - *ran
        });
        steps.collect()
    }

    #[test]
    fn small_corrections_are_believed_at_once() {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        let steps = [(1, 0), (1, 20 * SECOND), (1, 80 * SECOND), (0, 80 * SECOND)];
        let expected = [0, 20 * SECOND, 80 * SECOND, 80 * SECOND];
        assert_eq!(shown(&mut reckoning, &mut ran, &steps), expected);
    }

    #[test]
    fn a_jump_is_believed_once_the_clock_has_stood_by_it() {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        // Forward and back, forward to somewhere else, and there to stay.
        let steps = [(1, HOUR), (9, HOUR), (1, 0), (1, HOUR), (5, 2 * HOUR), (9, 2 * HOUR)];
        assert_eq!(shown(&mut reckoning, &mut ran, &steps), [0; 6]);
        let steps = [(1, 2 * HOUR), (1, 2 * HOUR + SECOND)];
        assert_eq!(shown(&mut reckoning, &mut ran, &steps), [2 * HOUR, 2 * HOUR + SECOND]);
    }

    #[test]
    fn a_clock_that_is_set_back_is_waited_for_and_time_goes_on() {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        let mut last = reckoning.at(0, 0);
        // Every microsecond at first: none of them may be lost.
        for _ in 0..SECOND {
            ran += 1;
            let now = reckoning.at(ran - HOUR, ran);
            assert!(now >= last);
            last = now;
        }
        assert_eq!(last, SECOND / 2);
        ran += HOUR;
        assert_eq!(reckoning.at(ran - HOUR, ran), HOUR / 2 + SECOND / 2);
        ran += 2 * HOUR;
        assert_eq!(reckoning.at(ran - HOUR, ran), ran - HOUR, "it has come to that time again");
    }

    #[test]
    fn whatever_the_system_says_time_does_not_go_back() {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        let mut last = 0;
        for read in [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MAX, HOUR, i64::MIN, 5] {
            ran += 6 * SECOND;
            let now = reckoning.at(read, ran);
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    }

    #[test]
    fn a_manual_clock_moves_when_asked_to() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let given_away = clock.clone();
        assert_eq!(given_away.now().millis(), 1_000);
        assert_eq!(clock.advance_millis(250).millis(), 1_250);
        assert_eq!(given_away.now().millis(), 1_250);
        clock.set(Timestamp::from_millis(10));
        assert_eq!(given_away.now().millis(), 10);
    }
}
