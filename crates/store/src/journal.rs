//! The journal: what happened, in order, never edited.
//!
//! A row has the change sets of a commit, sealed, and is chained to the row before: its hash is
//! over that row's hash and everything of its own. So [`Chain::take`] names a row that was edited,
//! removed, swapped or added. A journal that is cut off at its end shows by the tables: they follow
//! a row that it does not have.
//!
//! A batch appends its rows in one transaction (`tail`), and the tables follow a moment later
//! (`projector`).

pub(crate) mod acknowledged;
pub(crate) mod bodies;
pub(crate) mod change_set;
pub(crate) mod data_keys;
mod days;
mod frames;
pub(crate) mod lost_commit;
pub(crate) mod tail;

use std::fmt;

use domain::time::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use self::frames::Place;
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

    /// The place of the next row. Its time is never before that of the last row.
    pub fn place(&self, epoch: u64, now: Timestamp) -> Place {
        Place { database: self.database, previous: self.end, epoch, at: now.max(self.at) }
    }

    /// The row at a place of this chain, with this body.
    pub fn row(&self, Place { previous, epoch, at, .. }: Place, body: Vec<u8>) -> Row {
        let (seq, hash) = (previous.seq + 1, RowHash::NONE);
        let row = Row { seq, epoch, at, previous: previous.hash, hash, body };
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
                let place = chain.place(1 + number as u64 / 4, now);
                let row = chain.row(place, vec![number as u8; number]);
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
            rows[number] = other.row(other.place(9, rows[number].at), vec![1]);
            prop_assert_eq!(check(&rows), Err(Broken::Changed(seq)));
            // Of this database, with another history.
            let mut fork = Chain::new(DATABASE);
            fork.end = End { seq: number as u64, hash: RowHash([1; 32]) };
            let mut rows = whole;
            rows[number] = fork.row(fork.place(9, rows[number].at), vec![1]);
            prop_assert_eq!(check(&rows), Err(Broken::Moved(seq)));
        }
    }
}
