//! Waiting for another process, which cannot tell us when it is done.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often we look: far shorter than anything we wait for, and far longer than a look takes.
const POLL: Duration = Duration::from_millis(5);

/// Looks until `look` gives something.
///
/// # Errors
///
/// If `look` fails, or gives nothing for as long as `limit`.
#[expect(clippy::disallowed_methods, reason = "other processes take real time")]
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > limit {
            bail!("not within {} s: {what}", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}
