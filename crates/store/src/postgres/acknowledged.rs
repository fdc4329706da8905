//! Commits that the database has acknowledged to this node, so that their loss is noticed: after a
//! failover to a standby that had fallen behind, or a restore under a server that runs.
//!
//! Each commit leaves its epoch in a row of its node. A database with a lower epoch is an older
//! one, and the commits that it lacks are those with higher epochs. The payments that they made or
//! changed are remembered here and named in the log.

use std::collections::{BTreeSet, VecDeque};

use domain::id::TransactionId;
use uuid::Uuid;

use crate::sql::{Change, TRANSACTIONS, Value, Write};

/// Commits that are remembered: those of some seconds of full load, with their payments some
/// megabytes. A standby that is further behind should not be promoted.
const COMMITS_MAX: usize = 2_048;

/// Payments that a line of the log names: some two thousand characters.
const NAMED_IN_LINE: usize = 40;

/// A commit that was acknowledged: its epoch, and the payments that it made and changed.
#[derive(Debug, Default)]
struct Commit {
    epoch: i64,
    new: Vec<Uuid>,
    changed: Vec<Uuid>,
}

/// The latest commits that were acknowledged, and the one that is under way.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    commits: VecDeque<Commit>,
    /// The epoch of the last commit that is not remembered any more.
    forgotten: i64,
    under_way: Commit,
}

impl Acknowledged {
    /// A transaction begins in a database whose last commit of this node has this epoch. Commits
    /// that it lacks are logged.
    pub(super) fn begin_behind(&mut self, epoch: i64) {
        if let Some(missing) = self.missing_behind(epoch) {
            missing.log();
        }
        self.under_way = Commit::default();
    }

    /// The transaction under way changes rows.
    pub(super) fn write(&mut self, writes: &[Write]) {
        for Write { shape, change, rows } in writes {
            if shape.table != TRANSACTIONS || *change == Change::Delete {
                continue;
            }
            // The key is the first column.
            let ids = rows.iter().filter_map(|row| match row.first() {
                Some(Value::Bytes(id)) => Uuid::from_slice(id).ok(),
                _ => None,
            });
            let Commit { new, changed, .. } = &mut self.under_way;
            if *change == Change::Insert { new } else { changed }.extend(ids);
        }
    }

    /// The transaction under way was acknowledged, with its epoch.
    pub(super) fn commit(&mut self, epoch: i64) {
        self.commits.push_back(Commit { epoch, ..std::mem::take(&mut self.under_way) });
        if self.commits.len() > COMMITS_MAX
            && let Some(oldest) = self.commits.pop_front()
        {
            self.forgotten = oldest.epoch;
        }
    }

    /// The commits that a database lacks whose last commit of this node has this epoch; `None` if
    /// it has all. They are returned once.
    fn missing_behind(&mut self, epoch: i64) -> Option<Missing> {
        let there = self.commits.partition_point(|commit| commit.epoch <= epoch);
        let lost = self.commits.split_off(there);
        if lost.is_empty() {
            return None;
        }
        let new: BTreeSet<_> = lost.iter().flat_map(|commit| &commit.new).copied().collect();
        let changed = lost.iter().flat_map(|commit| &commit.changed).copied();
        let changed = changed.filter(|payment| !new.contains(payment)).collect();
        let is_all = self.forgotten <= epoch;
        Some(Missing { commits: lost.len(), new, changed, is_all })
    }
}

/// Acknowledged commits that a database lacks.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    /// How many commits, as far as they are remembered.
    commits: usize,
    /// Payments that they made.
    new: BTreeSet<Uuid>,
    /// Payments that they changed and had not made.
    changed: BTreeSet<Uuid>,
    /// Whether nothing but these is missing.
    is_all: bool,
}

impl Missing {
    fn log(&self) {
        metrics::counter!("switchyard_missing_commits_total").increment(self.commits as u64);
        tracing::error!(
            commits = self.commits,
            payments = self.new.len(),
            changed = self.changed.len(),
            is_all = self.is_all,
            "the database lacks what it had acknowledged: it is an older one, such as a standby \
             that had fallen behind. The payments of these commits follow; compare them with what \
             clients and rails know (docs/postgresql.md)"
        );
        let lines = [(&self.new, "made"), (&self.changed, "changed")];
        for (payments, what) in lines {
            let payments: Vec<_> =
                payments.iter().map(|id| TransactionId::from_uuid(*id).to_string()).collect();
            for payments in payments.chunks(NAMED_IN_LINE) {
                let payments = payments.join(" ");
                tracing::error!(what, payments, "acknowledged, and not in the database");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::transaction::Transaction;

    use super::*;
    use crate::record::Record as _;

    fn write(change: Change, ids: &[u128]) -> Write {
        let row = |id: &u128| vec![Value::from(Uuid::from_u128(*id)), Value::from(7_i64)];
        Write { shape: Transaction::shape(), change, rows: ids.iter().map(row).collect() }
    }

    fn uuids(ids: impl IntoIterator<Item = u128>) -> BTreeSet<Uuid> {
        ids.into_iter().map(Uuid::from_u128).collect()
    }

    #[test]
    fn what_an_older_database_lacks_is_missed_once() {
        let mut acknowledged = Acknowledged::default();
        for (epoch, new, changed) in [(3, 1, 0), (5, 2, 1), (9, 3, 2)] {
            acknowledged.under_way = Commit::default();
            acknowledged.write(&[write(Change::Insert, &[new]), write(Change::Upsert, &[changed])]);
            acknowledged.commit(epoch);
        }
        // Numbers of other nodes lie between ours.
        assert_eq!(acknowledged.missing_behind(9), None);
        assert_eq!(acknowledged.missing_behind(12), None);
        let missing = Missing { commits: 2, new: uuids([2, 3]), changed: uuids([1]), is_all: true };
        assert_eq!(acknowledged.missing_behind(4), Some(missing));
        assert_eq!(acknowledged.missing_behind(4), None);
        acknowledged.under_way = Commit::default();
        acknowledged.commit(5);
        let missing = Missing { commits: 2, new: uuids([1]), changed: uuids([0]), is_all: true };
        assert_eq!(acknowledged.missing_behind(0), Some(missing));
    }

    #[test]
    fn what_was_rolled_back_or_is_of_other_tables_is_not_missed() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.write(&[write(Change::Insert, &[1])]);
        acknowledged.under_way = Commit::default();
        let rows = vec![vec![Value::from(Uuid::from_u128(2))]];
        let shape = domain::customer::Customer::shape();
        acknowledged.write(&[Write { shape, change: Change::Insert, rows }]);
        acknowledged.commit(1);
        let missing = Missing { commits: 1, new: uuids([]), changed: uuids([]), is_all: true };
        assert_eq!(acknowledged.missing_behind(0), Some(missing));
    }

    #[test]
    fn it_says_when_more_is_missing_than_is_remembered() {
        let mut acknowledged = Acknowledged::default();
        let epochs = COMMITS_MAX as i64 + 2;
        (1..=epochs).for_each(|epoch| acknowledged.commit(epoch));
        let missing = acknowledged.missing_behind(1).expect("all but one are missing");
        assert_eq!((missing.commits, missing.is_all), (COMMITS_MAX, false));
        assert_eq!(acknowledged.missing_behind(1), None);
    }
}
