//! Clocks: the system's, and one that only moves on demand.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::clock::STEP_ABSORBED_MILLIS;
use domain::time::Timestamp;
use ports::clock::Clock;

/// The system's time of day, in whole milliseconds, as it is and as records have it. Records absorb
/// small steps back, follow larger ones at once, and believe a jump forward once the system has
/// stood by it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The state that every [`SystemClock`] of this process shares.
static SHOWN: Mutex<Option<Reckoning>> = Mutex::new(None);

/// The origin of this process's moments.
static START: LazyLock<Instant> = LazyLock::new(moment);

/// The last step of the system's clock that records have followed: below zero if it went back.
const STEP_GAUGE: &str = "switchyard_clock_step_seconds";

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn moment() -> Instant {
    Instant::now()
}

/// The system's clock, in microseconds.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn system() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn shown(micros: i64) -> Timestamp {
    Timestamp::from_millis(micros.div_euclid(MILLI))
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut reckoning = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Both under the lock, so that one order of readings is everybody's.
        let ran = micros(START.elapsed());
        let read = system();
        let reckoning = reckoning.get_or_insert_with(|| {
            metrics::gauge!(STEP_GAUGE).set(0);
            Reckoning::new(read, ran)
        });
        let Shown { at, step } = reckoning.at(read, ran);
        if let Some(step) = step {
            log_step(step);
        }
        shown(at)
    }

    fn machine(&self) -> Timestamp {
        shown(system())
    }

    fn uptime(&self) -> Duration {
        START.elapsed()
    }
}

/// Says that records follow a step of so many microseconds.
fn log_step(step: i64) {
    let seconds = step as f64 / SECOND as f64;
    metrics::gauge!(STEP_GAUGE).set(seconds);
    if step < 0 {
        tracing::warn!(seconds, "the machine's clock was set back, and record times follow it");
    } else {
        tracing::warn!(seconds, "the machine's clock jumped forward, and record times follow it");
    }
}

/// Microseconds of a millisecond.
const MILLI: i64 = 1_000;

/// Microseconds of a second.
const SECOND: i64 = 1_000 * MILLI;

/// The largest step back that is absorbed.
const ABSORBED: i64 = STEP_ABSORBED_MILLIS * MILLI;

/// The largest step forward of the system's clock that is believed at once: corrections over a
/// network are far smaller, and so is what a clock loses while it is not corrected.
const BELIEVED: i64 = 60 * SECOND;

/// For how long it must stand by a larger one: who sets a clock wrong by an hour notices.
const DOUBTED_FOR: i64 = 10 * SECOND;

/// By how much two readings may differ that agree: a clock that is being corrected drifts.
const AGREES: u64 = SECOND.unsigned_abs();

/// The time of records from two clocks: one that people and networks set, and one that only runs
/// (reliability.md 3.4, F24).
///
/// - Set forward by more than a minute, the first one is not believed before it has stood by it for
///   some seconds: every quote and every deadline would be over.
/// - Set back by a few seconds, it is waited for at half of the speed, so that time does not go
///   back and never stands still.
/// - Set back by more, it is followed at once: the time before was wrong.
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

/// A reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    at: i64,
    /// The step that it follows.
    step: Option<i64>,
}

impl Reckoning {
    fn new(read: i64, ran: i64) -> Self {
        Self { shown: read, ran, doubt: None }
    }

    /// The time when one clock shows `read` and the other has run for `ran`.
    fn at(&mut self, read: i64, ran: i64) -> Shown {
        let passed = ran.saturating_sub(self.ran).max(0);
        let expected = self.shown.saturating_add(passed);
        let step = read.saturating_sub(expected);
        let is_followed =
            step < -ABSORBED || (step > BELIEVED && self.is_sure(read.saturating_sub(ran), ran));
        if is_followed {
            *self = Self::new(read, ran);
            return Shown { at: read, step: Some(step) };
        }
        let at = if step < 0 {
            read.max(self.shown.saturating_add(passed / 2))
        } else if step <= BELIEVED {
            read
        } else {
            expected
        };
        if step <= BELIEVED {
            self.doubt = None;
        }
        // Steps below the shown resolution are not lost.
        if at > self.shown {
            (self.shown, self.ran) = (at, ran);
        }
        Shown { at, step: None }
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

/// A machine whose clock stands still until it is moved, for tests and the simulator. Clones are
/// the same clock: keep one to move it and give the other away.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Manual>>);

#[derive(Debug)]
struct Manual {
    machine: i64,
    ran: i64,
    reckoning: Reckoning,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        let machine = now.millis().saturating_mul(MILLI);
        let reckoning = Reckoning::new(machine, 0);
        Self(Arc::new(Mutex::new(Manual { machine, ran: 0, reckoning })))
    }

    fn state(&self) -> MutexGuard<'_, Manual> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the machine's clock, as a person or a network does: no time passes.
    pub fn set(&self, now: Timestamp) {
        self.state().machine = now.millis().saturating_mul(MILLI);
    }

    /// Lets so many milliseconds pass and answers the machine's new time.
    pub fn advance_millis(&self, millis: i64) -> Timestamp {
        let (mut state, micros) = (self.state(), millis.saturating_mul(MILLI));
        state.machine = state.machine.saturating_add(micros);
        state.ran = state.ran.saturating_add(micros);
        shown(state.machine)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let Manual { machine, ran, reckoning } = &mut *self.state();
        shown(reckoning.at(*machine, *ran).at)
    }

    fn machine(&self) -> Timestamp {
        shown(self.state().machine)
    }

    fn uptime(&self) -> Duration {
        Duration::from_micros(self.state().ran.unsigned_abs())
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
        assert!(SystemClock.machine().millis().abs_diff(last.millis()) < 60_000);
        assert!(SystemClock.uptime() <= SystemClock.uptime());
    }

    const HOUR: i64 = 3_600 * SECOND;

    /// The shown time, where one clock is `ahead` of the other, each time after so many seconds;
    /// and the steps that are followed.
    fn shown_at(steps: &[(i64, i64)]) -> (Vec<i64>, Vec<i64>) {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        let mut followed = Vec::new();
        let steps = steps.iter().map(|(after, ahead)| {
            ran += after * SECOND;
            let Shown { at, step } = reckoning.at(ran + ahead, ran);
            followed.extend(step);
            at - ran
        });
        (steps.collect(), followed)
    }

    #[test]
    fn small_corrections_are_believed_at_once() {
        let steps = [(1, 0), (1, 20 * SECOND), (1, 80 * SECOND), (0, 80 * SECOND)];
        let expected = vec![0, 20 * SECOND, 80 * SECOND, 80 * SECOND];
        assert_eq!(shown_at(&steps), (expected, vec![]));
    }

    #[test]
    fn a_jump_is_believed_once_the_clock_has_stood_by_it() {
        // Forward and back, forward to somewhere else, and there to stay.
        let doubted = [(1, HOUR), (9, HOUR), (1, 0), (1, HOUR), (5, 2 * HOUR), (9, 2 * HOUR)];
        assert_eq!(shown_at(&doubted), (vec![0; 6], vec![]));
        let stays = [(1, 2 * HOUR), (1, 2 * HOUR + SECOND)];
        let (shown, followed) = shown_at(&[&doubted[..], &stays].concat());
        assert_eq!(shown[6..], [2 * HOUR, 2 * HOUR + SECOND]);
        assert_eq!(followed, [2 * HOUR]);
    }

    #[test]
    fn a_clock_that_is_set_right_is_followed_at_once() {
        let days = 40 * 24 * HOUR;
        let (shown, followed) = shown_at(&[(0, days), (10, days), (1, 0), (1, 0), (1, -HOUR)]);
        assert_eq!(shown, [0, days, 0, 0, -HOUR]);
        assert_eq!(followed, [days, -days, -HOUR]);
    }

    #[test]
    fn a_small_step_back_is_absorbed_and_time_goes_on() {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        let mut last = 0;
        // Every microsecond at first: none of them may be lost.
        for _ in 0..SECOND {
            ran += 1;
            let Shown { at, step } = reckoning.at(ran - ABSORBED, ran);
            assert!(at >= last && step.is_none());
            last = at;
        }
        assert_eq!(last, SECOND / 2);
        ran += 2 * ABSORBED;
        let caught_up = Shown { at: ran - ABSORBED, step: None };
        assert_eq!(reckoning.at(ran - ABSORBED, ran), caught_up, "it has come to that time again");
        // Small steps that add up are followed.
        let step = reckoning.at(ran - 2 * ABSORBED, ran).step;
        assert_eq!(
            (step, reckoning.at(ran - 2 * ABSORBED - 1, ran).step),
            (None, Some(-ABSORBED - 1))
        );
    }

    #[test]
    fn whatever_the_system_says_time_is_never_far_ahead_of_it() {
        let (mut reckoning, mut ran) = (Reckoning::new(0, 0), 0);
        for read in [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MAX, HOUR, i64::MIN, 5] {
            ran += 6 * SECOND;
            let Shown { at, .. } = reckoning.at(read, ran);
            assert!(at <= read.saturating_add(ABSORBED), "{at} at {read}");
        }
    }

    #[test]
    fn a_manual_clock_moves_when_asked_to() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let given_away = clock.clone();
        assert_eq!(given_away.now().millis(), 1_000);
        assert_eq!(clock.advance_millis(250).millis(), 1_250);
        assert_eq!(given_away.now().millis(), 1_250);
        clock.set(Timestamp::from_millis(10_000_000));
        assert_eq!(given_away.machine().millis(), 10_000_000);
        assert_eq!(given_away.now().millis(), 1_250, "it may be a mistake");
        clock.advance_millis(10_000);
        assert_eq!(given_away.now().millis(), 10_010_000);
        assert_eq!(given_away.uptime(), Duration::from_millis(10_250));
        clock.set(Timestamp::from_millis(10));
        assert_eq!(given_away.now().millis(), 10);
    }
}
