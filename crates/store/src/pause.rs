//! Waiting on a thread of the store's own, or of a command, on which nothing else could go on.

use std::time::Duration;

/// Lets this much time pass. Parking a thread would not: an earlier wait on this thread, such as
/// one for PostgreSQL from within a runtime, may have left a token that ends the next parking at
/// once.
#[expect(clippy::disallowed_methods, reason = "it waits for other processes, which no clock moves")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the time that passes is what is tested")]
    fn no_token_ends_a_pause() {
        let (time, started) = (Duration::from_millis(30), std::time::Instant::now());
        std::thread::current().unpark();
        pause(time);
        assert!(started.elapsed() >= time);
    }
}
