//! The write lock: one row that a transaction which writes locks first, so that batches of all
//! servers run one after the other.

use std::time::Duration;

/// How long a commit may take: one that waits for a standby far away is no reason to ask whether it
/// happened.
pub(super) const COMMIT_TIME: Duration = Duration::from_secs(6);

/// Begins to write. Behind the lock, each statement sees everything that was committed before.
pub(super) const BEGIN: &[&str] =
    &["begin isolation level read committed read write", "select one from write_lock for update"];

pub(super) const COMMIT: &str = "commit";
