//! Time.

use domain::time::Timestamp;

/// Tells the time. Read once per request or job step; everything below gets the value.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;
}
