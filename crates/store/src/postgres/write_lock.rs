//! The write lock: one row that a transaction that writes locks first, and commit epochs.
//!
//! The row of node 0 is the lock, with the epoch of the last commit of any node. Each node has a
//! row with the epoch of its own last commit, by which it finds out whether a commit happened.

use std::time::{Duration, Instant};

use super::client::{Answer, Client, Query};
use crate::error::StoreError;
use crate::pause::pause;

/// How long a commit may take: one that waits for a standby far away is no reason to ask whether it
/// happened.
const COMMIT_TIME: Duration = Duration::from_secs(6);

/// How long a lost commit is looked for: longer than a failover takes, and no longer than a caller
/// waits who can ask again. One more look may take some seconds.
const FIND_TIME: Duration = Duration::from_secs(8);

/// The pause between two tries.
const FIND_PAUSE: Duration = Duration::from_millis(250);

pub(super) const BEGIN: &str = "begin isolation level read committed read write";
pub(super) const COMMIT: &str = "commit";

/// The node whose row is the lock.
const LOCK: i64 = 0;

/// Takes the write lock, and reads the last epoch of all nodes and of this one.
pub(super) const TAKE: &str =
    "select node, epoch from write_lock where node in ($1, $2) order by node for update";

/// Leaves the epoch of a commit.
pub(super) const LEAVE: &str = "insert into write_lock (node, epoch) values ($1, $3), ($2, $3) \
    on conflict (node) do update set epoch = excluded.epoch";

/// Writes without changing anything.
pub(super) const TOUCH: &str = "update write_lock set epoch = epoch where node = $1";

/// Takes the write lock and reads nothing.
pub(super) const HOLD: &str = "select epoch from write_lock where node = 0 for update";

/// Commit epochs that a node finds when it has the lock.
pub(super) struct Epochs {
    /// Of the last commit of any node.
    pub(super) last: i64,
    /// Of the last commit of this node; 0 if there was none.
    pub(super) ours: i64,
}

impl Epochs {
    /// From the answers to statements, the last of which is [`TAKE`].
    fn of(answers: &[Answer]) -> Result<Self, StoreError> {
        let (mut last, mut ours) = (None, 0);
        for row in answers.last().into_iter().flat_map(|answer| &answer.rows) {
            let epoch = row.try_get(1)?;
            match row.try_get(0)? {
                LOCK => last = Some(epoch),
                _ => ours = epoch,
            }
        }
        let last = last.ok_or_else(|| {
            let what = "the row of the write lock is missing".to_owned();
            StoreError::Corrupt { place: "write_lock".to_owned(), what }
        })?;
        Ok(Self { last, ours })
    }
}

/// A number that identifies a write connection, on every server and for all time.
pub(super) fn new_node() -> Result<i64, StoreError> {
    #[expect(clippy::disallowed_methods, reason = "it is a name, and nothing is decided by it")]
    let random = getrandom::u64()
        .map_err(|error| StoreError::Engine(format!("no random bits from the system: {error}")))?;
    // Half of the numbers are positive, which is plenty.
    Ok(i64::try_from(random >> 1).unwrap_or(i64::MAX).max(LOCK + 1))
}

/// Begins a transaction with these statements and takes the write lock.
pub(super) fn take(client: &mut Client, begin: &[&str], node: i64) -> Result<Epochs, StoreError> {
    let begin = begin.iter().map(|sql| Query::plain(sql));
    let queries: Vec<_> = begin.chain([Query::new(TAKE, [LOCK, node])]).collect();
    Epochs::of(&client.run(&queries)?)
}

/// Commits a transaction that has the lock, with its epoch.
pub(super) fn commit(client: &mut Client, node: i64, epoch: i64) -> Result<(), StoreError> {
    let leave = Query::new(LEAVE, [LOCK, node, epoch]);
    client.commit(COMMIT_TIME, &[leave, Query::plain(COMMIT)])
}

/// Finds out whether a commit happened whose answer was lost. The error is `lost` if that cannot be
/// seen.
pub(super) fn find_out(
    client: &mut Client,
    node: i64,
    epoch: i64,
    lost: StoreError,
) -> Result<(), StoreError> {
    tracing::warn!(error = %lost, "answer to a commit lost, looking for its epoch");
    #[expect(clippy::disallowed_methods, reason = "it is how long we wait, not what is true")]
    let start = Instant::now();
    loop {
        match is_there(client, node, epoch) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let what = "the connection was lost before the commit".to_owned();
                return Err(StoreError::Conflict(what));
            }
            Err(error) => {
                tracing::warn!(%error, "outcome of a commit not seen yet");
                // The next look begins its own transaction.
                client.disconnect();
                if start.elapsed() > FIND_TIME {
                    return Err(lost);
                }
                pause(FIND_PAUSE);
            }
        }
    }
}

/// Whether the commit of an epoch of ours is in the database.
///
/// The lock keeps every other commit away meanwhile. The row is written again, and that commit
/// takes as long as the database needs to make sure of everything before it: after a standby was
/// waited for in vain, a row that is seen may not be safe yet.
fn is_there(client: &mut Client, node: i64, epoch: i64) -> Result<bool, StoreError> {
    client.connect()?;
    // The first commit of a node inserts its row. A statement that began before does not see it,
    // however long it waits: the wait has a statement of its own.
    let Epochs { ours, .. } = take(client, &[BEGIN, HOLD], node)?;
    client.commit(COMMIT_TIME, &[Query::new(TOUCH, [LOCK]), Query::plain(COMMIT)])?;
    Ok(ours == epoch)
}
