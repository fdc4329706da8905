//! The journal: what happened, in order, never edited.
//!
//! A row has the change sets of a commit, sealed, and is chained to the row before: its hash is
//! over that row's hash and everything of its own. So [`Chain::take`] names a row that was edited,
//! removed, swapped or added. A journal that is cut off at its end shows by the tables: they follow
//! a row that it does not have.
//!
//! [`Journal`] is the one way to append. It is fenced: rows of a leader that was succeeded, or that
//! does not know the last row, are refused.

pub(crate) mod change_set;
#[cfg(test)]
mod commit;
#[cfg(test)]
mod contract;
mod frames;
#[cfg(test)]
mod memory;

use std::fmt;

use domain::time::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::error::StoreError;

/// SHA-256 of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowHash(pub [u8; 32]);

impl RowHash {
    /// The hash before the first row.
    pub const NONE: Self = Self([0; 32]);
}

impl fmt::Debug for RowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number, dense from 1.
    pub seq: u64,
    /// The take-over under which it was appended.
    pub epoch: u64,
    /// When it was made, by the leader's clock. It never goes back.
    pub at: Timestamp,
    /// The hash of the row before.
    pub previous: RowHash,
    /// Its hash.
    pub hash: RowHash,
    /// The change sets, sealed.
    pub body: Vec<u8>,
}

/// A place in the journal: the last row that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Its number; 0 before the first.
    pub seq: u64,
    /// Its hash.
    pub hash: RowHash,
}

impl End {
    /// Before the first row.
    pub const START: Self = Self { seq: 0, hash: RowHash::NONE };
}

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

/// A number as databases keep it.
pub(crate) fn number(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::Engine(format!("{value} is too large")))
}

/// Why a row does not follow the one before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Rows are missing.
    #[error("row {found} of the journal follows row {after}: rows between them are missing")]
    Gap {
        /// The row before.
        after: u64,
        /// The row that came.
        found: u64,
    },
    /// The row is not the one that was appended, or belongs to another database.
    #[error("row {0} of the journal was changed, or is another database's")]
    Changed(u64),
    /// The row was appended behind another than the one that stands before it.
    #[error("row {0} of the journal does not belong behind the row before it")]
    Moved(u64),
}

/// The chain of a database's rows.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    database: Uuid,
    end: End,
    epoch: u64,
    at: Timestamp,
}

impl Chain {
    /// The chain before the first row.
    pub const fn new(database: Uuid) -> Self {
        Self { database, end: End::START, epoch: 0, at: Timestamp::from_millis(0) }
    }

    /// The chain behind a row that is known to be this database's.
    pub const fn behind(database: Uuid, row: &Row) -> Self {
        let end = End { seq: row.seq, hash: row.hash };
        Self { database, end, epoch: row.epoch, at: row.at }
    }

    /// The last row.
    pub const fn end(&self) -> End {
        self.end
    }

    /// The next row, with this body. Its time is never before that of the last row.
    pub fn next(&self, epoch: u64, now: Timestamp, body: Vec<u8>) -> Row {
        let (seq, previous) = (self.end.seq + 1, self.end.hash);
        let row = Row { seq, epoch, at: now.max(self.at), previous, hash: RowHash::NONE, body };
        Row { hash: self.hash(&row), ..row }
    }

    /// Goes on to a row, which must be the next.
    pub fn take(&mut self, row: &Row) -> Result<(), Broken> {
        if row.seq != self.end.seq + 1 {
            return Err(Broken::Gap { after: self.end.seq, found: row.seq });
        }
        if row.hash != self.hash(row) {
            return Err(Broken::Changed(row.seq));
        }
        if row.previous != self.end.hash || row.epoch < self.epoch || row.at < self.at {
            return Err(Broken::Moved(row.seq));
        }
        self.end = End { seq: row.seq, hash: row.hash };
        (self.epoch, self.at) = (row.epoch, row.at);
        Ok(())
    }

    /// The hash of a row of this database: over numbers of a fixed length, and the body last.
    fn hash(&self, row: &Row) -> RowHash {
        let mut digest = Sha256::new();
        digest.update(b"switchyard journal row 1");
        digest.update(self.database.as_bytes());
        digest.update(row.seq.to_be_bytes());
        digest.update(row.epoch.to_be_bytes());
        digest.update(row.at.millis().to_be_bytes());
        digest.update(row.previous.0);
        digest.update(&row.body);
        RowHash(digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATABASE: Uuid = Uuid::from_u128(7);

    /// A journal of so many rows.
    fn rows(count: usize) -> Vec<Row> {
        let mut chain = Chain::new(DATABASE);
        (0..count)
            .map(|number| {
                // A clock that goes back now and then.
                let now = Timestamp::from_millis(1_000 - (number as i64 % 3));
                let row = chain.next(1 + number as u64 / 4, now, vec![number as u8; number]);
                chain.take(&row).expect("the next row");
                row
            })
            .collect()
    }

    fn check(rows: &[Row]) -> Result<End, Broken> {
        let mut chain = Chain::new(DATABASE);
        rows.iter().try_for_each(|row| chain.take(row))?;
        Ok(chain.end())
    }

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

    #[test]
    fn a_whole_journal_holds() {
        let rows = rows(12);
        let last = rows.last().expect("a row");
        assert_eq!(check(&rows), Ok(End { seq: 12, hash: last.hash }));
        assert!(rows.is_sorted_by_key(|row| row.at), "time never goes back");
    }

    proptest! {
        #[test]
        fn a_changed_row_is_named(number in 0_usize..12, part in 0_u8..5, bit in 0_u8..8) {
            let mut rows = rows(12);
            let (row, mask) = (&mut rows[number], 1 << bit);
            match part {
                0 => row.epoch ^= u64::from(mask),
                1 => row.at = row.at.plus_millis(i64::from(mask)),
                2 => row.previous.0[3] ^= mask,
                3 => row.hash.0[3] ^= mask,
                _ => row.body.push(mask),
            }
            prop_assert_eq!(check(&rows), Err(Broken::Changed(number as u64 + 1)));
        }

        #[test]
        fn removed_and_swapped_rows_are_named(number in 0_usize..11) {
            let whole = rows(12);
            let seq = number as u64 + 1;
            let mut rows = whole.clone();
            rows.remove(number);
            prop_assert_eq!(check(&rows), Err(Broken::Gap { after: seq - 1, found: seq + 1 }));
            let mut rows = whole.clone();
            rows.swap(number, number + 1);
            prop_assert_eq!(check(&rows), Err(Broken::Gap { after: seq - 1, found: seq + 1 }));
            // Numbers that are put right do not help.
            rows[number].seq = seq;
            rows[number + 1].seq = seq + 1;
            prop_assert_eq!(check(&rows), Err(Broken::Changed(seq)));
        }

        #[test]
        fn a_row_of_another_journal_is_named(number in 1_usize..12) {
            let whole = rows(12);
            let seq = number as u64 + 1;
            // Of another database, with the same history.
            let mut other = Chain::new(Uuid::from_u128(8));
            other.end = End { seq: number as u64, hash: whole[number - 1].hash };
            let mut rows = whole.clone();
            rows[number] = other.next(9, rows[number].at, vec![1]);
            prop_assert_eq!(check(&rows), Err(Broken::Changed(seq)));
            // Of this database, with another history.
            let mut fork = Chain::new(DATABASE);
            fork.end = End { seq: number as u64, hash: RowHash([1; 32]) };
            let mut rows = whole;
            rows[number] = fork.next(9, rows[number].at, vec![1]);
            prop_assert_eq!(check(&rows), Err(Broken::Moved(seq)));
        }
    }
}
