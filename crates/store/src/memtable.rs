//! The memtable: records as the journal has them and the tables do not yet.
//!
//! It is a chain of generations. The active one takes what is published, and is sealed at a row `n`
//! of the journal: when the projector asks for it, or when it has as many records as one step of
//! the projector writes. The projector writes the records of the oldest sealed generation to the
//! tables together with `applied = n`, and then drops it: from then on `base = n`, and those
//! records are in the tables alone.
//!
//! Guarantees: a sealed generation is exactly the fold of the rows up to its end, and never
//! changes. The crate `model` shows why that is needed.
//!
//! A record that is not here is read from the tables after that. They have everything up to the
//! `base` of that moment, so that it is as it was committed last; what is published later is of no
//! concern to a reader, and nothing is while the writer runs a batch.
//!
//! Limits: it finds records by key only. It bounds nothing by itself: [`Memtable::bytes`] is for
//! those who publish.

pub(crate) mod shared;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use crate::journal::End;

/// Records of a generation at most, up to a row of the journal more: some tenths of a second of the
/// projector.
const GENERATION_MAX: usize = 20_000;

/// The same in bytes, for records that are long.
const GENERATION_BYTES_MAX: usize = 16 << 20;

/// The latest states of records, as far as a row of the journal.
#[derive(Debug)]
pub struct Generation<K, V> {
    end: End,
    /// The latest state of each record that has changed; nothing of one that is gone.
    entries: HashMap<K, Option<V>>,
    bytes: usize,
    /// When its first row was published.
    since: Option<Instant>,
}

impl<K, V> Generation<K, V> {
    fn new(end: End) -> Self {
        Self { end, entries: HashMap::new(), bytes: 0, since: None }
    }

    /// The last row.
    pub fn end(&self) -> End {
        self.end
    }

    /// Each record that has changed, as it is at the end: nothing of one that is gone. So tables
    /// may have some of the changes already, or all of them.
    pub fn records(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.entries.iter().map(|(key, value)| (key, value.as_ref()))
    }
}

/// The records that are committed and not projected, by their keys.
#[derive(Debug)]
pub struct Memtable<K, V> {
    base: End,
    /// The oldest first.
    sealed: VecDeque<Arc<Generation<K, V>>>,
    active: Generation<K, V>,
    /// How much memory a record takes.
    size: fn(&K, Option<&V>) -> usize,
}

impl<K: Hash + Eq + Clone, V> Memtable<K, V> {
    /// An empty memtable over tables that follow the journal as far as `applied`.
    pub fn new(applied: End, size: fn(&K, Option<&V>) -> usize) -> Self {
        Self { base: applied, sealed: VecDeque::new(), active: Generation::new(applied), size }
    }

    /// The row of the journal up to which everything was dropped, as the tables have it.
    pub fn base(&self) -> End {
        self.base
    }

    /// The last row that was published.
    pub fn end(&self) -> End {
        self.active.end
    }

    /// The memory that its records take, in bytes.
    pub fn bytes(&self) -> usize {
        self.active.bytes + self.sealed.iter().map(|sealed| sealed.bytes).sum::<usize>()
    }

    /// When the oldest row was published that the tables do not have; nothing if there is none.
    pub fn since(&self) -> Option<Instant> {
        self.sealed.front().map_or(self.active.since, |sealed| sealed.since)
    }

    /// Takes the records that a row changes, in its order. Rows come one after the other.
    pub fn publish(&mut self, row: End, changes: impl IntoIterator<Item = (K, Option<V>)>) {
        debug_assert_eq!(row.seq, self.active.end.seq + 1, "rows are published without a gap");
        let Generation { entries, bytes, .. } = &self.active;
        if entries.len() >= GENERATION_MAX || *bytes >= GENERATION_BYTES_MAX {
            self.seal();
        }
        self.active.end = row;
        self.active.since.get_or_insert_with(now);
        for (key, value) in changes {
            let size = (self.size)(&key, value.as_ref());
            let before = self.active.entries.get(&key);
            let freed = before.map_or(0, |before| (self.size)(&key, before.as_ref()));
            self.active.bytes = self.active.bytes + size - freed;
            self.active.entries.insert(key, value);
        }
    }

    /// The record of a key: nothing if it is not here, and the tables say. `Some(None)` if it is
    /// gone.
    pub fn get(&self, key: &K) -> Option<Option<&V>> {
        let generations =
            std::iter::once(&self.active).chain(self.sealed.iter().rev().map(|it| &**it));
        let mut entries = generations.filter_map(|it| it.entries.get(key));
        entries.next().map(Option::as_ref)
    }

    /// Seals what was published since the last generation, if that is anything.
    fn seal(&mut self) {
        if self.active.since.is_some() {
            let end = self.active.end;
            let active = std::mem::replace(&mut self.active, Generation::new(end));
            self.sealed.push_back(Arc::new(active));
        }
    }

    /// The next generation for the projector, which is sealed now if it is not yet. It stays the
    /// next one until it is dropped.
    pub fn next(&mut self) -> Option<&Arc<Generation<K, V>>> {
        if self.sealed.is_empty() {
            self.seal();
        }
        self.sealed.front()
    }

    /// The generation that the projector has, if it has one.
    pub fn sealed(&self) -> Option<&Arc<Generation<K, V>>> {
        self.sealed.front()
    }

    /// Drops the oldest sealed generation, which the tables have now.
    pub fn drop_sealed(&mut self) {
        if let Some(sealed) = self.sealed.pop_front() {
            self.base = sealed.end;
        }
    }

    /// Forgets everything. The tables follow the journal as far as `applied`, and the rows behind
    /// are to be published again.
    pub fn restart(&mut self, applied: End) {
        *self = Self::new(applied, self.size);
    }
}

/// The time, for what is only measured.
#[expect(clippy::disallowed_methods, reason = "it tells how far tables lag, not what is true")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::journal::RowHash;

    /// A step of the server.
    #[derive(Debug, Clone)]
    enum Step {
        /// A commit changes records: a key, and its value or none.
        Commit(Vec<(u8, Option<u8>)>),
        Seal,
        /// The projector writes what is sealed.
        Project,
        Drop,
        /// The server dies, or the tables go back to what they were before the last step.
        Die {
            goes_back: bool,
        },
        /// A snapshot of the tables is opened.
        Snapshot,
        /// A record of the snapshot is offered, and one is read by key.
        Read(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let commit = prop::collection::vec((0_u8..4, prop::option::of(any::<u8>())), 0..3);
        let step = prop_oneof![
            4 => commit.prop_map(Step::Commit),
            2 => Just(Step::Seal),
            2 => Just(Step::Project),
            2 => Just(Step::Drop),
            1 => any::<bool>().prop_map(|goes_back| Step::Die { goes_back }),
            2 => Just(Step::Snapshot),
            4 => (0_u8..4).prop_map(Step::Read),
        ];
        prop::collection::vec(step, 1..60)
    }

    type Records = BTreeMap<u8, u8>;

    /// A row of this number: nothing looks at hashes here.
    const fn row(seq: u64) -> End {
        End { seq, hash: RowHash::NONE }
    }

    /// A server over a journal whose rows are whole states, which is the simplest fold there is.
    struct Server {
        journal: Vec<Vec<(u8, Option<u8>)>>,
        memtable: Memtable<u8, u8>,
        tables: (u64, Records),
        before: (u64, Records),
        snapshot: (u64, Records),
        is_written: bool,
    }

    impl Server {
        fn new() -> Self {
            let empty = (0, Records::new());
            Self {
                journal: Vec::new(),
                memtable: Memtable::new(row(0), |_, value| 1 + usize::from(value.is_some())),
                tables: empty.clone(),
                before: empty.clone(),
                snapshot: empty,
                is_written: false,
            }
        }

        fn fold(&self, rows: u64) -> Records {
            let mut records = Records::new();
            for (key, value) in self.journal.iter().take(rows as usize).flatten() {
                match value {
                    Some(value) => records.insert(*key, *value),
                    None => records.remove(key),
                };
            }
            records
        }

        fn publish(&mut self, number: usize) {
            self.memtable.publish(row(number as u64 + 1), self.journal[number].iter().copied());
        }

        fn project(&mut self) {
            let Some(sealed) = self.memtable.sealed().cloned().filter(|_| !self.is_written) else {
                return;
            };
            let end = sealed.end.seq;
            self.before = self.tables.clone();
            for (key, value) in sealed.records() {
                match value {
                    Some(value) => self.tables.1.insert(*key, *value),
                    None => self.tables.1.remove(key),
                };
            }
            self.tables.0 = end;
            self.is_written = true;
        }

        fn die(&mut self, goes_back: bool) {
            if goes_back {
                self.tables = self.before.clone();
            }
            self.is_written = false;
            self.memtable.restart(row(self.tables.0));
            for number in self.tables.0 as usize..self.journal.len() {
                self.publish(number);
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Commit(changes) => {
                    self.journal.push(changes);
                    self.publish(self.journal.len() - 1);
                }
                Step::Seal => self.memtable.seal(),
                Step::Project => self.project(),
                Step::Drop if self.is_written => {
                    self.memtable.drop_sealed();
                    self.is_written = false;
                }
                Step::Drop => {}
                Step::Die { goes_back } => self.die(goes_back),
                Step::Snapshot => self.snapshot = self.tables.clone(),
                Step::Read(key) => self.read(key),
            }
            assert_eq!(self.tables.1, self.fold(self.tables.0), "the tables are the fold");
        }

        fn read(&self, key: u8) {
            let truth = self.fold(self.journal.len() as u64).get(&key).copied();
            if let Some(found) = self.memtable.get(&key) {
                assert_eq!(found.copied(), truth, "the memtable has the newest state");
            } else {
                assert_eq!(self.tables.1.get(&key).copied(), truth, "a miss is in the tables");
            }
            let (applied, records) = &self.snapshot;
            let base = self.memtable.base().seq;
            if self.memtable.get(&key).is_none() && base <= *applied {
                assert_eq!(records.get(&key).copied(), truth, "what is admitted is the newest");
            }
        }
    }

    proptest! {
        #[test]
        fn reads_and_tables_are_those_of_the_journal(steps in steps()) {
            let mut server = Server::new();
            for step in steps {
                server.step(step);
                let sealed = server.memtable.sealed.iter().map(|it| &**it);
                let generations = sealed.chain([&server.memtable.active]);
                let entries = generations.flat_map(|it| it.entries.values());
                let bytes: usize = entries.map(|it| 1 + usize::from(it.is_some())).sum();
                prop_assert_eq!(server.memtable.bytes(), bytes);
                prop_assert_eq!(server.memtable.end().seq, server.journal.len() as u64);
                prop_assert!(server.memtable.base().seq <= server.memtable.end().seq);
            }
        }
    }

    #[test]
    fn a_record_is_projected_as_it_is_at_last() {
        let mut memtable = Memtable::new(row(0), |_, _| 1);
        memtable.publish(row(1), [("gone", Some(1)), ("changed", Some(2))]);
        memtable.publish(row(2), [("gone", None), ("changed", Some(3))]);
        let sealed = Arc::clone(memtable.next().expect("a generation"));
        assert_eq!(sealed.end(), row(2));
        memtable.publish(row(3), [("changed", Some(4))]);
        let mut records: Vec<_> = sealed.records().collect();
        records.sort_unstable();
        // Tables that are further may have the one that is gone.
        assert_eq!(records, [(&"changed", Some(&3)), (&"gone", None)]);
        assert_eq!(memtable.get(&"gone"), Some(None), "it is known to be gone");
        assert_eq!(memtable.next().map(|it| it.end()), Some(row(2)), "one at a time");
        memtable.drop_sealed();
        assert_eq!((memtable.base(), memtable.get(&"gone")), (row(2), None));
        assert_eq!(memtable.get(&"changed"), Some(Some(&4)));
    }
    #[test]
    fn a_generation_is_as_large_as_a_step() {
        let mut memtable = Memtable::new(row(0), |_, _| 1);
        assert!(memtable.next().is_none(), "there is nothing to project");
        for seq in 0..2 * GENERATION_MAX as u64 {
            memtable.publish(row(seq + 1), [(seq, Some(seq))]);
        }
        let first = Arc::clone(memtable.next().expect("a generation"));
        assert_eq!(first.end(), row(GENERATION_MAX as u64));
        assert_eq!(memtable.get(&0), Some(Some(&0)), "it is found until it is dropped");
        memtable.drop_sealed();
        assert_eq!((memtable.base(), memtable.get(&0)), (first.end(), None));
        assert_eq!(memtable.next().map(|it| it.end()), Some(memtable.end()));
        memtable.drop_sealed();
        assert_eq!((memtable.base(), memtable.bytes()), (memtable.end(), 0));
        assert_eq!(memtable.since(), None, "the tables have everything");
    }
}
