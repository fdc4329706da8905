//! A server on a journal: units run in memory, one append commits a batch of them, and the
//! projector brings the tables up to date later.
//!
//! These are functions without threads, clocks or queues: [`Server::turn`] is one batch,
//! [`Server::project`] one step of the projector, [`Server::restart`] a start. Loops call them.
//!
//! Guarantees: every unit of a batch is answered after the append, or none is. A record that was
//! read from the tables counts only if the memtable admits it. An append whose answer was lost is
//! sent again, the same bytes, and answered only by a server that still leads.

use std::collections::HashMap;
use std::hash::Hash;

use domain::time::Timestamp;
use uuid::Uuid;

use super::{AppendError, Appended, Broken, Chain, End, Journal, Leader, Row};
use crate::error::StoreError;
use crate::memtable::Memtable;

/// Rows that are read at a time when a server starts.
const ROWS_AT_ONCE: u32 = 256;

/// The tables that follow a journal.
pub trait Tables<K, V> {
    /// How far they follow it.
    fn applied(&mut self) -> Result<End, StoreError>;

    /// The record of a key, and how far the tables follow the journal, in one snapshot. Nothing
    /// where that would take a round trip: records are fetched together then.
    fn get(&mut self, key: &K) -> Result<Option<Snapshot<V>>, StoreError>;

    /// The records of keys, in their order, in one snapshot.
    fn fetch(&mut self, keys: &[K]) -> Result<Vec<Snapshot<V>>, StoreError>;

    /// Makes changes, and writes that the tables follow the journal up to `to`, in one transaction.
    /// Nothing is written if they do not stand at `from`: another projector works, or the database
    /// went back.
    fn write(
        &mut self,
        from: End,
        to: End,
        records: &mut dyn Iterator<Item = (&K, Option<&V>)>,
    ) -> Result<bool, StoreError>;
}

/// A record, or its absence, and how far the tables followed the journal when it was read.
pub type Snapshot<V> = (Option<V>, End);

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

/// The records that change sets leave.
fn records<K, V>(sets: ChangeSets<K, V>) -> impl Iterator<Item = (K, Option<V>)> {
    sets.into_iter().flatten().map(|(key, change)| match change {
        Change::Insert(value) | Change::Update(value) => (key, Some(value)),
        Change::Remove => (key, None),
    })
}

/// The change sets of the units of a row.
pub type ChangeSets<K, V> = Vec<Vec<(K, Change<V>)>>;

/// Writes and reads the body of a row.
pub trait Body<K, V> {
    /// The body of change sets, for the row behind this one.
    fn write(&self, previous: End, sets: &ChangeSets<K, V>) -> Result<Vec<u8>, StoreError>;

    /// The change sets of a row behind this one.
    fn read(&self, previous: End, row: &Row) -> Result<ChangeSets<K, V>, StoreError>;
}

/// Why a batch was not answered.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// Another server leads. The units run there again, under the same keys.
    #[error("another server leads")]
    Deposed,
    /// Whether the batch is in the journal is not known. The server must not go on before it
    /// [restarts](Server::restart).
    #[error("the journal does not answer: {0}")]
    Unknown(String),
    /// Nothing was committed.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// Why a server cannot start on a journal and tables.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The tables follow rows that the journal does not have.
    #[error(
        "the tables follow row {seq} of another journal: journal and tables do not belong together"
    )]
    Foreign {
        /// The row.
        seq: u64,
    },
    /// The journal is damaged.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// It cannot be read.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// The record of a key, or its absence; nothing where it has to be fetched.
type Read<'a, K, V> = &'a mut dyn FnMut(&K) -> Result<Option<Option<V>>, StoreError>;

/// The records as a unit sees them, and its changes.
pub struct Unit<'a, K, V> {
    read: Read<'a, K, V>,
    records: HashMap<K, Option<V>>,
    changes: Vec<(K, Change<V>)>,
    /// The key that it needs and has not: it is run again with it, whatever it answers.
    missing: Option<K>,
}

impl<K: Hash + Eq + Clone, V: Clone> Unit<'_, K, V> {
    /// The record of a key. [`StoreError::NotFetched`] ends the unit, which is run again.
    pub fn get(&mut self, key: &K) -> Result<Option<V>, StoreError> {
        if let Some(record) = self.records.get(key) {
            return Ok(record.clone());
        }
        let record = (self.read)(key)?;
        record.ok_or_else(|| {
            self.missing.get_or_insert_with(|| key.clone());
            StoreError::NotFetched
        })
    }

    /// Puts a record there, or removes it.
    pub fn put(&mut self, key: K, record: Option<V>) -> Result<(), StoreError> {
        let was_there = self.get(&key)?.is_some();
        let change = match record.clone() {
            Some(record) if was_there => Change::Update(record),
            Some(record) => Change::Insert(record),
            None if was_there => Change::Remove,
            None => return Ok(()),
        };
        self.records.insert(key.clone(), record);
        self.changes.push((key, change));
        Ok(())
    }
}

/// A unit of work, which gives an answer or refuses. Its changes count only with an answer. It may
/// be run more than once before one counts.
pub type Work<'a, K, V, A, E> = Box<dyn FnMut(&mut Unit<'_, K, V>) -> Result<A, E> + 'a>;

/// A server that leads on a journal.
pub struct Server<K, V, J, T, B> {
    journal: J,
    tables: T,
    body: B,
    leader: Leader,
    database: Uuid,
    chain: Chain,
    memtable: Memtable<K, V>,
}

impl<K, V, J, T, B> Server<K, V, J, T, B>
where
    K: Hash + Eq + Clone,
    V: Clone,
    J: Journal,
    T: Tables<K, V>,
    B: Body<K, V>,
{
    /// Starts on a journal whose leadership this server has just taken, over tables that follow it.
    pub fn start(
        (mut journal, mut tables, body): (J, T, B),
        leader: Leader,
        database: Uuid,
        size: fn(&K, Option<&V>) -> usize,
    ) -> Result<Self, StartError> {
        let applied = tables.applied()?;
        let chain = behind(&mut journal, database, applied)?;
        let memtable = Memtable::new(applied, size);
        let mut server = Self { journal, tables, body, leader, database, chain, memtable };
        server.replay()?;
        Ok(server)
    }

    /// Forgets everything in memory, and begins from the journal and the tables.
    pub fn restart(&mut self) -> Result<(), StartError> {
        let applied = self.tables.applied()?;
        self.chain = behind(&mut self.journal, self.database, applied)?;
        self.memtable.restart(applied);
        self.replay()
    }

    /// Publishes the rows that the tables do not follow yet.
    fn replay(&mut self) -> Result<(), StartError> {
        loop {
            let rows = self.journal.rows(self.chain.end().seq, ROWS_AT_ONCE)?;
            for row in &rows {
                let previous = self.chain.end();
                self.chain.take(row)?;
                let changes = self.body.read(previous, row)?;
                self.memtable.publish(self.chain.end(), records(changes));
            }
            if rows.is_empty() {
                return Ok(());
            }
        }
    }

    /// Runs a batch of units, one after the other, and commits it. Each is answered once all are
    /// committed.
    pub fn turn<A, E: From<StoreError>>(
        &mut self,
        mut batch: Vec<Work<'_, K, V, A, E>>,
        now: Timestamp,
    ) -> Result<Vec<Result<A, E>>, TurnError> {
        let mut answers: Vec<_> = batch.iter().map(|_| None).collect();
        let (mut sets, mut changed) = (ChangeSets::new(), HashMap::new());
        let mut fetched: HashMap<K, Snapshot<V>> = HashMap::new();
        // Units that miss a record are run again behind the others, until none does.
        while answers.iter().any(Option::is_none) {
            let mut missing = Vec::new();
            let waiting = batch.iter_mut().zip(&mut answers).filter(|(_, it)| it.is_none());
            for (work, answer) in waiting {
                let (memtable, tables) = (&self.memtable, &mut self.tables);
                let mut read = |key: &K| match (changed.get(key), fetched.get(key)) {
                    (Some(record), _) => Ok(Some(Option::clone(record))),
                    (None, Some(snapshot)) => admitted(memtable, key, snapshot.clone()).map(Some),
                    (None, None) => newest(memtable, tables, key),
                };
                let (own, changes) = (HashMap::new(), Vec::new());
                let mut unit = Unit { read: &mut read, records: own, changes, missing: None };
                let said = work(&mut unit);
                let Unit { records: own, changes, missing: key, .. } = unit;
                if let Some(key) = key {
                    missing.push(key);
                    continue;
                }
                if said.is_ok() && !changes.is_empty() {
                    changed.extend(own);
                    sets.push(changes);
                }
                *answer = Some(said);
            }
            if !missing.is_empty() {
                let found = self.tables.fetch(&missing)?;
                fetched.extend(missing.into_iter().zip(found));
            }
        }
        if !sets.is_empty() {
            let body = self.body.write(self.chain.end(), &sets)?;
            let row = self.chain.next(self.leader.epoch, now, body);
            self.append(&row)?;
            self.chain.take(&row).expect("a row that was made for this chain");
            self.memtable.publish(self.chain.end(), records(sets));
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Appends a row. An answer that was lost is asked for once more.
    fn append(&mut self, row: &Row) -> Result<(), TurnError> {
        let rows = std::slice::from_ref(row);
        let appended = match self.journal.append(self.leader, rows) {
            Err(AppendError::Lost(_)) => self.journal.append(self.leader, rows),
            decided => decided,
        };
        match appended {
            Ok(Appended::Now) => Ok(()),
            Ok(Appended::Before) => match self.journal.leads(self.leader) {
                Ok(true) => Ok(()),
                Ok(false) => Err(TurnError::Deposed),
                Err(error) => Err(TurnError::Unknown(error.to_string())),
            },
            Err(AppendError::Lost(why)) => Err(TurnError::Unknown(why)),
            Err(AppendError::Deposed) => Err(TurnError::Deposed),
            Err(AppendError::Failed(StoreError::OutcomeUnknown(why))) => {
                Err(TurnError::Unknown(why))
            }
            Err(AppendError::Failed(error)) => Err(error.into()),
        }
    }

    /// One step of the projector. Nothing is left to do if it says no.
    pub fn project(&mut self) -> Result<bool, StoreError> {
        let from = self.memtable.base();
        self.memtable.seal();
        let Some(sealed) = self.memtable.sealed() else { return Ok(false) };
        if !self.tables.write(from, sealed.end(), &mut sealed.records())? {
            return Err(StoreError::Conflict(
                "the tables do not stand where I left them".to_owned(),
            ));
        }
        self.memtable.drop_sealed();
        Ok(true)
    }

    /// The newest record of a key, if this server still leads: another one may know a newer.
    pub fn get(&mut self, key: &K) -> Result<Option<V>, TurnError> {
        if !self.journal.leads(self.leader)? {
            return Err(TurnError::Deposed);
        }
        if let Some(record) = newest(&self.memtable, &mut self.tables, key)? {
            return Ok(record);
        }
        let found = self.tables.fetch(std::slice::from_ref(key))?.pop();
        let found = found.ok_or(TurnError::Failed(StoreError::NotFetched))?;
        Ok(admitted(&self.memtable, key, found)?)
    }
}

/// The newest record of a key: of the memtable, or of a snapshot that is opened afterwards. Nothing
/// where it has to be fetched.
fn newest<K: Hash + Eq + Clone, V: Clone>(
    memtable: &Memtable<K, V>,
    tables: &mut impl Tables<K, V>,
    key: &K,
) -> Result<Option<Option<V>>, StoreError> {
    if let Some(record) = memtable.get(key) {
        return Ok(Some(record.cloned()));
    }
    tables.get(key)?.map(|snapshot| admitted(memtable, key, snapshot)).transpose()
}

/// The record of a snapshot, if it counts. One that does not says that the database went back: this
/// server projects, and has no other thread here.
fn admitted<K: Hash + Eq + Clone, V>(
    memtable: &Memtable<K, V>,
    key: &K,
    (record, applied): Snapshot<V>,
) -> Result<Option<V>, StoreError> {
    match memtable.admit(key, applied.seq) {
        true => Ok(record),
        false => Err(StoreError::Conflict("the tables went back".to_owned())),
    }
}

/// The chain behind the row that the tables follow, which the journal must have.
fn behind(journal: &mut impl Journal, database: Uuid, applied: End) -> Result<Chain, StartError> {
    if applied == End::START {
        return Ok(Chain::new(database));
    }
    match &journal.rows(applied.seq.saturating_sub(1), 1)?[..] {
        [row] if row.seq == applied.seq && row.hash == applied.hash => {
            Ok(Chain::behind(database, row))
        }
        _ => Err(StartError::Foreign { seq: applied.seq }),
    }
}

#[cfg(test)]
mod tests;
