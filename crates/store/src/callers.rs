//! The count of changes of callers' rights. A cache of tokens compares it, so that a token is
//! refused from the moment at which its revocation is answered.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count of commits that changed a token or a platform, or may have.
#[derive(Debug, Default)]
pub struct Callers {
    changes: AtomicU64,
}

impl Callers {
    /// The count. Read it before the database: what is read then is at least as new.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Counts a commit, of this server or of one that carried something out for it.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}
