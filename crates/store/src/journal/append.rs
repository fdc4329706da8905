//! How a leader appends: fenced. Rows of a leader that was succeeded, or that does not know the
//! last row, are refused.

use domain::time::Timestamp;
use uuid::Uuid;

use super::Row;
use crate::error::StoreError;

/// The right to append: an epoch, and the holder that was drawn for it. Two take-overs can have the
/// same epoch, after a failover that lost one; they never have the same holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// The take-over.
    pub epoch: u64,
    /// Drawn for it.
    pub holder: Uuid,
}

/// The leadership as it stands in the database. The leader counts the beat up while it lives: that
/// it stands still is all that others see of a leader that is gone. No clock is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The leader.
    pub leader: Leader,
    /// How often it was renewed.
    pub beat: u64,
}

/// How long a leadership stands still before another server takes it: four renewals that did not
/// come.
pub const PATIENCE_MILLIS: i64 = 4_000;

/// A server that waits for the leadership, by its own clock.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    seen: Option<Leadership>,
    since: Timestamp,
}

impl Waiting {
    /// Nothing was seen yet.
    pub const fn new(now: Timestamp) -> Self {
        Self { seen: None, since: now }
    }

    /// Looks at the leadership. Whether it may be taken, from the one who was seen.
    pub fn looks(&mut self, found: Option<Leadership>, now: Timestamp) -> bool {
        if found != self.seen {
            (self.seen, self.since) = (found, now);
        }
        found.is_none() || now.millis().saturating_sub(self.since.millis()) >= PATIENCE_MILLIS
    }
}

/// Why rows were not appended, as far as it is known.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The answer was lost: the rows may have been appended. Sending the same rows again decides.
    #[error("the journal's answer was lost: {0}")]
    Lost(String),
    /// Another server leads, or has appended. Nothing was appended, now or ever.
    #[error("another server leads")]
    Deposed,
    /// Nothing was appended, unless it is [`StoreError::OutcomeUnknown`]: then the process stops.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// How rows were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// They are there now.
    Now,
    /// They were there before, from an append whose answer was lost. Whether the leader still leads
    /// is not known by that.
    Before,
}

/// A journal.
pub trait Journal {
    /// Appends rows, all or none. They are durable afterwards. The first must follow the last row.
    fn append(&mut self, leader: Leader, rows: &[Row]) -> Result<Appended, AppendError>;

    /// Makes a server the leader, if the leadership is still as it was seen. It may append then,
    /// and no other.
    fn take_over(
        &mut self,
        seen: Option<Leadership>,
        holder: Uuid,
    ) -> Result<Option<Leader>, StoreError>;

    /// Counts the beat of a leader up. Whether it still leads.
    fn renew(&mut self, leader: Leader) -> Result<bool, StoreError>;

    /// The leadership of now; nothing before the first.
    fn leadership(&mut self) -> Result<Option<Leadership>, StoreError>;

    /// Whether a leader still leads.
    fn leads(&mut self, leader: Leader) -> Result<bool, StoreError> {
        Ok(self.leadership()?.is_some_and(|found| found.leader == leader))
    }

    /// The rows behind a number, in order, as many as asked for at most.
    fn rows(&mut self, after: u64, max: u32) -> Result<Vec<Row>, StoreError>;
}

mod tests {
    use super::*;

    #[test]
    fn a_leadership_that_stands_still_is_taken_after_four_seconds() {
        let at = Timestamp::from_millis;
        let leader = Leader { epoch: 1, holder: Uuid::from_u128(1) };
        let beat = |beat| Some(Leadership { leader, beat });
        let mut waiting = Waiting::new(at(0));
        assert!(waiting.looks(None, at(0)), "there is none");
        assert!(!waiting.looks(beat(1), at(10_000)), "it is seen for the first time");
        assert!(!waiting.looks(beat(1), at(13_999)));
        assert!(!waiting.looks(beat(2), at(14_000)), "it lives");
        assert!(!waiting.looks(beat(2), at(17_999)));
        assert!(waiting.looks(beat(2), at(18_000)));
        let next = Leader { epoch: 2, ..leader };
        let other = Some(Leadership { leader: next, beat: 2 });
        assert!(!waiting.looks(other, at(18_001)), "another has taken it");
    }
}
