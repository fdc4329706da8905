//! Progress of a long command on standard error.

use std::time::{Duration, Instant};

use crate::command::is_for_programs;
use crate::telemetry::say;

/// Often enough to see that it goes on.
const PRINT_INTERVAL: Duration = Duration::from_secs(1);

/// The time since a command began.
pub struct Progress {
    started: Instant,
    printed: Duration,
}

impl Progress {
    /// Starts counting.
    #[expect(clippy::disallowed_methods, reason = "how long a command takes is printed, not used")]
    pub fn start() -> Self {
        Self { started: Instant::now(), printed: Duration::ZERO }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints the line now.
    pub fn tell(&mut self, line: &str) {
        self.printed = self.elapsed();
        if !is_for_programs() {
            say(line);
        }
    }

    /// Prints the line if nothing was printed for a while.
    pub fn tell_sometimes(&mut self, line: impl FnOnce() -> String) {
        if self.elapsed() - self.printed >= PRINT_INTERVAL {
            self.tell(&line());
        }
    }
}

/// A size for people.
pub fn size(bytes: u64) -> String {
    let mebibytes_in_tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", mebibytes_in_tenths / 10, mebibytes_in_tenths % 10)
}

/// A time for people.
pub fn seconds(time: Duration) -> String {
    format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_one_decimal() {
        assert_eq!(size(0), "0.0 MiB");
        assert_eq!(size(1_600_000), "1.5 MiB");
        assert_eq!(seconds(Duration::from_millis(12_399)), "12.3 s");
    }
}
