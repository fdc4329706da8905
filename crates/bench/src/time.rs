//! Real time, which is what a benchmark is about.

use std::time::{Duration, Instant};

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures how long things take")]
pub fn now() -> Instant {
    Instant::now()
}

/// Waits. Only the thread that calls it stands still.
#[expect(clippy::disallowed_methods, reason = "a benchmark waits for other processes")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
