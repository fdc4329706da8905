//! What the database has acknowledged to this server, so that it is noticed when it is not there
//! any more: after a failover to a standby that had fallen behind, or a restore under a server that
//! runs.
//!
//! Each commit leaves its epoch in a row of its node. A database whose number is lower than the
//! last that it has acknowledged is an older one, and the commits that it lacks are those with
//! higher numbers: what they did to payments is remembered here and named in the log.

use std::collections::{BTreeSet, VecDeque};

use domain::id::TransactionId;
use domain::transaction::Transaction;
use uuid::Uuid;

use crate::record::Record as _;
use crate::sql::{Change, Value, Write};

/// Commits and payments that are remembered, together: those of some seconds of full load, and
/// 2 MB. A standby that is further behind is one that nobody should promote.
const REMEMBERED_MAX: usize = 65_536;

/// Payments that a line of the log names: some two thousand characters.
const NAMED_IN_LINE: usize = 40;

/// What a commit did to a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Touched {
    payment: Uuid,
    is_new: bool,
}

/// A commit that was acknowledged.
#[derive(Debug)]
struct Commit {
    epoch: i64,
    touched: Vec<Touched>,
}

impl Commit {
    fn size(&self) -> usize {
        1 + self.touched.len()
    }
}

/// The latest commits that were acknowledged, and what is to be the next one.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    commits: VecDeque<Commit>,
    /// How many they and their payments are.
    size: usize,
    /// The number of the last commit that is not remembered any more.
    forgotten: i64,
    /// What the transaction under way has done.
    under_way: Vec<Touched>,
}

impl Acknowledged {
    /// A transaction begins in a database whose last commit of ours has this epoch. Commits that
    /// it lacks are logged.
    pub(super) fn begin_behind(&mut self, epoch: i64) {
        if let Some(missing) = self.missing_behind(epoch) {
            missing.log();
        }
        self.under_way.clear();
    }

    /// It changes rows.
    pub(super) fn write(&mut self, writes: &[Write]) {
        for Write { shape, change, rows } in writes {
            if shape.table != Transaction::TABLE || *change == Change::Delete {
                continue;
            }
            // The key is the first column.
            let ids = rows.iter().filter_map(|row| match row.first() {
                Some(Value::Bytes(id)) => Uuid::from_slice(id).ok(),
                _ => None,
            });
            let is_new = *change == Change::Insert;
            self.under_way.extend(ids.map(|payment| Touched { payment, is_new }));
        }
    }

    /// It was acknowledged, with its number.
    pub(super) fn commit(&mut self, epoch: i64) {
        let touched = std::mem::take(&mut self.under_way);
        let commit = Commit { epoch, touched };
        self.size += commit.size();
        self.commits.push_back(commit);
        // The last one stays, as its number is what is compared.
        while self.size > REMEMBERED_MAX && self.commits.len() > 1 {
            let Some(oldest) = self.commits.pop_front() else { return };
            self.size -= oldest.size();
            self.forgotten = oldest.epoch;
        }
    }

    /// What is not there of it in a database that has a number of ours as the last; nothing if all
    /// of it is. It is not missed a second time.
    fn missing_behind(&mut self, epoch: i64) -> Option<Missing> {
        let there = self.commits.partition_point(|commit| commit.epoch <= epoch);
        let lost = self.commits.split_off(there);
        if lost.is_empty() {
            return None;
        }
        self.size -= lost.iter().map(Commit::size).sum::<usize>();
        let mut missing = Missing {
            commits: lost.len(),
            new: BTreeSet::new(),
            changed: BTreeSet::new(),
            is_all: self.forgotten <= epoch,
        };
        for Touched { payment, is_new } in lost.into_iter().flat_map(|commit| commit.touched) {
            let payments = if is_new { &mut missing.new } else { &mut missing.changed };
            payments.insert(payment);
        }
        missing.changed.retain(|payment| !missing.new.contains(payment));
        Some(missing)
    }
}

/// What was acknowledged and is not there.
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
    use super::*;

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
            acknowledged.under_way.clear();
            acknowledged.write(&[write(Change::Insert, &[new]), write(Change::Update, &[changed])]);
            acknowledged.commit(epoch);
        }
        // Somebody else's numbers lie between ours.
        assert_eq!(acknowledged.missing_behind(9), None);
        assert_eq!(acknowledged.missing_behind(12), None);
        let missing = Missing { commits: 2, new: uuids([2, 3]), changed: uuids([1]), is_all: true };
        assert_eq!(acknowledged.missing_behind(4), Some(missing));
        assert_eq!(acknowledged.missing_behind(4), None);
        acknowledged.under_way.clear();
        acknowledged.commit(5);
        let missing = Missing { commits: 2, new: uuids([1]), changed: uuids([0]), is_all: true };
        assert_eq!(acknowledged.missing_behind(0), Some(missing));
        assert_eq!(acknowledged.size, 0);
    }

    #[test]
    fn what_was_rolled_back_or_is_of_other_tables_is_not_missed() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.under_way.clear();
        acknowledged.write(&[write(Change::Insert, &[1])]);
        acknowledged.under_way.clear();
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
        let half: Vec<_> = (0..REMEMBERED_MAX as u128 / 2).collect();
        for epoch in 1..=3 {
            acknowledged.under_way.clear();
            acknowledged.write(&[write(Change::Update, &half)]);
            acknowledged.commit(epoch);
        }
        assert!(acknowledged.size <= REMEMBERED_MAX);
        let missing = acknowledged.missing_behind(1).expect("two commits are missing");
        assert_eq!((missing.commits, missing.is_all), (1, false));
        assert_eq!(acknowledged.missing_behind(1), None);
    }
}
