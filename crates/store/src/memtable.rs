//! The memtable: records as the journal has them and the tables do not yet.
//!
//! It is a chain of generations. The active one takes what is published. The projector seals it at
//! a row `n` of the journal, writes its records to the tables together with `applied = n`, and then
//! drops it: from then on `base = n`, and those records are in the tables alone.
//!
//! Guarantees: a sealed generation is exactly the fold of the rows up to its end, and never
//! changes. A record that is read from the tables counts only by [`Memtable::admit`]. The crate
//! `model` shows why both are needed.
//!
//! Limits: it finds records by key only. It bounds nothing by itself: [`Memtable::bytes`] is for
//! those who publish.

use std::collections::HashMap;
use std::hash::Hash;

use crate::journal::End;

/// A change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<V> {
    /// The record is there for the first time.
    Insert(V),
    /// The record is another than before.
    Update(V),
    /// The record is gone.
    Remove,
}

impl<V: Clone> Change<&V> {
    /// The change with a value of its own.
    pub fn copied(self) -> Change<V> {
        match self {
            Self::Insert(value) => Change::Insert(value.clone()),
            Self::Update(value) => Change::Update(value.clone()),
            Self::Remove => Change::Remove,
        }
    }
}

/// The latest state of a record in a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry<V> {
    /// Nothing if the record is gone.
    value: Option<V>,
    /// Whether the record was first there in this generation: the tables do not have it.
    is_new: bool,
}

/// The latest states of records, as far as a row of the journal.
#[derive(Debug)]
struct Generation<K, V> {
    end: End,
    entries: HashMap<K, Entry<V>>,
    bytes: usize,
}

impl<K, V> Generation<K, V> {
    fn new(end: End) -> Self {
        Self { end, entries: HashMap::new(), bytes: 0 }
    }
}

/// The records that are committed and not projected, by their keys.
#[derive(Debug)]
pub struct Memtable<K, V> {
    base: End,
    sealed: Option<Generation<K, V>>,
    active: Generation<K, V>,
    /// How much memory a record takes.
    size: fn(&K, Option<&V>) -> usize,
}

impl<K: Hash + Eq + Clone, V> Memtable<K, V> {
    /// An empty memtable over tables that follow the journal as far as `applied`.
    pub fn new(applied: End, size: fn(&K, Option<&V>) -> usize) -> Self {
        Self { base: applied, sealed: None, active: Generation::new(applied), size }
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
        self.active.bytes + self.sealed.as_ref().map_or(0, |sealed| sealed.bytes)
    }

    /// Takes the changes of a row, in their order. Rows come one after the other.
    pub fn publish(&mut self, row: End, changes: impl IntoIterator<Item = (K, Change<V>)>) {
        debug_assert_eq!(row.seq, self.active.end.seq + 1, "rows are published without a gap");
        self.active.end = row;
        for (key, change) in changes {
            let (value, is_new) = match change {
                Change::Insert(value) => (Some(value), true),
                Change::Update(value) => (Some(value), false),
                Change::Remove => (None, false),
            };
            let size = (self.size)(&key, value.as_ref());
            let before = self.active.entries.get(&key);
            let freed = before.map_or(0, |before| (self.size)(&key, before.value.as_ref()));
            // A record that comes back after it was removed is in the tables, if it was before.
            let is_new = before.map_or(is_new, |before| before.is_new);
            self.active.bytes = self.active.bytes + size - freed;
            self.active.entries.insert(key, Entry { value, is_new });
        }
    }

    /// The record of a key: nothing if it is not here, and the tables say. `Some(None)` if it is
    /// gone.
    pub fn get(&self, key: &K) -> Option<Option<&V>> {
        let generations = [Some(&self.active), self.sealed.as_ref()];
        let mut entries = generations.into_iter().flatten().filter_map(|it| it.entries.get(key));
        entries.next().map(|entry| entry.value.as_ref())
    }

    /// Whether the record of a key, or its absence, counts that was read from the tables in a
    /// snapshot with this `applied`. If not, it is read again.
    pub fn admit(&self, key: &K, applied: End) -> bool {
        self.get(key).is_none() && self.base.seq <= applied.seq
    }

    /// Seals what was published, for the projector: up to which row. Nothing if there is nothing
    /// new, or a generation is sealed that was not dropped.
    pub fn seal(&mut self) -> Option<End> {
        if self.sealed.is_some() || self.active.end == self.base {
            return None;
        }
        let end = self.active.end;
        self.sealed = Some(std::mem::replace(&mut self.active, Generation::new(end)));
        Some(end)
    }

    /// The row up to which a generation is sealed.
    pub fn sealed_end(&self) -> Option<End> {
        self.sealed.as_ref().map(|sealed| sealed.end)
    }

    /// The changes that the sealed generation makes to the tables. A record that came and went
    /// meanwhile is not among them.
    pub fn sealed(&self) -> impl Iterator<Item = (&K, Change<&V>)> {
        let entries = self.sealed.iter().flat_map(|sealed| &sealed.entries);
        entries.filter_map(|(key, entry)| match (&entry.value, entry.is_new) {
            (Some(value), true) => Some((key, Change::Insert(value))),
            (Some(value), false) => Some((key, Change::Update(value))),
            (None, false) => Some((key, Change::Remove)),
            (None, true) => None,
        })
    }

    /// Drops the sealed generation, which the tables have now.
    pub fn drop_sealed(&mut self) {
        if let Some(sealed) = self.sealed.take() {
            self.base = sealed.end;
        }
    }

    /// Forgets everything. The tables follow the journal as far as `applied`, and the rows behind
    /// are to be published again.
    pub fn restart(&mut self, applied: End) {
        *self = Self::new(applied, self.size);
    }
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
            let mut records = self.fold(number as u64);
            let changes: Vec<_> = self.journal[number]
                .iter()
                .map(|(key, value)| {
                    let was_there = match value {
                        Some(value) => records.insert(*key, *value).is_some(),
                        None => records.remove(key).is_some(),
                    };
                    let change = match value {
                        Some(value) if was_there => Change::Update(*value),
                        Some(value) => Change::Insert(*value),
                        None => Change::Remove,
                    };
                    (*key, change)
                })
                .collect();
            self.memtable.publish(row(number as u64 + 1), changes);
        }

        fn project(&mut self) {
            let Some(end) = self.memtable.sealed.as_ref().map(|sealed| sealed.end.seq) else {
                return;
            };
            if self.is_written {
                return;
            }
            self.before = self.tables.clone();
            let written: Vec<_> =
                self.memtable.sealed().map(|(key, change)| (*key, change.copied())).collect();
            for (key, change) in written {
                match change {
                    Change::Insert(value) | Change::Update(value) => {
                        self.tables.1.insert(key, value)
                    }
                    Change::Remove => self.tables.1.remove(&key),
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
                Step::Seal => {
                    self.memtable.seal();
                }
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
            if self.memtable.admit(&key, row(*applied)) {
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
                let generations = [server.memtable.sealed.as_ref(), Some(&server.memtable.active)];
                let entries = generations.into_iter().flatten().flat_map(|it| it.entries.values());
                let bytes: usize = entries.map(|it| 1 + usize::from(it.value.is_some())).sum();
                prop_assert_eq!(server.memtable.bytes(), bytes);
                prop_assert_eq!(server.memtable.end().seq, server.journal.len() as u64);
                prop_assert!(server.memtable.base().seq <= server.memtable.end().seq);
            }
        }
    }

    #[test]
    fn a_record_that_comes_and_goes_is_never_written() {
        let mut memtable = Memtable::new(row(0), |_, _| 1);
        memtable.publish(row(1), [("new", Change::Insert(1)), ("old", Change::Update(2))]);
        memtable.publish(row(2), [("new", Change::Remove), ("old", Change::Remove)]);
        assert_eq!(memtable.seal(), Some(row(2)));
        assert_eq!(memtable.sealed().collect::<Vec<_>>(), [(&"old", Change::Remove)]);
        assert_eq!(memtable.get(&"new"), Some(None), "it is known to be gone");
        assert_eq!(memtable.seal(), None, "one at a time");
        memtable.drop_sealed();
        assert_eq!((memtable.base(), memtable.get(&"new")), (row(2), None));
    }
}
