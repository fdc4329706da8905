//! A commit whose answer was lost: the row that it appended shows whether it happened.

use std::time::{Duration, Instant};

use super::End;
use super::tail;
use crate::error::StoreError;
use crate::pause::pause;
use crate::sql::{Connection, Value};

/// How long a lost commit is looked for, from its beginning: longer than a failover takes, and no
/// longer than a caller waits who can ask again. One more look may take some seconds.
const FIND_TIME: Duration = Duration::from_secs(8);

/// The pause between two tries.
const FIND_PAUSE: Duration = Duration::from_millis(250);

/// Writes without changing anything.
pub(crate) const CONFIRM: &str = "update meta set value = value where name = $1";

/// Commits a transaction that appends rows up to `end`, if it appends any. If the answer is lost,
/// finds out whether they are there: [`StoreError::Conflict`] says that they are not, and
/// [`StoreError::Unavailable`] that it cannot be seen.
pub(super) fn commit(connection: &mut dyn Connection, end: Option<End>) -> Result<(), StoreError> {
    #[expect(clippy::disallowed_methods, reason = "it is how long we wait, not what is true")]
    let start = Instant::now();
    let lost = match connection.commit() {
        Err(StoreError::OutcomeUnknown(lost)) if connection.is_remote() => lost,
        committed => return committed,
    };
    let Some(end) = end else { return Err(not_there()) };
    tracing::warn!(error = lost, row = end.seq, "answer to a commit lost, looking for its row");
    loop {
        match is_there(connection, end) {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(not_there()),
            Err(error) => {
                tracing::warn!(%error, "outcome of a commit not seen yet");
                if start.elapsed() > FIND_TIME {
                    return Err(StoreError::Unavailable(lost));
                }
                pause(FIND_PAUSE);
            }
        }
    }
}

fn not_there() -> StoreError {
    StoreError::Conflict("the connection was lost before the commit".to_owned())
}

/// Whether a row is in the journal.
///
/// The lock keeps every other commit away meanwhile, and waits for one that is under way. A row is
/// written again, and that commit takes as long as the database needs to make sure of everything
/// before it: after a standby was waited for in vain, a row that is seen may not be safe yet.
fn is_there(connection: &mut dyn Connection, end: End) -> Result<bool, StoreError> {
    connection.begin()?;
    let is_there = tail::has(connection, end)?;
    connection.execute(CONFIRM, &[Value::name("database")])?;
    connection.commit()?;
    Ok(is_there)
}
