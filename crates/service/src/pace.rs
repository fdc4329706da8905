//! The pace at which an endpoint or peer is called: a window of concurrent attempts, and pauses
//! as of a circuit breaker.

use domain::delivery::Schedule;
use domain::time::Timestamp;

/// Attempts at one endpoint at a time, at most: enough to fill a fast one, and few enough that one
/// that hangs does not use up the files of this process.
const WINDOW_MAX: usize = 64;

/// Attempts at a time at an endpoint that is not known yet.
const WINDOW_FIRST: usize = 8;

/// Failures in a row after which an endpoint is only probed now and then.
const BROKEN_AFTER: u32 = 5;

/// Failures in a row after which the log says that an endpoint fails. One event that it cannot
/// take, or a start of its server, is no line.
const LOGGED_AFTER: u32 = 3;

/// The state of an endpoint after its last attempts.
pub(crate) struct Pace {
    window: usize,
    failures: u32,
    /// Until when nothing is attempted, as attempts have failed.
    paused_until: Option<Timestamp>,
    /// Until when the endpoint wants to be left alone, whatever it receives meanwhile.
    left_alone_until: Option<Timestamp>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { window: WINDOW_FIRST, failures: 0, paused_until: None, left_alone_until: None }
    }

    pub(crate) fn paused_until(&self) -> Option<Timestamp> {
        self.paused_until.max(self.left_alone_until)
    }

    pub(crate) fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until().is_some_and(|until| now < until)
    }

    /// Whether the endpoint is only probed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures >= BROKEN_AFTER
    }

    /// Whether the log says that the endpoint fails.
    pub(crate) fn is_worth_a_line(&self) -> bool {
        self.failures >= LOGGED_AFTER
    }

    pub(crate) fn window(&self) -> usize {
        if self.is_failing() { 1 } else { self.window }
    }

    /// An attempt was received.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.paused_until = None;
        self.window = (self.window + 1).min(WINDOW_MAX);
    }

    /// An attempt failed. `asked` is how long the endpoint wants to be left alone, in milliseconds.
    pub(crate) fn failed(
        &mut self,
        schedule: &Schedule,
        random: u64,
        asked: Option<i64>,
        now: Timestamp,
    ) {
        self.failures = self.failures.saturating_add(1);
        self.window = (self.window / 2).max(1);
        let more = self.failures.checked_sub(BROKEN_AFTER);
        let pause = more.map(|more| now.plus_millis(schedule.pause_asked(more + 1, random, asked)));
        self.paused_until = self.paused_until.max(pause);
        let asked = asked.map(|_| now.plus_millis(schedule.pause_asked(1, random, asked)));
        self.left_alone_until = self.left_alone_until.max(asked);
    }
}
