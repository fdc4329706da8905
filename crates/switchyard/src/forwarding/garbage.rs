//! Requests that no server has sent: anybody who reaches the listener can send them, so they have
//! one line of the log a minute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Refused requests since the last line, and when that was written.
#[derive(Default)]
pub(super) struct Garbage(Mutex<(u64, Option<Instant>)>);

impl Garbage {
    /// Counts one. How many there were since the last line, if another one is due.
    pub(super) fn count(&self, now: Instant) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (refused, last) = &mut *known;
        *refused += 1;
        if last.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_one_line_that_says_how_many_there_were() {
        let (garbage, began) = (Garbage::default(), super::super::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(garbage.count(at(0)), Some(1), "the first has a line at once");
        for second in 1..60 {
            assert_eq!(garbage.count(at(second)), None);
        }
        assert_eq!(garbage.count(at(60)), Some(60));
        assert_eq!(garbage.count(at(119)), None);
        assert_eq!(garbage.count(at(500)), Some(2));
    }
}
