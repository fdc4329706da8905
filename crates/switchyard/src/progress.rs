//! What a long command tells on standard error while it works.

use std::time::{Duration, Instant};

use crate::command::is_for_programs;
use crate::telemetry::say;

/// Often enough to see that it goes on.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// How long a command has been at work.
pub struct Progress {
    started: Instant,
    told: Duration,
}

impl Progress {
    /// Starts counting.
    #[expect(clippy::disallowed_methods, reason = "how long a command takes is told, not used")]
    pub fn start() -> Self {
        Self { started: Instant::now(), told: Duration::ZERO }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints the line now.
    pub fn tell(&mut self, line: &str) {
        self.told = self.elapsed();
        if !is_for_programs() {
            say(line);
        }
    }

    /// Prints the line if nothing was told for a while.
    pub fn tell_sometimes(&mut self, line: impl FnOnce() -> String) {
        if self.elapsed() - self.told >= TOLD_EVERY {
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
