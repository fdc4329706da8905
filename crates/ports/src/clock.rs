//! Time, in three readings.

use std::time::Duration;

use domain::time::Timestamp;

/// Tells the time. Read once per request or job step; everything below gets the value.
pub trait Clock: Send + Sync {
    /// The present instant for records. It follows the machine's clock, and absorbs steps back of
    /// up to [`domain::clock::STEP_ABSORBED_MILLIS`].
    fn now(&self) -> Timestamp;

    /// The machine's clock as it is: for signatures, for time stamps to peers and receivers, and to
    /// check how old something is that comes in.
    fn machine(&self) -> Timestamp;

    /// How long this process has run, by a clock that only runs and that is never set.
    fn uptime(&self) -> Duration;
}
