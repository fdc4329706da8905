//! Rows of the journal that the database has acknowledged to this server, so that their loss is
//! noticed: after a failover to a standby that had fallen behind, or a restore under a server that
//! runs.
//!
//! A journal without the last of them is an older one. The payments that the rows it lacks made or
//! changed are remembered here and named in the log.

use std::collections::{BTreeSet, VecDeque};

use domain::id::TransactionId;
use domain::transaction::Transaction;
use uuid::Uuid;

use crate::error::StoreError;
use crate::journal::End;
use crate::journal::change_set::{Kind, TableChange};
use crate::journal::tail::{self, Appended};
use crate::record::Numbered as _;
use crate::sql::{Connection, Value};

/// Rows that are remembered: those of some seconds of full load, with their payments some
/// megabytes. A standby that is further behind should not be promoted.
const ROWS_MAX: usize = 2_048;

/// Payments that a line of the log names: some two thousand characters.
const NAMED_IN_LINE: usize = 40;

/// A row that was acknowledged, and the payments that it made and changed.
#[derive(Debug)]
struct Row {
    end: End,
    new: Vec<Uuid>,
    changed: Vec<Uuid>,
}

/// The latest rows that were acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    rows: VecDeque<Row>,
    /// Whether the rows before them are not remembered any more.
    has_forgotten: bool,
}

impl Acknowledged {
    /// Rows were acknowledged.
    pub(crate) fn keep(&mut self, rows: &[Appended]) {
        for (chain, changes) in rows {
            let ids = |is: fn(Kind) -> bool| {
                let changes = changes.iter().filter(|it| it.table == Transaction::NUMBER);
                changes.filter(|it| is(it.kind)).filter_map(payment).collect()
            };
            let (new, changed) = (ids(|kind| kind == Kind::Insert), ids(|it| it == Kind::Update));
            self.rows.push_back(Row { end: chain.end(), new, changed });
        }
        while self.rows.len() > ROWS_MAX {
            self.has_forgotten = true;
            self.rows.pop_front();
        }
    }

    /// Logs the rows that a journal lacks.
    pub(crate) fn compare(&mut self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        let mut there = self.rows.len();
        while let Some(last) = there.checked_sub(1)
            && !tail::has(connection, self.rows[last].end)?
        {
            there = last;
        }
        if let Some(missing) = self.missing_behind(there) {
            missing.log();
        }
        Ok(())
    }

    /// The rows that a journal lacks which has so many of them; `None` if it has all. They are
    /// returned once.
    fn missing_behind(&mut self, there: usize) -> Option<Missing> {
        let lost = self.rows.split_off(there);
        if lost.is_empty() {
            return None;
        }
        let new: BTreeSet<_> = lost.iter().flat_map(|row| &row.new).copied().collect();
        let changed = lost.iter().flat_map(|row| &row.changed).copied();
        let changed = changed.filter(|payment| !new.contains(payment)).collect();
        let is_all = there > 0 || !self.has_forgotten;
        Some(Missing { rows: lost.len(), new, changed, is_all })
    }
}

/// The payment that a change is about.
fn payment(change: &TableChange) -> Option<Uuid> {
    match change.values.first() {
        Some(Value::Bytes(id)) => Uuid::from_slice(id).ok(),
        _ => None,
    }
}

/// Acknowledged rows that a journal lacks.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    /// How many, as far as they are remembered.
    rows: usize,
    /// Payments that they made.
    new: BTreeSet<Uuid>,
    /// Payments that they changed and had not made.
    changed: BTreeSet<Uuid>,
    /// Whether nothing but these is missing.
    is_all: bool,
}

impl Missing {
    fn log(&self) {
        metrics::counter!("switchyard_missing_commits_total").increment(self.rows as u64);
        tracing::error!(
            commits = self.rows,
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
    use domain::time::Timestamp;

    use super::*;
    use crate::journal::Chain;

    fn change(table: u16, kind: Kind, id: u128) -> TableChange {
        TableChange::new(table, kind, vec![Uuid::from_u128(id).into(), 7_i64.into()])
    }

    /// Rows that each make a payment and change one.
    fn rows(payments: impl IntoIterator<Item = (u128, u128)>) -> Vec<Appended> {
        let mut chain = Chain::new(Uuid::from_u128(7));
        let row = |(new, changed)| {
            let row = chain.row(chain.place(1, Timestamp::from_millis(1)), Vec::new());
            chain.take(&row).expect("the next row");
            let payment = Transaction::NUMBER;
            let changes = vec![
                change(payment, Kind::Insert, new),
                change(payment, Kind::Update, changed),
                change(payment + 1, Kind::Insert, 99),
                change(payment, Kind::Remove, 98),
            ];
            (chain, changes)
        };
        payments.into_iter().map(row).collect()
    }

    fn uuids(ids: impl IntoIterator<Item = u128>) -> BTreeSet<Uuid> {
        ids.into_iter().map(Uuid::from_u128).collect()
    }

    #[test]
    fn what_an_older_journal_lacks_is_missed_once() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.keep(&rows([(1, 0), (2, 1), (3, 2)]));
        assert_eq!(acknowledged.missing_behind(3), None);
        let missing = Missing { rows: 2, new: uuids([2, 3]), changed: uuids([1]), is_all: true };
        assert_eq!(acknowledged.missing_behind(1), Some(missing));
        assert_eq!(acknowledged.missing_behind(1), None);
    }

    #[test]
    fn it_says_when_more_is_missing_than_is_remembered() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.keep(&rows((0..ROWS_MAX as u128 + 1).map(|id| (id, 0))));
        let missing = acknowledged.missing_behind(0).expect("all are missing");
        assert_eq!((missing.rows, missing.is_all), (ROWS_MAX, false));
        acknowledged.keep(&rows([(1, 0), (2, 1)]));
        let missing = acknowledged.missing_behind(1).expect("one is missing");
        assert_eq!((missing.rows, missing.is_all), (1, true));
    }
}
